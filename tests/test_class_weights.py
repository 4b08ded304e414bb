"""Class weights: `--class-weights balanced`, on every way that a model is trained."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

import fedsac
from fedsac import Config
from fedsac.clients.training import Job, _batches, train
from fedsac.compute.batches import balanced_weights, stacked_batches
from fedsac.compute.modules.stacked_training import train_stacked
from fedsac.compute.modules.training import train_modules
from fedsac.contributions.base import Contributions
from fedsac.models.network import Network
from fedsac.rng import stream
from fedsac.runs.setup import prepare
from tests.flower_grid import coordinate, digits_silos, federation
from tests.plain import worst
from tests.test_federated_networks import agreement
from tests.test_sites_decide import edit

SMALL = Config(rounds=2, clients=3, hidden=(12,), local_steps=3, scene="dir:0.5", dtype="float64", share=0.3)
BALANCED = SMALL.replace(class_weights="balanced")


def test_weights_by_hand():
    """Three of class 0 and one of class 2: 4 / (2 * 3) and 4 / (2 * 1); each class weighs 2 in all."""
    weights = balanced_weights(np.array([0, 0, 0, 2]))
    assert weights.tolist() == pytest.approx([2 / 3, 2 / 3, 2 / 3, 2])
    assert weights.sum() == pytest.approx(4)


def test_a_batch_weighs_one_and_the_draw_is_the_same():
    labels = np.array([0] * 9 + [1])
    rngs = [lambda: np.random.default_rng(3), lambda: np.random.default_rng(4)]
    rows = [np.arange(10), np.arange(10)]
    plain_rows, plain_weight = stacked_batches(rows, [4, 2], 4, [rng() for rng in rngs])
    picked, weight = stacked_batches(rows, [4, 2], 4, [rng() for rng in rngs], [balanced_weights(labels), None])
    assert (picked == plain_rows).all()
    assert weight[:, 0].sum(1).tolist() == pytest.approx([1] * 4)
    assert (weight[:, 1] == plain_weight[:, 1]).all()  # of a client without weights, to the last bit
    ratio = weight[:, 0][labels[picked[:, 0]] == 1] / weight[:, 0][labels[picked[:, 0]] == 0].min()
    assert ((weight > 0) == (plain_weight > 0)).all()
    assert len(ratio) and (ratio >= 9 - 1e-9).all()


def by_torch(module, x, y, batches, lr, weight):
    """Steps by torch's own weighted loss and optimiser."""
    module = copy.deepcopy(module).double()
    optimiser = torch.optim.SGD(module.parameters(), lr=lr)
    for rows in batches:
        optimiser.zero_grad()
        functional.cross_entropy(module(x[rows]), y[rows], weight=weight).backward()
        optimiser.step()
    return module


def class_weights(y, classes):
    """torch's way to say it: a weight for each class; those that do not occur never count."""
    counts = torch.bincount(y, minlength=classes).double()
    return len(y) / ((counts > 0).sum() * counts.clamp_min(1))


