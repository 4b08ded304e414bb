"""The local engine: jobs of any length in one stack."""

import numpy as np
import pytest
import torch

from fedsac import Config, run
from fedsac.clients import training
from fedsac.compute.samples import Samples
from fedsac.core.units import Layout
from tests import plain

LAYOUT = Layout((6, 5, 4, 3))
SAMPLES = [90, 30, 64, 12]
X, Y = plain.random_data(sum(SAMPLES), 6, 3, 0, torch.float64)


def job(steps, seed, *, masked, models=4):
    rows = tuple(np.split(np.arange(sum(SAMPLES)), np.cumsum(SAMPLES)[:-1]))
    rng = np.random.default_rng(seed)
    scale, shift = (torch.from_numpy(rng.normal(size=(1, 6))) for _ in range(2))
    clients = training.Clients(LAYOUT, tuple("abcd"), rows, Samples(X, Y, scale, shift), 0.1 + seed, 16, 5, seed)
    start = torch.from_numpy(rng.normal(size=(models, LAYOUT.parameters)))
    neurons = torch.from_numpy(rng.random((4, LAYOUT.neurons)) < 0.7) if masked else None
    return training.Job(clients, start, neurons, steps, "batches", 0)


@pytest.mark.parametrize("masked", [False, True])
def test_jobs_of_unequal_lengths_train_as_each_of_them_alone(masked):
    jobs = [
        job((3, 9, 1, 5), 0, masked=masked),
        job((7, 7, 7, 7), 1, masked=masked),
        job((2, 2, 12, 2), 2, masked=masked, models=1),
    ]
    together = training.train(jobs)
    for own, found in zip(jobs, together, strict=True):
        for i, steps in enumerate(own.steps):
            # The same draw, for that client alone: everyone else takes as many steps as it does.
            alone = training.train([training.Job(own.clients, own.models, own.neurons, (steps,) * 4, "batches", 0)])[0]
            torch.testing.assert_close(found.models[i], alone.models[i], rtol=1e-12, atol=1e-12)
            torch.testing.assert_close(found.losses[i], alone.losses[i], rtol=1e-12, atol=1e-12)


def test_clients_who_all_hold_everything_have_a_reward_each():
    found = run(Config(rounds=2, clients=3, hidden=(8,), beta=0.0))
    assert len(set(found.rewards)) == 1 and len(found.rewards) == 3
