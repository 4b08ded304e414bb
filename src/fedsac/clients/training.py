"""Local training on this machine: the clients of any number of runs, trained as stacks."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from fedsac.clients.population import Clients
from fedsac.compute import batches, training
from fedsac.compute.samples import Batches, Samples
from fedsac.core.transfer import to_device
from fedsac.rng import stream


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
    return PendingTraining(jobs).wait()


class PendingTraining:
    """Jobs under way. A GPU trains them in a stream of its own, while this process and the main stream go on with other
    runs; a CPU has trained them when this is made."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for i, job in enumerate(jobs):
            c = job.clients
            groups[c.layout, c.batch, id(c.pool.x), job.models.dtype, job.neurons is None].append(i)
        self._stacks = [(numbers, _Stack([jobs[i] for i in numbers])) for numbers in groups.values()]

    def wait(self) -> list[Trained]:
        found = {
            i: trained for numbers, stacked in self._stacks for i, trained in zip(numbers, stacked.wait(), strict=True)
        }
        return [found[i] for i in range(len(found))]


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
        self._order = None if equal else to_device(steps.argsort(descending=True, stable=True), device)
        self._given = _batches(jobs, device, dtype), to_device(torch.cat(rates), device)
        if self._order is not None:
            counts = [int((steps > step).sum()) for step in range(int(steps.max()))]
            drawn, lr = self._given
            ordered = Batches(drawn.rows[:, self._order], drawn.weight[:, self._order], tuple(counts))
            self._given = ordered, lr[self._order]
        with _aside(device) as stream:
            self._params, losses = self._train(*self._given)
            # Brought to the CPU once for all jobs: every transfer waits for the device.
            self._told = torch.stack([losses.double(), training.finite(self._params, losses).double()])
            self._event = None if stream is None else stream.record_event()

    def _train(self, batches: Batches, lr: Tensor) -> tuple[Tensor, Tensor]:
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
        samples = Samples(first.pool.x, first.pool.y, scale, shift)
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

    def wait(self) -> list[Trained]:
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


def _batches(jobs: list[Job], device: torch.device, dtype: torch.dtype) -> Batches:
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
    rows, weight = batches.stacked_batches(
        [own for job in drawn for own in job.clients.rows],
        [count for job in drawn for count in job.steps],
        jobs[0].clients.batch,
        [stream(job.clients.seed, job.purpose, job.round, name) for job in drawn for name in job.clients.names],
    )
    on_device = to_device(torch.from_numpy(rows), device), to_device(torch.from_numpy(weight).to(dtype), device)
    if len(drawn) < len(jobs):
        index = to_device(torch.tensor(which), device)
        on_device = on_device[0][:, index], on_device[1][:, index]
    return Batches(*on_device)
