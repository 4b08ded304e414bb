"""Find the units of any module: trace it, gather what goes together, prove it."""

import re
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from fedsac.core import given
from fedsac.core.unit_table import UnitGroup, UnitTable, WholeGroup
from fedsac.errors import FedsacError
from fedsac.models.finding.proof import proved
from fedsac.models.finding.rules import KERNEL
from fedsac.models.finding.tracing import Traced

Where = tuple[tuple[str, int, int], ...]  # tensor, axis, number of slots there


def find_units(module: nn.Module, *inputs: Any) -> UnitTable:
    """The units of a module, found by tracing it on these inputs and proved on them: cut, they leave a smaller network
    that computes what the whole one does without them. Groups that are never cut are named, with the reason.

    >>> table = find_units(nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2)),
    ...                    torch.randn(1, 1, 4, 4))
    >>> [(group.name, group.count) for group in table.groups]
    [('0', 4)]
    """
    given.module("find_units", module)
    if not inputs:
        raise FedsacError("find_units needs inputs that the module can be called with: find_units(module, x)")
    inputs = tuple(given.placed(module, x, given.tensor("x", x)) if isinstance(x, np.ndarray) else x for x in inputs)
    if any(is_lazy(tensor) or tensor.is_meta for tensor in (*module.parameters(), *module.buffers())):
        raise FedsacError(
            f"{type(module).__name__} has tensors without numbers (on the meta device, or of lazy layers that were "
            "never called); give it its numbers first"
        )
    return proved(module, _table(Traced(module, inputs)), inputs)


def _table(traced: Traced) -> UnitTable:
    component, reasons = traced.slots.components()
    where: dict[int, list[tuple[str, int, int]]] = {}
    for name, axes in traced.axes.items():
        for axis, ids in enumerate(axes):
            if ids is not None:
                numbers, counts = np.unique(component[ids], return_counts=True)
                for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
                    where.setdefault(number, []).append((name, axis, count))
    side_by_side: dict[tuple[Where, str | None], list[int]] = {}
    for number, slots in where.items():
        reason = reasons.get(number, None if len(slots) > 1 else "nothing else depends on them")
        side_by_side.setdefault((tuple(slots), reason), []).append(number)

    unit_of = np.full(component.max(initial=-1) + 1, -1)
    groups, whole, first = [], [], 0
    for (places, reason), components in side_by_side.items():
        name, count = _name(places), len(components)
        if reason is None and count > 1:
            unit_of[components] = np.arange(first, first + count)
            groups.append(UnitGroup(name, first, count, places))
            first += count
        elif reason != KERNEL:  # of which nobody would expect that it is cut
            whole.append((places[0], WholeGroup(name, count * places[0][2], reason or "all of them go together")))
    units = {
        name: tuple(None if ids is None else _units(unit_of[component[ids]]) for ids in own)
        for name, own in traced.axes.items()
    }
    units |= {name: units[first] for name, first in traced.tied.items() if first in units}
    are_read = traced.slots.are_read()
    readers = [
        (name, axis)
        for name, own in traced.axes.items()
        for axis, ids in enumerate(own)
        if ids is not None and are_read[ids].any()
    ]
    return UnitTable(units, tuple(_unique(groups)), tuple(_merged(whole)), tuple(readers))


def _units(numbers: np.ndarray) -> Tensor | None:
    return None if (numbers < 0).all() else torch.from_numpy(numbers)


def _name(places: Where) -> str:
    """The layer whose outputs they are; else the first tensor and axis, of a layer if there is one."""
    layers = [place for place in places if re.search(r"(^|[._])(weight|bias)(_[a-z]+_l\d+)?$", place[0])]
    tensor, axis, _ = (layers or places)[0]
    layer, _, last = tensor.rpartition(".")
    outputs = axis == 0 or any((name, at) == (f"{layer}.bias", 0) for name, at, _ in places)
    return (layer or tensor) if outputs and last.startswith(("weight", "bias")) else f"{tensor}[{axis}]"


def _merged(whole: list[tuple[tuple[str, int, int], WholeGroup]]) -> list[WholeGroup]:
    """What stays whole of one layer for one reason is one entry: slots of one tensor's axis are added up, those of a
    weight and its bias are the same."""
    slots: dict[tuple[str, str], dict[tuple[str, int], int]] = {}
    for (tensor, axis, _), group in whole:
        own = slots.setdefault((group.name, group.reason), {})
        own[tensor, axis] = own.get((tensor, axis), 0) + group.slots
    return [WholeGroup(name, max(own.values()), reason) for (name, reason), own in slots.items()]


def _unique(groups: list[UnitGroup]) -> list[UnitGroup]:
    """Groups of one layer are numbered."""
    seen: dict[str, int] = {}
    named = []
    for group in groups:
        seen[group.name] = seen.get(group.name, 0) + 1
        name = group.name if seen[group.name] == 1 else f"{group.name} ({seen[group.name]})"
        named.append(UnitGroup(name, group.first, group.count, group.where))
    return named
