"""Proof that a network's units are what they seem: with some of them cut, the smaller network computes what the whole
one does with these units' parameters set to 0."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import combinations
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree  # what torch.export takes inputs and outputs apart with

from fedsac.core.unit_table import UnitGroup, UnitTable
from fedsac.errors import FedsacError
from fedsac.models.finding.shrinking import sizes, smaller
from fedsac.models.finding.trial import Trial, in_double

TOLERANCE = 1e-9  # of the largest output, in float64
VISIBLE = 1e-6  # what cutting a group must change at least: a thousandth of it could then not go wrong unseen
DRAWS = 6  # of parameters for a group, ever further from its own, until cutting it changes something
HALF, ALL_BUT_ONE = 0.5, 1.0  # shares of units that are kept


def proved(module: nn.Module, table: UnitTable, inputs: tuple[Any, ...]) -> UnitTable:
    """The table, in which groups that fail the proof are never cut."""
    if not table.groups:
        return table
    proof = Proof(module, inputs)
    failed = proof.culprits(table, table.groups)
    left = replace(table.without(failed), constants=frozenset(proof.constants))
    left = left.without({group.name: why for group in left.groups if (why := proof.unseen(left, group)) is not None})
    return left if proof.holds(left) else proof.one_by_one(left)


class Proof:
    """Masks of a network's units, tried on a copy of it in float64. `constants` gathers attributes that turn out to be
    no sizes of a group."""

    def __init__(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        self.trial, self.rng = Trial(module, inputs), torch.Generator().manual_seed(0)
        self.constants: set[str] = set()
        try:
            _outputs(self.trial.module, self.trial.inputs)
        except Exception as error:
            first = (str(error).strip().splitlines() or [""])[0][:200]
            raise FedsacError(
                f"{type(module).__name__} does not run in float64, in which its units are proved "
                f"({type(error).__name__}: {first}); write its units by hand"
            ) from error

    def tried(self, table: UnitTable, groups: Sequence[UnitGroup], shares: Sequence[float]) -> str | None:
        """What goes wrong when these groups keep each of these shares of their units, and when they keep the others:
        then every unit is cut once and kept once, and an error in the place of a single one shows. None: nothing."""
        for share in shares if groups else ():
            units = torch.ones(table.units, dtype=torch.bool)
            others = units.clone()
            for group in groups:
                units[group.units] = self._some(group.count, share)
                others[group.units] = ~units[group.units]
            for mask in (units, others):
                if (why := difference(self.trial.module, table, mask, self.trial.inputs)) is not None:
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
        seeming = sizes(dict(self.trial.module.named_modules()), group)
        for paths in (*combinations(seeming, 1), *combinations(seeming, 2)):
            trial = replace(table, constants=frozenset(paths))
            if self.tried(trial, [group], (HALF, ALL_BUT_ONE)) is None:
                self.constants.update(paths)
                return True
        return False

    def unseen(self, table: UnitTable, group: UnitGroup) -> str | None:
        """Why nothing is proved of a group: cutting it changes nothing, however its parameters are drawn; or what goes
        wrong once they are such that it does. None: it is proved."""
        units = torch.ones(table.units, dtype=torch.bool)
        why: str | None = "cutting them does not change the output, so that nothing is proved"
        for draw in range(DRAWS):
            units[group.units] = self._some(group.count, HALF)
            if is_visible(self.trial.module, table, units, self.trial.inputs):
                if draw == 0:
                    return None  # what was tried with these parameters has changed something
                why = difference(self.trial.module, table, units, self.trial.inputs)
                break
            self.trial.draw(2.0 ** (draw + 1))
        self.trial.draw()
        return why

    def holds(self, table: UnitTable) -> bool:
        """Whether nothing goes wrong when all groups are cut, and when sets of them are, such that of any two groups
        each is cut once while the other is not: those whose numbers have a certain binary digit."""
        digits = [(k, bit) for k in range((len(table.groups) - 1).bit_length()) for bit in (0, 1)]
        sets = [[g for i, g in enumerate(table.groups) if i >> k & 1 == bit] for k, bit in digits]
        self.trial.draw()
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
    whole = _outputs(module, inputs)
    with _masked(module, table, units):
        expected = _outputs(module, inputs)
    try:
        found = _outputs(smaller(module, table, units), inputs)
    except Exception as error:  # noqa: BLE001  # whatever the module's own code raises
        return f"the smaller network fails: {(str(error).strip().splitlines() or [''])[0][:120]}"
    if not expected or len(expected) != len(found):
        return f"the network has {len(expected)} outputs, the smaller one {len(found)}: nothing to compare"
    for all_units, one, two in zip(whole, expected, found, strict=True):
        if one.shape != two.shape:
            return f"the smaller network's output has another shape: {tuple(two.shape)}, not {tuple(one.shape)}"
        off, scale = float((one - two).abs().max()), float(torch.maximum(all_units.abs(), one.abs()).max())
        if not off <= TOLERANCE * scale:
            return f"the smaller network computes something else, off by {off:.1e} of {scale:.1e}"
    return None


def is_visible(module: nn.Module, table: UnitTable, units: Tensor, inputs: tuple[Any, ...]) -> bool:
    """Whether the whole network computes something else with the other units set to 0."""
    whole = _outputs(module, inputs)
    with _masked(module, table, units):
        masked = _outputs(module, inputs)
    pairs = zip(whole, masked, strict=True)
    return any(not float((one - two).abs().max()) <= VISIBLE * float(one.abs().max()) for one, two in pairs)


@contextmanager
def _masked(module: nn.Module, table: UnitTable, units: Tensor) -> Iterator[None]:
    """The network with 0 for what is not held, for a while. (torch's functional_call leaves its tensors behind in a
    layer that has two names.)"""
    before = []
    with torch.no_grad():
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            if name in table.axes and not (held := table.held(name, tensor, units)).all():
                before.append((tensor, tensor.clone()))
                tensor.masked_fill_(~held, 0)
        try:
            yield
        finally:
            for tensor, own in before:
                tensor.copy_(own)


def _outputs(module: nn.Module, inputs: tuple[Any, ...]) -> list[Tensor]:
    """All tensors that a network returns, whatever holds them, in float64. It gets copies of the inputs, which it may
    change, and the same random numbers every time."""
    own = pytree.tree_map(lambda each: each.clone() if isinstance(each, Tensor) else each, inputs)
    with torch.no_grad(), torch.random.fork_rng(devices=[]), in_double(), warnings.catch_warnings(action="ignore"):
        torch.manual_seed(0)
        returned = module(*own)
    leaves = [each for each in pytree.tree_leaves(returned) if isinstance(each, Tensor)]
    return [each if each.is_complex() else each.double() for each in leaves if each.numel() > 0]
