"""Which unit each slot of a network's tensors belongs to, for any network.

A unit is what is given or withheld as a whole: a neuron, a channel, an attention head, a rank of a LoRA adapter. Every
parameter (and buffer) has axes, and every index along an axis, a slot, belongs to one unit or to none. An entry of a
tensor is held when the units of all its slots are. From this follow masking, extraction (index the tensors), merging
and counting.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from fedsac.core import given
from fedsac.core.allocation import allocate
from fedsac.errors import FedsacError

State = Mapping[str, Tensor]


@dataclass(frozen=True)
class UnitGroup:
    """Units that stand side by side, as the channels of a convolution: `first` and `count` are their numbers. `where`:
    the tensors and axes they have slots in, and how many each unit has there."""

    name: str
    first: int
    count: int
    where: tuple[tuple[str, int, int], ...]

    @property
    def units(self) -> slice:
        return slice(self.first, self.first + self.count)


@dataclass(frozen=True)
class WholeGroup:
    """Slots that are never cut, and why."""

    name: str
    slots: int
    reason: str


@dataclass(frozen=True, eq=False)
class UnitTable:
    """The units of a network. `axes`: for each tensor by name and each of its axes, the number of the unit that each
    slot belongs to (-1: none), or None where no slot of the axis does. `readers`: the tensors and axes by which the
    rest of the network reads units, as the inputs of the next layer: with these entries 0, a unit does nothing.
    `constants`: attributes of its modules, as `block.attention.head_width`, that are no number of units although they
    are equal to one."""

    axes: Mapping[str, tuple[Tensor | None, ...]]
    groups: tuple[UnitGroup, ...]
    whole: tuple[WholeGroup, ...] = ()
    readers: tuple[tuple[str, int], ...] = ()
    constants: frozenset[str] = frozenset()

    @property
    def units(self) -> int:
        """How many units there are, all groups together."""
        return sum(group.count for group in self.groups)

    def kept(self, name: str, units: Tensor) -> list[Tensor | None]:
        """The indices that are kept of each axis of a tensor with these `units`, a boolean mask [units]; None: all."""
        with_none = torch.cat([units, units.new_ones(1)])  # -1, no unit, is always there
        return [
            None if slots is None else with_none[slots.to(units.device)].nonzero().squeeze(1)
            for slots in self.axes.get(name, ())
        ]

    def extract(self, state: State, units: given.Values) -> dict[str, Tensor]:
        """The tensors of the submodel with these units: smaller ones, which contain nothing of the others."""
        units = self.check(units)
        small = {}
        for name, tensor in state.items():
            small[name] = tensor
            for axis, kept in enumerate(self.kept(name, units)):
                if kept is not None and len(kept) < tensor.shape[axis]:
                    small[name] = small[name].index_select(axis, kept.to(tensor.device))
            if small[name] is tensor:
                small[name] = tensor.clone()
        return small

    def merge(self, state: State, units: given.Values, small: State) -> dict[str, Tensor]:
        """`state` with the entries of these units replaced by the submodel's (the mask of Eq. 8)."""
        units = self.check(units)
        merged = {}
        for name, tensor in state.items():
            index = self._index(name, tensor, units)
            _check_fits(name, tensor[index], small)
            merged[name] = tensor.clone()
            merged[name][index] = small[name].to(tensor)
        return merged

    def held(self, name: str, tensor: Tensor, units: Tensor) -> Tensor:
        """Which entries of a tensor are held with these units: boolean, of its shape."""
        held = torch.ones(tensor.shape, dtype=torch.bool, device=tensor.device)
        for there in self._there(name, tensor, units):
            held &= there
        return held

    def masked(self, state: State, units: Tensor) -> dict[str, Tensor]:
        """The tensors at full size, 0 where they are not held."""
        masked = dict(state)
        for name, tensor in state.items():
            if there := list(self._there(name, tensor, units)):
                masked[name] = torch.where(reduce(torch.logical_and, there), tensor, 0)
        return masked

    def parameters(self, shapes: Mapping[str, torch.Size], units: Tensor) -> int:
        """How many entries of tensors with these shapes are held with these units."""
        total = 0
        for name, shape in shapes.items():
            kept = self.kept(name, units) or [None] * len(shape)
            total += _product(n if rows is None else len(rows) for n, rows in zip(shape, kept, strict=True))
        return total

    def allocate(self, importance: given.Values, reputation: given.Values) -> Tensor:
        """The units that each client holds (Eq. 7), boolean [N, units], from importance [units] and reputations [N]:
        `core.allocation.allocate`, and the least important unit of each group, so that no layer is empty. Nested."""
        values = given.tensor("importance", importance)
        if tuple(values.shape) != (self.units,):
            raise FedsacError(f"importance must be one number for each of {self.units} units, not {len(values)}")
        masks = allocate(values, reputation)
        for group in self.groups:
            masks[:, group.first + int(values[group.units].argmin())] = True
        return masks

    def aggregate(self, state: State, submodels: Sequence[tuple[Tensor, State]]) -> dict[str, Tensor]:
        """`state` after the submodels came back, each with the mask [units] of its units: every entry is the mean over
        those that hold it (Eq. 9), or stays where nobody does. Whole numbers, as counters, stay. What is not finite is
        refused, not averaged."""
        total = {name: torch.zeros_like(tensor) for name, tensor in state.items() if tensor.is_floating_point()}
        holders = {name: torch.zeros_like(tensor) for name, tensor in total.items()}
        for number, (units, small) in enumerate(submodels, 1):
            held = self.check(units)
            for name, tensor in total.items():
                index = self._index(name, tensor, held)
                _check_fits(name, tensor[index], small)
                if not small[name].isfinite().all():
                    raise FedsacError(f"{name} of submodel {number} has entries that are NaN or infinite; leave it out")
                tensor[index] += small[name].to(tensor)
                holders[name][index] += 1
        return {
            name: torch.where(holders[name] > 0, total[name] / holders[name].clamp_min(1), tensor)
            if name in total
            else tensor.clone()
            for name, tensor in state.items()
        }

    def check(self, units: given.Values) -> Tensor:
        """The mask of units, if it is one and has one of each group at least: a layer must not be empty."""
        mask = given.mask("units", units, self.units, "unit")
        for group in self.groups:
            if not mask[group.units].any():
                raise FedsacError(f"none of the {group.count} units of {group.name} is kept; keep one at least")
        return mask

    def only(self, chosen: Callable[[str], bool]) -> "UnitTable":
        """The table in which nothing is cut but the groups whose name is `chosen`: the ranks of LoRA adapters, say."""
        return self.without({group.name: "not chosen" for group in self.groups if not chosen(group.name)})

    def without(self, kept_whole: Mapping[str, str]) -> "UnitTable":
        """The table in which the groups with these names are never cut, each for its reason."""
        numbers, groups, first = torch.full((self.units + 1,), -1), [], 0
        for group in self.groups:
            if group.name not in kept_whole:
                numbers[group.units] = torch.arange(first, first + group.count)
                groups.append(UnitGroup(group.name, first, group.count, group.where))
                first += group.count
        axes = {
            name: tuple(None if slots is None or (numbers[slots] < 0).all() else numbers[slots] for slots in own)
            for name, own in self.axes.items()
        }
        whole = [
            WholeGroup(group.name, group.count * group.where[0][2], kept_whole[group.name])
            for group in self.groups
            if group.name in kept_whole
        ]
        return UnitTable(axes, tuple(groups), (*self.whole, *whole), self.readers, self.constants)

    def _there(self, name: str, tensor: Tensor, units: Tensor) -> Iterator[Tensor]:
        """For each axis of a tensor that loses slots with these units, which stay, broadcast over the others."""
        with_none = torch.cat([units, units.new_ones(1)])
        for axis, slots in enumerate(self.axes.get(name, ())):
            if slots is not None and not (there := with_none[slots.to(units.device)]).all():
                yield there.to(tensor.device).reshape([-1 if i == axis else 1 for i in range(tensor.ndim)])

    def _index(self, name: str, tensor: Tensor, units: Tensor) -> tuple[Tensor, ...]:
        """What indexes the entries of a tensor that are held with these units."""
        kept = self.kept(name, units) or [None] * tensor.ndim
        rows = [
            torch.arange(n, device=tensor.device) if own is None else own.to(tensor.device)
            for n, own in zip(tensor.shape, kept, strict=True)
        ]
        return torch.meshgrid(*rows, indexing="ij") if len(rows) > 1 else tuple(rows)


def _check_fits(name: str, part: Tensor, small: State) -> None:
    """Raise unless a submodel has this tensor, of the shape of the part that its units hold."""
    if name not in small:
        raise FedsacError(f"the submodel has no tensor {name}")
    if part.shape != small[name].shape:
        raise FedsacError(
            f"{name}: a submodel with these units has {tuple(part.shape)}, not {tuple(small[name].shape)}"
        )


def _product(numbers: Iterator[int]) -> int:
    total = 1
    for number in numbers:
        total *= number
    return total
