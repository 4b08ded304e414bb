"""Local training on this machine: the clients of any number of runs, trained together as stacks."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor

from fedsac.clients.population import Clients
from fedsac.compute import batches, training
from fedsac.compute.modules.inputs import draw_changes
from fedsac.compute.samples import Batches, Samples
from fedsac.core.module_layout import ModuleLayout
from fedsac.core.transfer import to_device
from fedsac.rng import stream


@dataclass(frozen=True)
class Job:
    """Train the models [N or 1, parameters] of N clients, of which each holds `neurons` [N, neurons] (None: all), for
    `steps` SGD steps (one number per client).

    `purpose` and `round` name the random streams of the batches: the same names draw the same batches. `progress` is
    the share of the training that is over, which a schedule of the learning rate goes by.
    """

    clients: Clients
    models: Tensor
    neurons: Tensor | None
    steps: tuple[int, ...]
    purpose: str
    round: int
    progress: float = 0.0


@dataclass(frozen=True)
class Trained:
    """The models [N, parameters] after a job, and on the CPU their mean losses [N] and whether each is finite [N]."""

    models: Tensor
    losses: Tensor
    finite: Tensor


def train(jobs: Sequence[Job]) -> list[Trained]:
    """Carry out the jobs; those with the same layout, batch size and pool as one stack."""
    return PendingTraining(jobs).wait()


class PendingTraining:
    """Jobs in progress. On a GPU they are queued on a CUDA stream of their own, while this process and the main stream
    continue with other runs; on a CPU they are done when the constructor returns."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for i, job in enumerate(jobs):
            c = job.clients
            groups[c.layout, c.batch, id(c.pool.x), job.models.dtype, job.neurons is None].append(i)
        self._stacks = [(numbers, _Stack([jobs[i] for i in numbers])) for numbers in groups.values()]

    def wait(self) -> list[Trained]:
        """The trained models of each job, in the order of the jobs."""
        trained_jobs = {
            i: trained for numbers, stacked in self._stacks for i, trained in zip(numbers, stacked.wait(), strict=True)
        }
        return [trained_jobs[i] for i in range(len(trained_jobs))]


class _Stack:
    """Jobs that are trained as one stack."""

    def __init__(self, jobs: list[Job]) -> None:
        # Kept until `wait`: memory that the training stream reads must not be freed before.
        self._jobs, self._sizes = jobs, [len(job.clients.names) for job in jobs]
        device, dtype = jobs[0].models.device, jobs[0].models.dtype
        rates = [job.clients.rate(job.progress) for job in jobs]
        lrs = [torch.full((n,), rate, dtype=dtype) for rate, n in zip(rates, self._sizes, strict=True)]
        # Sorted by descending number of steps, so that the members that still train come first (see `Batches`).
        steps = torch.tensor([count for job in jobs for count in job.steps])
        equal = bool((steps == steps[0]).all())
        order = steps.argsort(descending=True, stable=True)
        self._order = None if equal else to_device(order, device)
        self._training_inputs = _batches(jobs, device, dtype), to_device(torch.cat(lrs), device)
        if self._order is not None:
            counts = [int((steps > step).sum()) for step in range(int(steps.max()))]
            drawn, lr = self._training_inputs
            self._training_inputs = drawn.ordered(order, tuple(counts)), lr[self._order]
        with _training_stream(device) as stream:
            self._params, losses = self._train(*self._training_inputs)
            # One tensor for all jobs, so that a single transfer to the CPU waits for the device.
            self._losses_and_finite = torch.stack([losses.double(), training.finite(self._params, losses).double()])
            self._event = None if stream is None else stream.record_event()

    def _train(self, batches: Batches, lr: Tensor) -> tuple[Tensor, Tensor]:
        jobs, first = self._jobs, self._jobs[0].clients
        pools = [job.clients.pool for job in jobs]
        if len(jobs) == 1:
            # The clients of one run share their normalisation: scale and shift stay [1, features].
            models, neurons, scale, shift = jobs[0].models, jobs[0].neurons, pools[0].scale, pools[0].shift
        else:
            models = self._per_member([job.models for job in jobs])
            masks = [job.neurons for job in jobs if job.neurons is not None]
            neurons = torch.cat(masks) if masks else None
            scale, shift = self._per_member([p.scale for p in pools]), self._per_member([p.shift for p in pools])
        models, scale, shift = (t if len(t) == 1 else self._sorted_by_steps(t) for t in (models, scale, shift))
        samples = Samples(first.pool.x, first.pool.y, scale, shift)
        neurons = None if neurons is None else self._sorted_by_steps(neurons)
        trained, losses = training.train(first.layout, models, neurons, samples, batches, lr)
        if self._order is None:
            return trained, losses
        back = self._order.argsort()
        return trained[back], losses[back]

    def _sorted_by_steps(self, tensor: Tensor) -> Tensor:
        return tensor if self._order is None else tensor[self._order]

    def _per_member(self, tensors: list[Tensor]) -> Tensor:
        return torch.cat([t.expand(n, *t.shape[1:]) for t, n in zip(tensors, self._sizes, strict=True)])

    def wait(self) -> list[Trained]:
        if self._event is not None:
            main = torch.cuda.current_stream(self._params.device)
            main.wait_event(self._event)
            # The main stream uses them from here on: their memory must not be reused before it is done.
            self._params.record_stream(main)
            self._losses_and_finite.record_stream(main)
        losses, finite = self._losses_and_finite.cpu()
        parts = (self._params.split(self._sizes), losses.split(self._sizes), finite.bool().split(self._sizes))
        return [Trained(*trained) for trained in zip(*parts, strict=True)]


