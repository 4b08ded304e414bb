"""The local engine: the clients of any number of runs on this machine, trained as stacks."""

import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedsac import batches, stack
from fedsac.methods.base import Rewards, Updates
from fedsac.models.neurons import Layout
from fedsac.rng import stream

SHARE = 0.5  # of a device's memory for the runs that train side by side; the rest is for data and other runs' states
IDLE = 16


@dataclass(frozen=True)
class Clients:
    """The clients of one run: the `rows` of the pool that each owns, and how they train."""

    layout: Layout
    names: tuple[str, ...]
    rows: tuple[np.ndarray, ...]
    pool: stack.Samples
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
    """Carry out the jobs, as one stack wherever shape, batch size, steps and pool are the same."""
    groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for i, job in enumerate(jobs):
        c = job.clients
        longest = max(job.steps)
        # Epochs of unequal clients differ from seed to seed: a few idle steps are cheaper than a stack for each.
        steps = longest if longest == min(job.steps) else -(-longest // IDLE) * IDLE
        key = (c.layout, c.batch, steps, id(c.pool.x), job.models.dtype, job.neurons is None)
        groups[key].append(i)
    done: dict[int, Trained] = {}
    for members in groups.values():
        done |= zip(members, _stack([jobs[i] for i in members]), strict=True)
    return [done[i] for i in range(len(jobs))]


def fitting(runs: Sequence[Clients], itemsize: int, device: torch.device) -> list[list[int]]:
    """The runs, by number, in parts that a device's memory holds side by side while they train.

    By what the device has in all, not by what is free just now: a resumed job must cut as the first one did.
    """
    parts: list[list[int]] = []
    budget, used = _memory(device) * SHARE, 0.0
    for i, clients in enumerate(runs):
        layout = clients.layout
        # Received, in work, trained, and what a method makes of it; activations and batches of a step.
        numbers = 6 * layout.parameters + 3 * clients.batch * sum(layout.sizes)
        needed = float(len(clients.names) * numbers * itemsize)
        if not parts or used + needed > budget:
            parts.append([])
            used = 0.0
        parts[-1].append(i)
        used += needed
    return parts


def _memory(device: torch.device) -> int:
    """Bytes of memory a device has."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 4 << 30


def _stack(jobs: list[Job]) -> list[Trained]:
    first, sizes = jobs[0].clients, [len(job.clients.names) for job in jobs]
    device, dtype = jobs[0].models.device, jobs[0].models.dtype

    def each(tensors: list[Tensor]) -> Tensor:
        return torch.cat([t.expand(n, *t.shape[1:]) for t, n in zip(tensors, sizes, strict=True)])

    alone = len(jobs) == 1
    models = jobs[0].models if alone else each([job.models for job in jobs])
    neurons = None if jobs[0].neurons is None else torch.cat([job.neurons for job in jobs if job.neurons is not None])
    pools = [job.clients.pool for job in jobs]
    # One run's clients normalise alike: a single row serves them all.
    scale = pools[0].scale if alone else each([p.scale for p in pools])
    shift = pools[0].shift if alone else each([p.shift for p in pools])
    lr = torch.cat([torch.full((n,), job.clients.lr, dtype=dtype) for job, n in zip(jobs, sizes, strict=True)])
    params, losses = stack.train(
        first.layout,
        models,
        neurons,
        stack.Samples(first.pool.x, first.pool.y, scale, shift),
        _batches(jobs, device, dtype),
        lr.to(device),
    )
    # Brought to the CPU once for all jobs: every transfer waits for the device.
    losses, finite = torch.stack([losses.double(), stack.finite(params, losses).double()]).cpu()
    finite = finite.bool()
    return [
        Trained(*parts) for parts in zip(params.split(sizes), losses.split(sizes), finite.split(sizes), strict=True)
    ]


def _batches(jobs: list[Job], device: torch.device, dtype: torch.dtype) -> stack.Batches:
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
    on_device = torch.from_numpy(rows).to(device), torch.from_numpy(weight).to(device, dtype)
    if len(drawn) < len(jobs):
        index = torch.tensor(which, device=device)
        on_device = on_device[0][:, index], on_device[1][:, index]
    return stack.Batches(*on_device)


Absent = Callable[[int, str], bool]
"""Does this client (by name) drop out of this round?"""


def train_round(work: Sequence[tuple[Clients, Rewards, int]], absent: Absent) -> list[Updates]:
    """One round of local training for each run (clients, what they were given, the round): what they send back.

    Whoever is `absent` does not answer, and neither does a client whose training ended in NaN or infinity: it is set
    aside for this round, and named in `Updates.diverged`.
    """
    jobs = [
        Job(
            clients,
            rewards.models,
            rewards.neurons,
            (clients.local_steps,) * len(clients.names),
            "batches",
            round,
        )
        for clients, rewards, round in work
    ]
    answers = []
    for (clients, rewards, round), trained in zip(work, train(jobs), strict=True):
        finite = trained.finite.tolist()
        present = [i for i, name in enumerate(clients.names) if not absent(round, name)]
        answered = tuple(i for i in present if finite[i])
        answers.append(
            Updates(
                local_losses=_local_losses(clients, rewards, answered) if rewards.local_losses else None,
                batch_losses=_batch_losses(clients, trained.models, answered) if rewards.batch_losses else None,
                round=round,
                clients=answered,
                params=trained.models if len(answered) == len(finite) else trained.models[list(answered)],
                rewards=rewards,
                losses=tuple(trained.losses.tolist()),
                diverged=tuple(i for i in present if not finite[i]),
            )
        )
    return answers


def _batch_losses(clients: Clients, models: Tensor, answered: tuple[int, ...]) -> list[Tensor]:
    """What a client reports of its trained model: the loss on each batch of its own data."""
    own = [clients.rows[i] for i in answered]
    return stack.batch_losses(clients.layout, models[list(answered)], clients.pool, own)


def _local_losses(clients: Clients, rewards: Rewards, answered: tuple[int, ...]) -> Tensor:
    """What a client reports of the model it received: the mean loss on its own data."""
    models = rewards.models if len(rewards.models) == 1 else rewards.models[list(answered)]
    return stack.mean_losses(clients.layout, models, clients.pool, [clients.rows[i] for i in answered])


def personalised(runs: Sequence[tuple[Clients, Rewards, int]]) -> list[Tensor]:
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
        finite = trained.finite.unsqueeze(1).to(models[i].device)
        models[i] = torch.where(finite, trained.models, models[i])
    return models
