"""Gradient inversion against what a client of a local run sends: samples sought whose gradient is the client's step
("Deep Leakage from Gradients", Zhu et al. 2019: `benchmarks.inversion.optimisation` without a site in between). Labels
are known to the attacker, and the model is the one that an honest server sends. An error is the distance of a sample to
the nearest guess by the sample's length; beside it stands what a guesser gets who hands in public digits.

`benchmarks.inversion` has the attacks of a coordinator that makes up the model, against a site and its limits.
"""

from typing import Any

import numpy as np
import torch

from benchmarks.inversion import CLOSE, matching, nearest
from benchmarks.security.membership import module_of, prepared_clients
from fedsac.clients.training import Job, train
from fedsac.config import Config
from fedsac.data.catalogue import load
from fedsac.data.split import split
from fedsac.models.network import Network

SENT = {  # what is sent: samples of the client, size of a batch, steps
    "one step, 1 sample": (1, 1, 1),
    "one step, 8 samples": (8, 8, 1),
    "one step, 32 samples": (32, 32, 1),
    "one round: 20 steps, 100 samples": (100, 32, 20),
    "alone: 1000 steps, 100 samples": (100, 32, 1000),
}


def measured(seed: int, **privacy: Any) -> list[dict[str, Any]]:
    """For each of `SENT`: the share of samples recovered within 1 %, the smallest and the median error, and the median
    error of public digits as guesses. `privacy` are settings of the run."""
    dealt = split(load("digits", None, label="label", quiet=True), "iid", 2, None, seed)
    mixed = np.random.default_rng([18, seed]).permutation(np.concatenate(dealt.rows))
    found = []
    for sent, (samples, batch, steps) in SENT.items():
        rows, others = mixed[:samples], mixed[-500:]
        config = Config(hidden=(200,), seed=seed, batch=batch, local_steps=steps, rounds=1, dtype="float64", **privacy)
        ready = prepared_clients(config, dealt, [rows, rows])
        start = ready.initial[None].expand(2, -1)
        after = train([Job(ready.clients, start, None, (steps, steps), "batches", 0)])[0].models[0]
        model, trained = (Network.of(module_of(ready, one)) for one in (ready.initial, after))
        change = (trained.params - model.params).detach() / (config.lr * steps)
        pool = ready.clients.pool
        x, public = (pool.x[torch.from_numpy(part)] * pool.scale + pool.shift for part in (rows, others))
        first = torch.randn(x.shape, generator=torch.Generator().manual_seed(seed), dtype=x.dtype)
        model = Network(model.layout, model.params.detach())
        errors = nearest(x, matching(model, change, pool.y[torch.from_numpy(rows)].long(), first, samples))
        found.append(
            {
                "sent": sent,
                "recovered": float((errors <= CLOSE).double().mean()),
                "least": float(errors.min()),
                "median": float(errors.median()),
                "public": float(nearest(x, public).median()),
            }
        )
    return found
