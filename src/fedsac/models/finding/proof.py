"""Proof that a network's units are what they seem: with some of them cut, the smaller network computes what the whole
one does with these units' parameters set to 0."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedsac.core.unit_table import UnitGroup, UnitTable
from fedsac.models.finding.shrinking import sizes, smaller

TOLERANCE = 1e-9  # of the largest output, in float64
HALF, ALL_BUT_ONE = 0.5, 1.0  # shares of units that are kept


def proved(module: nn.Module, table: UnitTable, inputs: tuple[Any, ...]) -> UnitTable:
    """The table, in which groups that fail the proof are never cut."""
    proof = Proof(module, inputs)
    failed = proof.culprits(table, table.groups)
    left = replace(table.without(failed), constants=frozenset(proof.constants))
    return left if proof.holds(left) else proof.one_by_one(left)


class Proof:
    """Masks of a network's units, tried on a copy of it in float64. `constants` gathers attributes that turn out to be
    no sizes of a group."""

    def __init__(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        self.module, self.inputs = _perturbed(module), tuple(_double(each) for each in inputs)
        self.rng = torch.Generator().manual_seed(0)
        self.constants: set[str] = set()

    def tried(self, table: UnitTable, groups: Sequence[UnitGroup], shares: Sequence[float]) -> str | None:
        """What goes wrong when these groups keep each of these shares of their units; None: nothing."""
        for share in shares if groups else ():
            units = torch.ones(table.units, dtype=torch.bool)
            for group in groups:
                units[group.units] = self._some(group.count, share)
            if (why := difference(self.module, table, units, self.inputs)) is not None:
                return why
        return None

    def culprits(self, table: UnitTable, groups: Sequence[UnitGroup]) -> dict[str, str]:
        """Which of these groups cannot be cut, and why: tried all together, and in halves where that fails."""
        if (why := self.tried(table, groups, (HALF, ALL_BUT_ONE))) is None:
            return {}
        if len(groups) == 1:
            return {} if self._with_constants(table, groups[0]) else {groups[0].name: why}
        half = len(groups) // 2
        return self.culprits(table, groups[:half]) | self.culprits(table, groups[half:])

    def _with_constants(self, table: UnitTable, group: UnitGroup) -> bool:
        """Whether a group can be cut if one or two attributes that look like sizes of it keep their value, as the width
        of a head where there are equally many heads."""
        seeming = sizes(dict(self.module.named_modules()), group)
        for paths in (*combinations(seeming, 1), *combinations(seeming, 2)):
            trial = replace(table, constants=frozenset(paths))
            if self.tried(trial, [group], (HALF, ALL_BUT_ONE)) is None:
                self.constants.update(paths)
                return True
        return False

    def holds(self, table: UnitTable) -> bool:
        """Whether nothing goes wrong when all groups are cut, and when sets of them are, such that of any two groups
        each is cut once while the other is not: those whose numbers have a certain binary digit."""
        digits = [(k, bit) for k in range((len(table.groups) - 1).bit_length()) for bit in (0, 1)]
        sets = [[g for i, g in enumerate(table.groups) if i >> k & 1 == bit] for k, bit in digits]
        return all(self.tried(table, groups, [self._share()]) is None for groups in (table.groups, *sets))

    def one_by_one(self, table: UnitTable) -> UnitTable:
        """The table with one group after the other, each kept if the proof still holds for all."""
        failed = {group.name: "cannot be cut together with others" for group in table.groups}
        for group in table.groups:
            without = {name: why for name, why in failed.items() if name != group.name}
            if self.holds(table.without(without)):
                failed = without
        return table.without(failed)

    def _share(self) -> float:
        return float(torch.rand(1, generator=self.rng))

    def _some(self, count: int, share: float) -> Tensor:
        """A mask of about this share of the units: of one at least, and never of all."""
        kept = torch.zeros(count, dtype=torch.bool)
        kept[torch.randperm(count, generator=self.rng)[: min(max(1, int(share * count)), count - 1)]] = True
        return kept


def difference(module: nn.Module, table: UnitTable, units: Tensor, inputs: tuple[Any, ...]) -> str | None:
    """How the submodel with these units differs from the whole network with the other units set to 0; None: not."""
    with torch.no_grad():
        masked = table.masked(module.state_dict(), units)
        expected = _outputs(functional_call(module, masked, inputs, tie_weights=False))
        try:
            found = _outputs(smaller(module, table, units)(*inputs))
        except Exception as error:  # noqa: BLE001  # whatever the module's own code raises
            return f"the smaller network fails: {(str(error).strip().splitlines() or [''])[0][:120]}"
    if not expected or len(expected) != len(found):
        return f"the network has {len(expected)} outputs, the smaller one {len(found)}: nothing to compare"
    for one, two in zip(expected, found, strict=True):
        if one.shape != two.shape:
            return f"the smaller network's output has another shape: {tuple(two.shape)}, not {tuple(one.shape)}"
        off, scale = float((one - two).abs().max()), float(one.abs().max())
        if not off <= TOLERANCE * max(scale, 1e-3):
            return f"the smaller network computes something else, off by {off:.1e} of {scale:.1e}"
    return None


def _perturbed(module: nn.Module) -> nn.Module:
    """A copy in float64 with other parameters: what is 0 at first, as a bias or half of a LoRA adapter, would hide
    errors."""
    trial, rng = copy.deepcopy(module).double().eval(), torch.Generator().manual_seed(1)

    def noise(tensor: Tensor) -> Tensor:
        spread = float(tensor.std()) if tensor.numel() > 1 else 0.0
        return (0.3 * spread or 0.1) * torch.randn(tensor.shape, generator=rng, dtype=tensor.dtype).to(tensor.device)

    with torch.no_grad():
        for parameter in trial.parameters():
            parameter.add_(noise(parameter))
        for name, buffer in trial.named_buffers():
            if name.endswith("running_mean"):
                buffer.add_(noise(buffer))
            elif name.endswith("running_var"):
                buffer.mul_(1 + 0.5 * torch.rand(buffer.shape, generator=rng, dtype=buffer.dtype).to(buffer.device))
    return trial


def _double(value: Any) -> Any:
    return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value


def _outputs(value: Any) -> list[Tensor]:
    """All tensors of an output, whatever holds them."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [tensor for each in value for tensor in _outputs(each)] if isinstance(value, list | tuple) else []
