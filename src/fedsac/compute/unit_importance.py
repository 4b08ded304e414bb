"""Importance of the units of any network (Eq. 3): the increase of the validation loss without a unit, exact or by its
first-order approximation.

A unit does nothing once the entries by which the rest of the network reads it are 0 (`UnitTable.readers`), so these
alone are changed. The first-order (Taylor) approximation of that increase is minus the sum, over these entries, of
entry times gradient: one forward and one backward pass for all units, where exact importance takes a forward pass for
each.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

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
    tensors = dict(module.named_parameters())
    readers = [(tensors[name], axis, slots) for name, axis, slots in _readers(units, tensors)]
    whole = _mean_loss(module, x, y, loss)
    increases = torch.zeros(units.units, dtype=torch.float64, device=x.device)
    for unit in range(units.units):
        before = []
        for tensor, axis, slots in readers:
            if len(at := (slots == unit).nonzero().squeeze(1).to(tensor.device)):
                before.append((tensor, axis, at, tensor.index_select(axis, at)))
                tensor.index_fill_(axis, at, 0)
        if before:
            increases[unit] = _mean_loss(module, x, y, loss) - whole
        for tensor, axis, at, entries in before:
            tensor.index_copy_(axis, at, entries)
    return increases.cpu()


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


def _mean_loss(module: nn.Module, x: Tensor, y: Tensor, loss: Loss) -> Tensor:
    """A float64 number on the device of the samples: nobody waits for it."""
    chunk = GPU_CHUNK_SAMPLES if x.is_cuda else CHUNK_SAMPLES
    total = torch.zeros((), dtype=torch.float64, device=x.device)
    for x_part, y_part in zip(x.split(chunk), y.split(chunk), strict=True):
        total += loss(module(x_part), y_part).double() * len(y_part)
    return total / len(y)
