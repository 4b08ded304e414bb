"""The content of one of the paper's tables: cells with the printed number, ours over seeds, and their ranks."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fedsac.paper.printed import Column, Printed


@dataclass(frozen=True)
class SeedValues:
    """A number for each seed that has it, out of `seeds`. `low` is Table 7's number in brackets, the lowest reward;
    `of_seeds` says which seeds the values are of."""

    values: tuple[float, ...]
    seeds: int
    low: tuple[float, ...] = ()
    of_seeds: tuple[int, ...] = ()

    @property
    def mean(self) -> float | None:
        return float(np.mean(self.values)) if self.values else None

    @property
    def deviation(self) -> float | None:
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else None

    @property
    def lowest(self) -> float | None:
        return float(np.mean(self.low)) if self.low else None


@dataclass(frozen=True)
class Cell:
    """The printed number, and ours by label (best, last, ...); `ours` is empty if nothing was run.

    `ranks` has, by label, the row's rank in its column in the paper and in ours. `first` says where the cell is the
    best of its column: in the "paper", or at which labels. `same`: in this column the variant does not differ from its
    method (both betas are equal).
    """

    paper: Printed | None
    ours: dict[str, SeedValues] = field(default_factory=dict)
    same: bool = False
    ranks: dict[str, tuple[int, int]] = field(default_factory=dict)
    first: frozenset[str] = frozenset()

    def moved(self, label: str) -> bool:
        """Whether the row's rank in its column differs from the paper's."""
        return label in self.ranks and self.ranks[label][0] != self.ranks[label][1]

    def mean(self, label: str) -> float | None:
        """The mean over seeds at a label or, for "paper", the printed number."""
        if label == "paper":
            return None if self.paper is None else self.paper.value
        return self.ours[label].mean if label in self.ours else None


@dataclass(frozen=True)
class Row:
    """A method; or a variant of the method `of`, which is ranked as if it replaced that method's row."""

    key: str
    name: str
    of: str
    cells: tuple[Cell, ...]

    @property
    def variant(self) -> bool:
        return self.key != self.of


@dataclass(frozen=True)
class Table:
    """A table of the paper with our numbers. `labels` are our lines in a cell and what they mean; `digits` after the
    point, None for settings, which are shown as they are; `better`: whether more (+1), less (-1) or neither (0) is
    better; `seeds` and `rounds`: all numbers of seeds and of rounds that occur in its cells."""

    name: str
    title: str
    labels: dict[str, str]
    digits: int | None
    better: int
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    seeds: tuple[int, ...]
    rounds: tuple[int, ...]
    quick: bool

    @property
    def empty(self) -> bool:
        """Whether no cell has a number of ours."""
        return not any(cell.ours for row in self.rows for cell in row.cells)

    @property
    def headline(self) -> str:
        """The table's number and title, numbers of seeds and rounds, and whether it is the quick version."""
        quick = " (quick)" if self.quick else ""
        behind = "not run" if self.empty else f"{span(self.seeds, 'seed')}, {span(self.rounds, 'round')}"
        return f"Table {self.name.removeprefix('table')}{quick}: {self.title} ({behind})"

    def row(self, key: str) -> Row | None:
        return next((row for row in self.rows if row.key == key), None)

    def moved(self, label: str) -> tuple[int, int]:
        """How many cells have another rank than in the paper, and how many have a rank; variants are not counted."""
        ranked = [cell for row in self.rows if not row.variant for cell in row.cells if label in cell.ranks]
        return sum(cell.moved(label) for cell in ranked), len(ranked)


def span(numbers: Sequence[int], unit: str) -> str:
    """A number, or the range of several, with its unit.

    >>> span((5,), "seed"), span((1,), "seed"), span((3, 4, 5), "seed")
    ('5 seeds', '1 seed', '3 to 5 seeds')
    """
    if len(numbers) > 1:
        return f"{min(numbers)} to {max(numbers)} {unit}s"
    return f"{numbers[0]} {unit}" + ("" if numbers[0] == 1 else "s")


def ranked(rows: Sequence[Row], labels: Sequence[str], better: int) -> tuple[Row, ...]:
    """The rows with `ranks` and `first` of their cells filled in."""
    positions = range(len(rows[0].cells))
    columns = [[_with_ranks(rows, row, position, labels, better) for position in positions] for row in rows]
    return tuple(replace(row, cells=tuple(cells)) for row, cells in zip(rows, columns, strict=True))


def _with_ranks(rows: Sequence[Row], row: Row, position: int, labels: Sequence[str], better: int) -> Cell:
    cell = row.cells[position]
    if cell.same:
        return cell
    others = [other.cells[position] for other in rows if not other.variant and other.key != row.of]
    ranks = {}
    for label in labels:
        # Rank among rows that have both numbers: a row missing in ours must not shift the ranks.
        both = [other for other in others if None not in (other.mean("paper"), other.mean(label))]
        pair = [_rank(cell, both, where, better) for where in ("paper", label)]
        if pair[0] is not None and pair[1] is not None:
            ranks[label] = (pair[0], pair[1])
    first = {where for where in ("paper", *labels) if _rank(cell, others, where, better) == 1}
    return replace(cell, ranks=ranks, first=frozenset(first))


def _rank(cell: Cell, others: Sequence[Cell], where: str, better: int) -> int | None:
    """1 for the best; equal numbers share a rank."""
    own = cell.mean(where)
    if own is None:
        return None
    rivals = [mean for other in others if (mean := other.mean(where)) is not None]
    return 1 + sum(round(better * (mean - own), 4) > 0 for mean in rivals)
