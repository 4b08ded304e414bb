"""Importance of the units of any network (Eq. 3): the increase of the validation loss without a unit, exact or by its
first-order approximation.

A unit does nothing once the entries by which the rest of the network reads it are 0 (`UnitTable.readers`), so these
alone are changed. The first-order (Taylor) approximation of that increase is minus the sum, over these entries, of
entry times gradient: one forward and one backward pass for all units, where exact importance takes a forward pass for
each: from the first layer that reads the unit, since the layers before it say what they say with it (`Replayed`).
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedsac.compute.replayed import Replayed
from fedsac.core import given
from fedsac.core.allocation import check_finite
from fedsac.core.unit_table import UnitTable

EXACT_SAMPLES = 2_000_000  # forward passes of one sample: as many exact importance may take where nobody chooses
CHUNK_SAMPLES = 256  # at a time
GPU_CHUNK_SAMPLES = 2048  # at a time without gradients on a GPU, for which 256 are few

Loss = Callable[[Tensor, Tensor], Tensor]


def unit_importance(
    module: nn.Module,
    units: UnitTable,
    x: Tensor | np.ndarray | Sequence[Any],
    y: Tensor | np.ndarray | Sequence[Any],
    *,
    exact: bool | None = None,
    loss: Loss | None = None,
) -> Tensor:
    """Increase of the mean loss on samples x [n, ...] with targets y [n, ...] when a unit does nothing, for each unit:
    float64 [units].

    `exact`: one pass for each unit, or the first-order approximation; None: exact where it takes at most
    `EXACT_SAMPLES` passes of a sample. `loss` of outputs and targets is the mean over samples; cross-entropy unless
    another is given. The module is evaluated as it is in `eval` mode, and not changed.
    """
    given.module("unit_importance", module)
    inputs, targets = given.samples("importance", x, y)
    trial = copy.deepcopy(module).eval()
    inputs, targets = given.placed(trial, x, inputs), given.placed(trial, y, targets)
    exact = units.units * len(targets) <= EXACT_SAMPLES if exact is None else exact
    found = (_exact if exact else _first_order)(trial, units, inputs, targets, loss or functional.cross_entropy)
    check_finite(found)
    return found


@torch.no_grad()
def _exact(module: nn.Module, units: UnitTable, x: Tensor, y: Tensor, loss: Loss) -> Tensor:
    chunk = GPU_CHUNK_SAMPLES if x.is_cuda else CHUNK_SAMPLES
    read = _read_by(module, units)
    passes = Replayed(module)
    increases = torch.zeros(units.units, dtype=torch.float64, device=x.device)
    starts: dict[int, int] = {}
    for x_part, y_part in zip(x.split(chunk), y.split(chunk), strict=True):

        def mean_loss(said: Tensor, y_part: Tensor = y_part) -> Tensor:
            """A float64 number on the device of the samples: nobody waits for it."""
            return loss(said, y_part).double() * (len(y_part) / len(y))

        whole = mean_loss(passes.first(x_part))
        starts = starts or _starts(passes, read, x_part)
        for unit, entries in read.items():
            with _without(entries):
                increases[unit] += mean_loss(passes.again(x_part, starts[unit])) - whole
    return increases.cpu()


Entries = list[tuple[Tensor, int, Tensor]]
"""By which a unit is read: tensors, an axis of each, and places on it."""


def _read_by(module: nn.Module, units: UnitTable) -> dict[int, Entries]:
    tensors = dict(module.named_parameters())
    read: dict[int, Entries] = {}
    for name, axis, slots in _readers(units, tensors):
        for unit in slots[slots >= 0].unique().tolist():
            at = (slots == unit).nonzero().squeeze(1).to(tensors[name].device)
            read.setdefault(unit, []).append((tensors[name], axis, at))
    return read


def _starts(passes: Replayed, read: Mapping[int, Entries], x: Tensor) -> dict[int, int]:
    """The call with which a pass without each unit may begin: all of them are tried before they are trusted, on one
    unit each, to the last bit."""
    starts = {unit: min(passes.start(tensor) for tensor, _, _ in entries) for unit, entries in read.items()}
    for unit in {start: unit for unit, start in starts.items()}.values():
        with _without(read[unit]):
            said, expected = passes.again(x, starts[unit]), passes.again(x, 0)
        if not torch.equal(said, expected):
            return dict.fromkeys(starts, 0)  # a layer is read behind its back
    return starts


@contextmanager
def _without(entries: Entries) -> Iterator[None]:
    """Inside of the `with` block a unit does nothing: the entries by which it is read are 0."""
    before = [tensor.index_select(axis, at) for tensor, axis, at in entries]
    for tensor, axis, at in entries:
        tensor.index_fill_(axis, at, 0)
    yield
    for (tensor, axis, at), values in zip(entries, before, strict=True):
        tensor.index_copy_(axis, at, values)


def _first_order(module: nn.Module, units: UnitTable, x: Tensor, y: Tensor, loss: Loss) -> Tensor:
    tensors = dict(module.named_parameters())
    readers = list(_readers(units, tensors))
    names = list(dict.fromkeys(name for name, _, _ in readers))
    if not names:
        return torch.zeros(units.units, dtype=torch.float64)
    for name, tensor in tensors.items():
        tensor.requires_grad_(name in names)
    total = {name: torch.zeros_like(tensors[name], dtype=torch.float64) for name in names}
    for x_part, y_part in zip(x.split(CHUNK_SAMPLES), y.split(CHUNK_SAMPLES), strict=True):
        mean = loss(module(x_part), y_part)
        for name, gradient in zip(names, torch.autograd.grad(mean, [tensors[n] for n in names]), strict=True):
            total[name] += gradient.double() * (len(y_part) / len(y))
    increases = torch.zeros(units.units + 1, dtype=torch.float64)  # the last: slots of no unit
    for name, axis, slots in readers:
        change = -(tensors[name].detach().double() * total[name]).movedim(axis, 0).flatten(1).sum(1)
        increases.index_add_(0, slots % (units.units + 1), change.cpu())
    return increases[:-1]


def _readers(units: UnitTable, tensors: dict[str, nn.Parameter]) -> Iterator[tuple[str, int, Tensor]]:
    """Parameters and axes that read units, and the units of their slots. A unit that no parameter reads, as one that is
    only summed up, does nothing once all its own entries are 0."""
    read = torch.zeros(units.units + 1, dtype=torch.bool)
    for name, axis in units.readers:
        slots = units.axes[name][axis]
        if slots is not None and name in tensors:
            read[slots] = True
            yield name, axis, slots
    read[-1] = True  # no unit
    for name in tensors:
        for axis, slots in enumerate(units.axes.get(name, ())):
            if slots is not None and not read[slots].all():
                yield name, axis, torch.where(read[slots], -1, slots)