def drawn(config, clients, i, steps):
    rng = stream(config.seed, "batches", 1, clients.names[i])
    own = clients.rows[i]
    if len(own) <= config.batch:
        return [torch.from_numpy(own)] * steps
    per_epoch = len(own) // config.batch
    epochs = -(-steps // per_epoch)
    order = np.concatenate([rng.permutation(len(own))[: per_epoch * config.batch] for _ in range(epochs)])
    return [torch.from_numpy(own[order[k * config.batch : (k + 1) * config.batch]]) for k in range(steps)]


@pytest.mark.parametrize("more", [{}, {"momentum": 1e-300}], ids=["stack", "any network"])
def test_a_perceptrons_clients_train_as_torch_does(more):
    """Each client by its own counts, in the perceptrons' stack and by the way of any network."""
    config = BALANCED.replace(**more)
    (prepared,) = prepare([config])
    clients, layout = prepared.clients, prepared.layout
    (trained,) = train([Job(clients, prepared.initial.unsqueeze(0), None, (3, 3, 3), "batches", 1)])
    (start,) = prepare([SMALL])
    module = Network(start.layout, start.initial).module()
    for i in range(3):
        y = clients.pool.y[torch.from_numpy(clients.rows[i])]
        x = clients.pool.x.double() * clients.pool.scale + clients.pool.shift
        batches = drawn(config, clients, i, 3)
        expected = by_torch(module, x, clients.pool.y, batches, config.lr, class_weights(y, 10)).state_dict()
        got = trained.models[i]
        ours = Network(layout, got).module().state_dict() if not more else layout.views(got)
        assert all(worst(ours[name], expected[name]) < 1e-10 for name in expected)


def test_a_stack_by_vmap_weighs_as_one_by_one_does():
    """What a GPU does with any network, here on a CPU; one client has smaller batches."""
    (prepared,) = prepare([BALANCED.replace(network="tests.networks:tiny", clients=2)])
    clients = replace(prepared.clients, rows=(prepared.clients.rows[0][:20], prepared.clients.rows[1]))
    job = Job(clients, prepared.initial.unsqueeze(0), None, (2, 3), "batches", 0)
    batches = _batches([job], torch.device("cpu"), torch.float64)
    sent = prepared.layout, job.models, None, clients.pool, batches, torch.full((2,), 0.1, dtype=torch.float64)
    (models, losses), (stacked, stacked_losses) = train_modules(*sent), train_stacked(*sent)
    assert (losses - stacked_losses).abs().max() < 1e-10 and (models - stacked).abs().max() < 1e-10
    plain_job = replace(job, clients=replace(clients, labels=None))
    plain_batches = _batches([plain_job], torch.device("cpu"), torch.float64)
    assert (train_modules(*sent[:4], plain_batches, sent[5])[0] - models).abs().max() > 1e-6


@pytest.mark.parametrize("more", [{}, {"momentum": 1e-300}], ids=["stack", "any network"])
def test_the_servers_own_steps_weigh_by_its_own_counts(more):
    (prepared,) = prepare([BALANCED.replace(**more)])
    few = torch.cat([torch.arange(len(prepared.validation.y))[prepared.validation.y == k][: 1 + k] for k in range(4)])
    task = prepared.task(prepared.members, Contributions((0.5,) * 3, (0.5,) * 3))
    part = task.part(few)
    got = task.steps(prepared.initial, part, 2, 1)
    (start,) = prepare([SMALL])
    x = part.x.double() * part.scale + part.shift
    module = Network(start.layout, start.initial).module()
    every = [torch.arange(len(few))] * 2  # ten samples: fewer than a batch
    expected = by_torch(module, x, part.y, every, task.lr, class_weights(part.y, 10)).state_dict()
    ours = Network(prepared.layout, got).module().state_dict() if not more else prepared.layout.views(got)
    assert all(worst(ours[name], expected[name]) < 1e-10 for name in expected)


def test_none_is_what_there_was_and_balanced_is_another_run():
    plain, named, balanced = (fedsac.run(c) for c in (SMALL, SMALL.replace(class_weights="none"), BALANCED))
    assert torch.equal(plain.global_model.params, named.global_model.params)
    assert not torch.equal(plain.global_model.params, balanced.global_model.params)
    (old,), (new,) = prepare([SMALL]), prepare([SMALL.replace(class_weights="none")])
    assert old.fingerprint == new.fingerprint != prepare([BALANCED])[0].fingerprint


def test_runs_with_and_without_share_a_stack_and_do_not_touch():
    both = fedsac.run_together([SMALL, BALANCED])
    for config, result in zip((SMALL, BALANCED), both, strict=True):
        alone = fedsac.run(config)
        assert (alone.global_model.params - result.global_model.params).abs().max() < 1e-9


@pytest.fixture(scope="module")
def silos(tmp_path_factory):
    return digits_silos(tmp_path_factory.mktemp("digits") / "silos", {"a": 60, "b": 80, "c": 150})


@pytest.mark.parametrize("more", [{}, {"momentum": 0.5}], ids=["stack", "any network"])
def test_sites_weigh_as_the_local_engine_does(more, silos, tmp_path):
    """By their own counts, as the server by V's in its steps: fedsac-plus has such."""
    settings = {"class_weights": "balanced", "method": "fedsac-plus", "hidden": (12,), **more}
    _, worst_difference = agreement(tmp_path, silos, **settings)
    assert worst_difference <= 1e-9


def test_a_private_site_declines(silos, tmp_path):
    """The weights are counts of the site's labels, which its noise does not cover."""
    folder = federation(tmp_path / "fed", silos, limits=True, class_weights="balanced", rounds=1)
    edit(folder / "b" / "site.toml", clip=1.0, noise=2.0)
    coordinate(folder)
    assert "(private): class weights are asked for" in (folder / "b" / "site.log").read_text()
