"""Attacks that know how handed-in models are compared (docs/hardening.md#originals): a copy is close to its original in
weights or in what it says of V. A student that was trained from the public weights on what a teacher says is close in
neither, but nearly as good."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from fedsac.attacks.base import Attack, End, Holding, Standing
from fedsac.attacks.scores import Launder, richest
from fedsac.clients.population import Clients
from fedsac.clients.training import Job, train
from fedsac.compute import evaluation
from fedsac.compute.samples import Samples
from fedsac.rng import stream

MIXTURES = 20.0  # that the teacher is asked about, for each sample of one's own


class BorrowDistilled(Attack):
    """Hands in, as trained alone, a student of the best honest client's model, which somebody gave away: trained from
    the public initial weights on what that model says of mixtures of its own samples. Its rounds are honest."""

    default = MIXTURES

    def submit(self, standing: Standing, client: int) -> Tensor:
        teacher = standing.models[richest(standing)]
        whole = torch.ones(standing.clients.layout.neurons, dtype=torch.bool, device=teacher.device)
        return student(standing.clients, standing.initial, client, Holding(teacher, whole), self.number or 0)


class LaunderDistilled(Launder):
    """Leaves after half of the rounds and comes back with a student of its own reward as trained alone."""

    default = MIXTURES

    def resubmit(self, end: End, common: Tensor | None, client: int) -> Tensor:
        return student(end.clients, end.initial, client, end.reward(client), self.number or 0)


def student(clients: Clients, initial: Tensor, client: int, teacher: Holding, mixtures: float) -> Tensor:
    """A model [parameters] trained from the initial weights, for as many steps as a client trains in the whole run, on
    the classes that the teacher gives to so many mixtures of two samples for each sample of the client's own."""
    pool, own = clients.pool, clients.rows[client]
    rng = stream(clients.seed, "distilling", clients.names[client])
    count = max(1, round(mixtures * len(own)))
    pairs = torch.from_numpy(rng.choice(own, (2, count))).to(pool.x.device)
    x = _mixed(pool.x[pairs[0]], pool.x[pairs[1]], rng)
    y = _classes(clients, teacher, Samples(x, pool.y[pairs[0]], pool.scale, pool.shift))
    learner = replace(
        clients,
        names=(clients.names[client],),
        rows=(np.arange(count),),
        pool=Samples(x, y, pool.scale, pool.shift),
        labels=None,
    )
    steps = clients.rounds * clients.local_steps
    return train([Job(learner, initial.unsqueeze(0), None, (steps,), "distilling", 0)])[0].models[0]


def _mixed(a: Tensor, b: Tensor, rng: np.random.Generator) -> Tensor:
    """Samples [n, features] between those of `a` and `b`; tokens are each one of the two."""
    share = torch.from_numpy(rng.random((len(a), 1))).to(a.device)
    if a.dtype == torch.int64:
        return torch.where(torch.from_numpy(rng.random(a.shape)).to(a.device) < share, a, b)
    between = torch.lerp(b.double(), a.double(), share)
    return (between if a.is_floating_point() else between.round()).to(a.dtype)


def _classes(clients: Clients, teacher: Holding, samples: Samples) -> Tensor:
    """The class [n] that the teacher gives to each sample."""
    said = evaluation.logits(clients.layout, teacher.model.unsqueeze(0), teacher.neurons.unsqueeze(0), samples)
    return said[0].argmax(1).to(samples.y)
