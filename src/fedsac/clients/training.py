"""The local engine: the clients of any number of runs on this machine, trained as stacks."""

import math
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor

from fedsac.compute import batches, evaluation, training
from fedsac.core.transfer import moved
from fedsac.core.units import Layout
from fedsac.methods.base import Rewards, Updates
from fedsac.rng import stream

SHARE = 0.25  # of a device's memory for the runs that train side by side: two such parts, data, and others' states


@dataclass(frozen=True)
class Clients:
    """The clients of one run: the `rows` of the pool that each owns, and how they train."""

    layout: Layout
    names: tuple[str, ...]
    rows: tuple[np.ndarray, ...]
    pool: training.Samples
    lr: float
    batch: int
    local_steps: int
    seed: int

    def epoch(self) -> tuple[int, ...]:
        """Steps of one epoch, for each client."""
        return tuple(max(1, len(own) // self.batch) for own in self.rows)


@dataclass(frozen=True)
class Job:
    """Train `models` [N or 1, parameters], cut to `neurons`, for `steps` (one number per client).

    `purpose` and `round` name the random streams: the same names, the same batches.
    """

    clients: Clients
    models: Tensor
    neurons: Tensor | None
    steps: tuple[int, ...]
    purpose: str
    round: int


@dataclass(frozen=True)
class Trained:
    """Models [N, parameters] after a job; on the CPU, their mean loss [N] and which of them are still numbers [N]."""

    models: Tensor
    losses: Tensor
    finite: Tensor


def train(jobs: Sequence[Job]) -> list[Trained]:
    """Carry out the jobs, as one stack wherever shape, batch size and pool are the same."""
    return Begun(jobs).done()


class Begun:
    """Jobs under way. A GPU trains them in a stream of its own, while this process and the main stream go on with other
    runs; a CPU has trained them when this is made."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for i, job in enumerate(jobs):
            c = job.clients
            groups[c.layout, c.batch, id(c.pool.x), job.models.dtype, job.neurons is None].append(i)
        self._stacks = [(numbers, _Stack([jobs[i] for i in numbers])) for numbers in groups.values()]

    def done(self) -> list[Trained]:
        found = {
            i: trained for numbers, stacked in self._stacks for i, trained in zip(numbers, stacked.done(), strict=True)
        }
        return [found[i] for i in range(len(found))]


def fitting(runs: Sequence[Clients], itemsize: int, device: torch.device) -> list[list[int]]:
    """The runs, by number, in parts that a device's memory holds side by side while they train.

    By what the device has in all, not by what is free just now: a resumed job must cut as the first one did.
    """
    needed = []
    for clients in runs:
        layout = clients.layout
        # Received, in work, trained, and what a method makes of it; activations and batches of a step.
        numbers = 6 * layout.parameters + 3 * clients.batch * sum(layout.sizes)
        needed.append(float(len(clients.names) * numbers * itemsize))
    budget = _memory(device) * SHARE
    # On a GPU two parts at least, so that one trains while the server's step of the other is taken.
    count = max(math.ceil(sum(needed) / budget), 2 if device.type == "cuda" else 1)
    while True:
        # As equal as they can be: a run belongs to the part in which its middle lies.
        middles = np.cumsum(needed) - np.array(needed) / 2
        places = (middles * count / sum(needed)).astype(int)
        parts = [part for place in range(count) if (part := np.flatnonzero(places == place).tolist())]
        if all(len(part) == 1 or sum(needed[i] for i in part) <= budget for part in parts):
            return parts
        count += 1


def _memory(device: torch.device) -> int:
    """Bytes of memory a device has."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 4 << 30


class _Stack:
    """Jobs that train as one stack."""

    def __init__(self, jobs: list[Job]) -> None:
        # Kept until `done`: what the side stream reads must not be given away before.
        self._jobs, self._sizes = jobs, [len(job.clients.names) for job in jobs]
        device, dtype = jobs[0].models.device, jobs[0].models.dtype
        rates = [torch.full((n,), job.clients.lr, dtype=dtype) for job, n in zip(jobs, self._sizes, strict=True)]
        # Who has fewer steps stands further back, so that whoever is still at work comes first.
        steps = torch.tensor([count for job in jobs for count in job.steps])
        equal = bool((steps == steps[0]).all())
        self._order = None if equal else moved(steps.argsort(descending=True, stable=True), device)
        self._given = _batches(jobs, device, dtype), moved(torch.cat(rates), device)
        if self._order is not None:
            counts = [int((steps > step).sum()) for step in range(int(steps.max()))]
            drawn, lr = self._given
            ordered = training.Batches(drawn.rows[:, self._order], drawn.weight[:, self._order], tuple(counts))
            self._given = ordered, lr[self._order]
        with _aside(device) as stream:
            self._params, losses = self._train(*self._given)
            # Brought to the CPU once for all jobs: every transfer waits for the device.
            self._told = torch.stack([losses.double(), training.finite(self._params, losses).double()])
            self._event = None if stream is None else stream.record_event()

    def _train(self, batches: training.Batches, lr: Tensor) -> tuple[Tensor, Tensor]:
        jobs, first = self._jobs, self._jobs[0].clients
        pools = [job.clients.pool for job in jobs]
        if len(jobs) == 1:
            # One run's clients normalise alike: a single row serves them all.
            models, neurons, scale, shift = jobs[0].models, jobs[0].neurons, pools[0].scale, pools[0].shift
        else:
            models = self._each([job.models for job in jobs])
            masks = [job.neurons for job in jobs if job.neurons is not None]
            neurons = torch.cat(masks) if masks else None
            scale, shift = self._each([p.scale for p in pools]), self._each([p.shift for p in pools])
        models, scale, shift = (t if len(t) == 1 else self._ordered(t) for t in (models, scale, shift))
        samples = training.Samples(first.pool.x, first.pool.y, scale, shift)
        neurons = None if neurons is None else self._ordered(neurons)
        trained, losses = training.train(first.layout, models, neurons, samples, batches, lr)
        if self._order is None:
            return trained, losses
        back = self._order.argsort()
        return trained[back], losses[back]

    def _ordered(self, tensor: Tensor) -> Tensor:
        return tensor if self._order is None else tensor[self._order]

    def _each(self, tensors: list[Tensor]) -> Tensor:
        return torch.cat([t.expand(n, *t.shape[1:]) for t, n in zip(tensors, self._sizes, strict=True)])

    def done(self) -> list[Trained]:
        if self._event is not None:
            main = torch.cuda.current_stream(self._params.device)
            main.wait_event(self._event)
            # From here on the main stream uses them, so their memory is not the side stream's to give away.
            self._params.record_stream(main)
            self._told.record_stream(main)
        losses, finite = self._told.cpu()
        parts = (self._params.split(self._sizes), losses.split(self._sizes), finite.bool().split(self._sizes))
        return [Trained(*trained) for trained in zip(*parts, strict=True)]


@contextmanager
def _aside(device: torch.device) -> Iterator["torch.cuda.Stream | None"]:
    """The stream in which a GPU trains; None on a CPU."""
    if device.type != "cuda":
        yield None
        return
    stream = _side_stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        yield stream


@cache
def _side_stream(device: torch.device) -> "torch.cuda.Stream":
    return torch.cuda.Stream(device)


def _batches(jobs: list[Job], device: torch.device, dtype: torch.dtype) -> training.Batches:
    """What every member trains on. A draw depends on the seed, the round and the client alone: runs of several methods
    with the same clients share it, and it is made and brought to the device once."""
    draws: dict[tuple[object, ...], tuple[int, Job]] = {}
    place = 0
    which: list[int] = []
    for job in jobs:
        key = (id(job.clients), job.purpose, job.round, job.steps)
        if key not in draws:
            draws[key] = place, job
            place += len(job.clients.names)
        start = draws[key][0]
        which += range(start, start + len(job.clients.names))
    drawn = [job for _, job in draws.values()]
    rows, weight = batches.stacked(
        [own for job in drawn for own in job.clients.rows],
        [count for job in drawn for count in job.steps],
        jobs[0].clients.batch,
        [stream(job.clients.seed, job.purpose, job.round, name) for job in drawn for name in job.clients.names],
    )
    on_device = moved(torch.from_numpy(rows), device), moved(torch.from_numpy(weight).to(dtype), device)
    if len(drawn) < len(jobs):
        index = moved(torch.tensor(which), device)
        on_device = on_device[0][:, index], on_device[1][:, index]
    return training.Batches(*on_device)


Absent = Callable[[int, str], bool]
"""Does this client (by name) drop out of this round?"""


Work = tuple[Clients, Rewards, int]
"""One run's round: its clients, what they were given, and which round it is."""


class Round:
    """One round of local training for each run, begun: `updates` are what the clients send back.

    Whoever is `absent` does not answer, and neither does a client whose training ended in NaN or infinity: it is set
    aside for this round, and named in `Updates.diverged`.
    """

    def __init__(self, work: Sequence[Work], absent: Absent) -> None:
        self._work, self._absent = work, absent
        self._begun = Begun(
            [
                Job(clients, rewards.models, rewards.neurons, (clients.local_steps,) * len(clients.names), "batches", i)
                for clients, rewards, i in work
            ]
        )

    def updates(self) -> list[Updates]:
        return [self._answer(*each) for each in zip(self._work, self._begun.done(), strict=True)]

    def _answer(self, work: Work, trained: Trained) -> Updates:
        clients, rewards, round = work
        finite = trained.finite.tolist()
        present = [i for i, name in enumerate(clients.names) if not self._absent(round, name)]
        answered = tuple(i for i in present if finite[i])
        return Updates(
            local_losses=_local_losses(clients, rewards, answered) if rewards.local_losses else None,
            batch_losses=_batch_losses(clients, trained.models, answered) if rewards.batch_losses else None,
            round=round,
            clients=answered,
            params=trained.models if len(answered) == len(finite) else trained.models[list(answered)],
            rewards=rewards,
            losses=tuple(trained.losses.tolist()),
            diverged=tuple(i for i in present if not finite[i]),
        )


def train_round(work: Sequence[Work], absent: Absent) -> list[Updates]:
    """One round of local training for each run: what its clients send back."""
    return Round(work, absent).updates()


def _batch_losses(clients: Clients, models: Tensor, answered: tuple[int, ...]) -> list[Tensor]:
    """What a client reports of its trained model: the loss on each batch of its own data."""
    own = [clients.rows[i] for i in answered]
    return evaluation.batch_losses(clients.layout, models[list(answered)], clients.pool, own)


def _local_losses(clients: Clients, rewards: Rewards, answered: tuple[int, ...]) -> Tensor:
    """What a client reports of the model it received: the mean loss on its own data."""
    models = rewards.models if len(rewards.models) == 1 else rewards.models[list(answered)]
    return evaluation.mean_losses(clients.layout, models, clients.pool, [clients.rows[i] for i in answered])


def personalised(runs: Sequence[Work]) -> list[Tensor]:
    """The models [N, parameters] that each run's clients end with: for some methods, after one epoch more on their own
    data; all runs' epochs side by side."""
    extra = [i for i, (_, rewards, _) in enumerate(runs) if rewards.extra_epoch]
    jobs = [
        Job(clients, rewards.models, rewards.neurons, clients.epoch(), "extra epoch", round)
        for clients, rewards, round in (runs[i] for i in extra)
    ]
    models = [rewards.models for _, rewards, _ in runs]
    for i, trained in zip(extra, train(jobs), strict=True):
        # Who diverges in that epoch keeps the model it was given.
        finite = moved(trained.finite.unsqueeze(1), models[i].device)
        models[i] = torch.where(finite, trained.models, models[i])
    return models