@contextmanager
def _training_stream(device: torch.device) -> Iterator["torch.cuda.Stream | None"]:
    """Run what is inside the `with` block on the CUDA stream for training, after the work queued so far; None on a
    CPU."""
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


def rows_drawn(job: Job) -> list[np.ndarray]:
    """The rows of the pool that each client of a job trains on at some step, in ascending order."""
    c = job.clients
    drawn = []
    for name, own, steps in zip(c.names, c.rows, job.steps, strict=True):
        rng = stream(c.seed, job.purpose, job.round, name)
        drawn.append(np.unique(own[batches.client_batches(len(own), steps, c.batch, rng)]))
    return drawn


def _batches(jobs: list[Job], device: torch.device, dtype: torch.dtype) -> Batches:
    """The batches of all members of a stack. A draw depends only on the seed, the round and the client: runs of several
    methods with the same clients share it, and it is drawn and copied to the device once."""
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
    wanted = (
        [own for job in drawn for own in job.clients.rows],
        [count for job in drawn for count in job.steps],
        jobs[0].clients.batch,
        [stream(job.clients.seed, job.purpose, job.round, name) for job in drawn for name in job.clients.names],
    )
    if is_private(jobs[0].clients):
        rows, weight = batches.drawn_batches(*wanted)
    else:
        weights = [job.clients.sample_weights(own) for job in drawn for own in job.clients.rows]
        rows, weight = batches.stacked_batches(*wanted, weights)
    on_device = to_device(torch.from_numpy(rows), device), to_device(torch.from_numpy(weight).to(dtype), device)
    augment, seeds = _drawn_for_modules(drawn, rows.shape, device)
    sizes = [min(job.clients.batch, len(own)) for job in drawn for own in job.clients.rows]
    made = Batches(*on_device, augment=augment, seeds=seeds, sizes=torch.tensor(sizes))
    return made.ordered(torch.tensor(which)) if len(drawn) < len(jobs) else made


def is_private(clients: Clients) -> bool:
    """Whether clients train with differential privacy."""
    return isinstance(clients.layout, ModuleLayout) and clients.layout.recipe.noise is not None


def _drawn_for_modules(
    jobs: list[Job], shape: tuple[int, ...], device: torch.device
) -> tuple[Tensor | None, Tensor | None]:
    """How images are augmented, and the seeds of what networks draw themselves: nothing for perceptrons."""
    layout, augment = jobs[0].clients.layout, None
    if not isinstance(layout, ModuleLayout):
        return None, None
    clients = [(job, i) for job in jobs for i in range(len(job.clients.names))]

    def own_stream(purpose: str, job: Job, i: int) -> np.random.Generator:
        return stream(job.clients.seed, purpose, job.purpose, job.round, job.clients.names[i])

    if layout.recipe.augment:
        changes = np.zeros((*shape, 3), dtype=np.int64)
        for k, (job, i) in enumerate(clients):
            # As many as the client needs, whoever else is in the stack.
            steps, size = job.steps[i], min(job.clients.batch, len(job.clients.rows[i]))
            changes[:steps, k, :size] = draw_changes(layout, steps, size, own_stream("augmentation", job, i))
        augment = to_device(torch.from_numpy(changes), device)
    # Also for a module without a dropout layer: its forward may draw all the same, and nothing tells which do.
    return augment, torch.tensor([own_stream("dropout", job, i).integers(2**62) for job, i in clients])
