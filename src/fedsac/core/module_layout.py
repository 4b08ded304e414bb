"""All parameters of any torch module as one vector, with its units: what `Layout` is for perceptrons.

The vector has every parameter and every floating-point buffer (batch norm's running statistics) in the order of the
module's state dict; tensors that are tied are there once. Which entries go with a set of units follows from the
`UnitTable`. Whole numbers (counters) stay outside, as the template has them.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from fedsac.core.unit_table import UnitTable
from fedsac.core.units import Layout
from fedsac.errors import FedsacError
from fedsac.recipe import PLAIN, Recipe


@dataclass(frozen=True)
class InputShape:
    """How a row of samples becomes an input: `shape` of one input as the network takes it. Images that are stored with
    their channels last are turned. `tokens`: inputs are whole numbers, and are not normalised."""

    shape: tuple[int, ...]
    channels_last: bool = False
    tokens: bool = False

    def inputs(self, rows: Tensor) -> Tensor:
        """Rows [..., features] as inputs [..., *shape]."""
        if not self.channels_last:
            return _shaped(rows, self.shape)
        channels, *sides = self.shape
        stored = _shaped(rows, (*sides, channels))
        before = stored.ndim - len(self.shape)  # axes that are not the image's, counted from the front for ONNX
        return stored.movedim(stored.ndim - 1, before)


@dataclass(frozen=True)
class ModuleShape:
    """The tensors of a submodel of any module: names, shapes and types; `neurons` and `parameters` (with buffers) are
    how many units and entries of the vector it has."""

    tensors: tuple[tuple[str, tuple[int, ...], torch.dtype | None], ...]  # None: the type of the run
    neurons: int
    parameters: int


@dataclass(frozen=True, eq=False)
class ModuleLayout:
    """A module, its units, and where in the vector each of its tensors lies.

    `named` is what the network is called in a config. Of the `template` only its structure counts, and what is not in
    the vector; two layouts are equal where that is. `statistics` are inputs on which batch norm's statistics are
    measured again before a submodel is scored or given away (None: the running ones are used).
    """

    named: str
    template: nn.Module
    table: UnitTable
    input: InputShape
    classes: int
    recipe: Recipe = PLAIN
    statistics: Tensor | None = None
    _slots: dict[torch.device, list[list[tuple[int, Tensor]]]] = field(default_factory=dict)

    @cached_property
    def _state(self) -> dict[str, Tensor]:
        state = self.template.state_dict(keep_vars=True)
        return {name: tensor for name, tensor in state.items() if isinstance(tensor, Tensor)}

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The tensors in the vector, in its order."""
        seen: set[int] = set()
        names = []
        for name, tensor in self._state.items():
            if tensor.is_floating_point() and id(tensor) not in seen:
                seen.add(id(tensor))
                names.append(name)
        return tuple(names)

    @cached_property
    def tied(self) -> dict[str, str]:
        """Names of tensors that are in the vector under another name, which is given."""
        first = {id(self._state[name]): name for name in self.names}
        return {
            name: first[id(tensor)]
            for name, tensor in self._state.items()
            if id(tensor) in first and first[id(tensor)] != name
        }

    @cached_property
    def outside(self) -> dict[str, Tensor]:
        """Tensors of the state dict that are not in the vector: whole numbers, as counters."""
        return {name: t.detach().clone() for name, t in self._state.items() if not t.is_floating_point()}

    @cached_property
    def shapes(self) -> tuple[torch.Size, ...]:
        return tuple(self._state[name].shape for name in self.names)

    @cached_property
    def trainable(self) -> tuple[bool, ...]:
        """Which of the tensors in the vector are learned."""
        return tuple(isinstance(t := self._state[name], nn.Parameter) and t.requires_grad for name in self.names)

    @cached_property
    def tensor_sizes(self) -> tuple[int, ...]:
        """Number of entries of each tensor, in the order of the vector."""
        return tuple(prod(shape) for shape in self.shapes)

    @cached_property
    def parameters(self) -> int:
        """Number of entries of the vector."""
        return sum(self.tensor_sizes)

    @property
    def neurons(self) -> int:
        """Number of units: the ones that are allocated."""
        return self.table.units

    @property
    def hidden(self) -> tuple[int, ...]:
        """Number of units of each group."""
        return tuple(group.count for group in self.table.groups)

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """What training and evaluation depend on besides the vector."""
        digest = hashlib.blake2b(digest_size=16)
        inside = {id(self._state[name]) for name in self.names}
        for name, tensor in (*self.template.named_parameters(), *self.template.named_buffers()):
            if id(tensor) not in inside:
                digest.update(name.encode() + tensor.detach().cpu().flatten().view(torch.uint8).numpy().tobytes())
        shapes = tuple(zip(self.names, map(tuple, self.shapes), strict=True))
        return self.named, shapes, self.hidden, self.input, self.classes, self.recipe, digest.hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ModuleLayout) and (self is other or self.key == other.key)

    def __hash__(self) -> int:
        return hash(self.key)

    def views(self, params: Tensor) -> dict[str, Tensor]:
        """The tensors by name, [..., *shape], as views into `params` [..., parameters]."""
        parts = params.split(self.tensor_sizes, dim=-1)
        return {
            name: part.unflatten(-1, shape) if shape else part.squeeze(-1)
            for name, part, shape in zip(self.names, parts, self.shapes, strict=True)
        }

    def vector(self, state: Mapping[str, Tensor]) -> Tensor:
        """The vector [parameters] of a state dict."""
        return torch.cat([state[name].detach().flatten() for name in self.names])

    def state(self, params: Tensor) -> dict[str, Tensor]:
        """The whole state dict of a vector [parameters]; its tensors are views into it."""
        named = self.views(params)
        named |= {name: named[first] for name, first in self.tied.items()}
        return {name: named[name] if name in named else self.outside[name] for name in self._state}

    def held(self, neurons: Tensor) -> Tensor:
        """Which entries of the vector [..., parameters] go with the units of a boolean mask [..., units]."""
        held = torch.ones((*neurons.shape[:-1], self.parameters), dtype=torch.bool, device=neurons.device)
        there = torch.cat([neurons, neurons.new_ones((*neurons.shape[:-1], 1))], -1)  # -1, no unit, is always there
        parts = held.split(self.tensor_sizes, dim=-1)
        for part, shape, axes in zip(parts, self.shapes, self._slots_on(neurons.device), strict=True):
            for axis, slots in axes:
                whole = part.unflatten(-1, shape)
                whole &= there[..., slots].reshape(*neurons.shape[:-1], *(-1 if i == axis else 1 for i in _axes(shape)))
        return held

    def _slots_on(self, device: torch.device) -> list[list[tuple[int, Tensor]]]:
        """For each tensor, the axes that lose slots without some units, and the unit of each slot, on a device."""
        if device not in self._slots:
            self._slots[device] = [
                [
                    (axis, slots.to(device))
                    for axis, slots in enumerate(self.table.axes.get(name, ()))
                    if slots is not None
                ]
                for name in self.names
            ]
        return self._slots[device]

    @cached_property
    def shape(self) -> ModuleShape:
        """The whole module's tensors."""
        return self.smaller(torch.ones(self.neurons, dtype=torch.bool))

    def submodels(self, neurons: Tensor) -> list[ModuleShape]:
        """The shapes of the N submodels with these units: boolean masks [N, units]."""
        return [self.smaller(mask) for mask in neurons.cpu()]

    def smaller(self, neurons: Tensor) -> ModuleShape:
        """The shape of the submodel with these units: a boolean mask [units]."""
        there = torch.cat([neurons, neurons.new_ones(1)])
        kept: dict[str, tuple[int, ...]] = {}
        for name, shape, axes in zip(self.names, self.shapes, self._slots_on(neurons.device), strict=True):
            sizes = list(shape)
            for axis, slots in axes:
                sizes[axis] = int(there[slots].sum())
            kept[name] = tuple(sizes)
        kept |= {name: kept[first] for name, first in self.tied.items()}
        tensors = tuple(
            (name, kept[name], None) if name in kept else (name, tuple(tensor.shape), tensor.dtype)
            for name, tensor in self._state.items()
        )
        return ModuleShape(tensors, int(neurons.sum()), sum(prod(kept[name]) for name in self.names))

    def completed(self, neurons: Tensor, rank: Tensor) -> Tensor:
        """The masks [..., units] and, of each group of units, the one that comes first by `rank` [units]: no group may
        be empty, or there would be no network. What was nested stays so."""
        firsts = torch.stack([group.first + rank[group.units].argmin() for group in self.table.groups])
        return neurons.index_fill(-1, firsts.to(neurons.device), True)

    @cached_property
    def costs(self) -> Tensor:
        """How many entries of the vector go when a unit alone does, float64 [units]."""
        return torch.stack([(~self.held(~one)).sum() for one in torch.eye(self.neurons, dtype=torch.bool)]).double()


AnyLayout = Layout | ModuleLayout


def perceptron_layout(layout: AnyLayout) -> Layout:
    """The layout, where only perceptrons will do."""
    if isinstance(layout, ModuleLayout):
        raise FedsacError(
            f"only perceptrons trained by plain SGD will do here so far, and {layout.named} is none: use another "
            "network, and leave momentum, weight_decay, clip and augment out"
        )
    return layout


def _shaped(tensor: Tensor, shape: Sequence[int]) -> Tensor:
    """A tensor [..., n] as [..., *shape]."""
    return tensor.reshape(*tensor.shape[:-1], *shape)


def _axes(shape: torch.Size) -> range:
    return range(len(shape))
