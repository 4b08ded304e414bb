"""Units written by hand, for modules whose units cannot be found."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedsac.core import given
from fedsac.core.unit_table import UnitGroup, UnitTable
from fedsac.errors import FedsacError
from fedsac.models.finding.proof import proved

Place = int | tuple[int, int]  # an axis; or an axis and in how many equal blocks the units repeat along it
Group = tuple[int, Mapping[str, Place]]  # how many units, and the places of their slots by tensor


def units_by_hand(module: nn.Module, groups: Mapping[str, Group], *inputs: Any) -> UnitTable:
    """The units of a module as they are written down: for each group by name, how many units it has, and for each
    tensor that has slots of them, along which axis. Along an axis, a unit's slots stand next to each other; where they
    do so in several blocks, as in one layer for queries, keys and values, the number of blocks stands behind the axis.
    Proved on these inputs, like units that are found.

    >>> module = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    >>> written = {"hidden": (3, {"0.weight": 0, "0.bias": 0, "2.weight": 1})}
    >>> units_by_hand(module, written, torch.randn(2, 4)).units
    3
    """
    given.module("units_by_hand", module)
    if not inputs:
        raise FedsacError("units_by_hand needs inputs that the module can be called with: they are proved on them")
    inputs = tuple(given.placed(module, x, given.tensor("x", x)) if isinstance(x, np.ndarray) else x for x in inputs)
    state = module.state_dict()
    axes: dict[str, list[Tensor | None]] = {name: [None] * tensor.ndim for name, tensor in state.items()}
    table_groups, readers, first = [], [], 0
    for name, (count, places) in groups.items():
        where = []
        for tensor, place in places.items():
            axis, blocks = place if isinstance(place, tuple) else (place, 1)
            if tensor not in state or not 0 <= axis < state[tensor].ndim:
                raise FedsacError(f"units by hand, {name}: the module has no tensor {tensor} with an axis {axis}")
            size = state[tensor].shape[axis]
            if count < 1 or size % (count * blocks):
                raise FedsacError(
                    f"units by hand, {name}: {size} slots of {tensor} are not {blocks} blocks of {count} units"
                )
            own = torch.arange(count).repeat_interleave(size // (count * blocks)).repeat(blocks)
            axes[tensor][axis] = first + own
            where.append((tensor, axis, size // count))
            if axis == 1:
                readers.append((tensor, axis))
        table_groups.append(UnitGroup(name, first, count, tuple(where)))
        first += count
    table = UnitTable({name: tuple(own) for name, own in axes.items()}, tuple(table_groups), (), tuple(readers))
    checked = proved(module, table, inputs)
    if checked.whole:
        raise FedsacError(f"units by hand, {checked.whole[0].name}: {checked.whole[0].reason}")
    return checked
