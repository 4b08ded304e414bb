"""FedSAC+ against other methods, sorted by what their servers train on: with the same server data, with none on either
side, and, unequal, with server data on our side alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.studies.definitions import Cell
from benchmarks.studies.measures import by_label, named
from benchmarks.studies.tables import markdown
from fedsac.runs.comparison import Row
from fedsac.runs.statistics import LEVEL, BySeed, Difference, holm, judge, mean_interval

OURS, WITHOUT = "fedsac-plus", "fedsac-plus-no-server"
SERVER_DATA = ("server-alone", "fedavg-server", "fedavg-v-client", "fedsac-server", "fedrac-server", OURS)
COPIES = ("fedavg", "fedavg-server", "fedavg-v-client", "qffl")  # whose rewards are copies, trained one epoch more
SAME, NEITHER, UNEQUAL = "both train on V", "neither trains on V", "unequal: only ours trains on V"
POINTS = {"max": 100.0, "gamma": 1.0, "bcf": 100.0}
EXPLAINED = """\
The server of `fedsac-plus` trains 20 steps a round on one half of V; so do those of `fedavg-server`, `fedsac-server`
and `fedrac-server`. `fedavg-v-client` trains on V as one more client, `server-alone` on all of V and nothing else. All
others, `fedsac-plus-no-server` among them, use V to measure at most, so that *unequal* comparisons cannot tell the
method from the data. `aequa` is our reconstruction: no code of it is public.

`last` rounds. Differences are ours less the rival's, seed by seed, averaged over the cells; best reward and share
inside BCF (*in BCF*) in percentage points. Where rewards are copies of a common model that were trained one epoch more
(FedAvg's kin and `qffl`), the best reward is the common model's accuracy. In brackets the 95 % interval over the seeds,
the cells being as they are; none where a seed lacks the number. *a / b / u*: in how many cells ours is significantly
above or below, or it is undecided, by paired t tests over the seeds with Holm's correction for the number of cells,
level .05; in brackets the same without the correction. Cells in which one of the two lacks the number are not counted.
"""


@dataclass(frozen=True)
class Pair:
    """One of ours against a rival, in all cells that have both; by measure, a difference for each of these cells, in
    points, and `p` corrected for their number."""

    kind: str
    ours: str
    rival: str
    cells: tuple[Cell, ...]
    differences: dict[str, list[Difference]]
    over_cells: dict[str, list[float]]  # by measure, for each seed that all cells have: the mean over the cells

    def signs(self, key: str, *, corrected: bool = True) -> list[int]:
        """For each cell 1 (above), -1 (below) or 0 (undecided, or not there)."""
        found = []
        for one in self.differences[key]:
            p = one.p_holm if corrected else one.p
            found.append(0 if p is None or p > LEVEL or one.mean is None else int(np.sign(one.mean)))
        return found

    def counts(self, key: str, *, corrected: bool = True) -> tuple[int, int, int]:
        """In how many cells ours is above, below, or it is undecided."""
        tested = zip(self.signs(key, corrected=corrected), self.differences[key], strict=True)
        signs = [sign for sign, one in tested if one.p is not None]
        return signs.count(1), signs.count(-1), signs.count(0)

    def mean(self, key: str) -> float | None:
        """Over the cells; None where one of them lacks the number."""
        means = [one.mean for one in self.differences[key]]
        there = [mean for mean in means if mean is not None]
        return POINTS[key] * float(np.mean(there)) if there and len(there) == len(means) else None


def numbers_of_clients(tables: dict[Cell, list[Row]]) -> list[int]:
    return list(dict.fromkeys(cell.clients for cell in tables))


def pairs(tables: dict[Cell, list[Row]], clients: int) -> list[Pair]:
    """All comparisons that the tables allow, of cells with so many clients."""
    group = {cell: by_label(table, "last") for cell, table in tables.items() if cell.clients == clients}
    methods = list(dict.fromkeys(method for at in group.values() for method in at))
    others = [method for method in methods if method not in (*SERVER_DATA, WITHOUT, "standalone")]
    wanted = [
        *((SAME, OURS, rival) for rival in methods if rival in SERVER_DATA and rival != OURS),
        *((NEITHER, WITHOUT, rival) for rival in others),
        *((UNEQUAL, OURS, rival) for rival in others),
    ]
    return [_pair(kind, own, rival, group) for kind, own, rival in wanted if own in methods]


def _pair(kind: str, own: str, rival: str, group: dict[Cell, dict[str, Row]]) -> Pair:
    both = {cell: (at[own], at[rival]) for cell, at in group.items() if own in at and rival in at}
    differences: dict[str, list[Difference]] = {}
    over_cells: dict[str, list[float]] = {}
    for key in POINTS:
        theirs = "global" if key == "max" and rival in COPIES else key
        numbers = [{own: a.by_seed(key), rival: b.by_seed(theirs)} for a, b in both.values()]
        found = [_difference(one, own, rival) for one in numbers]
        corrected = iter(holm([one.p for one in found if one.p is not None]))
        differences[key] = [
            one if one.p is None else Difference(rival, one.seeds, one.mean, one.interval, one.p, next(corrected))
            for one in found
        ]
        over_cells[key] = _over_cells(numbers, own, rival, POINTS[key])
    return Pair(kind, own, rival, tuple(both), differences, over_cells)


def _difference(numbers: Mapping[str, BySeed], own: str, rival: str) -> Difference:
    found = judge(numbers)[own].differences
    return found[0] if found else Difference(rival, 0, None, None, None)


def _over_cells(numbers: Sequence[Mapping[str, BySeed]], own: str, rival: str, points: float) -> list[float]:
    """For each seed of which all cells have both numbers: our number less the rival's, mean over the cells."""
    found = []
    for seed in numbers[0][own] if numbers else ():
        by_cell = [(one[own].get(seed), one[rival].get(seed)) for one in numbers]
        there = [a - b for a, b in by_cell if a is not None and b is not None]
        if len(there) == len(by_cell):
            found.append(points * float(np.mean(there)))
    return found


def section(tables: dict[Cell, list[Row]]) -> list[str]:
    """The part of a page; nothing where there is nothing to compare."""
    first, *others = numbers_of_clients(tables)
    found = pairs(tables, first)
    if not found:
        return []
    parts = [
        "## With the same data, and without",
        EXPLAINED.rstrip(),
        _summary(found),
        "The best reward, cell by cell: mean difference in points and its 95 % interval; bold: significant with the\n"
        "correction for the number of cells.",
        _by_cell([pair for pair in found if pair.kind != UNEQUAL]),
    ]
    for clients in others:
        found = pairs(tables, clients)
        parts += [f"### The same with {clients} clients", _summary(found)]
        parts += ["Cell by cell:", _by_cell([pair for pair in found if pair.kind != UNEQUAL])]
    return parts


def _summary(found: Sequence[Pair]) -> str:
    lines = []
    for pair in found:
        line = [pair.kind, f"`{pair.ours}` less `{pair.rival}`", str(len(pair.cells))]
        for key in POINTS:
            line += [mean_text(pair, key), counts_text(pair, key)]
        lines.append(line)
    head = ["data", "difference", "cells"]
    for name in ("best reward", "gamma", "in BCF"):
        head += [name, "a / b / u"]
    return markdown(head, lines)


def mean_text(pair: Pair, key: str) -> str:
    mean, bounds = pair.mean(key), mean_interval(pair.over_cells[key])
    if mean is None:
        return "-"
    whole = all(one.seeds == len(pair.over_cells[key]) for one in pair.differences[key])
    return f"{mean:+.2f}" + (f" [{bounds[0]:+.2f}, {bounds[1]:+.2f}]" if bounds is not None and whole else "")


def counts_text(pair: Pair, key: str) -> str:
    if all(one.p is None for one in pair.differences[key]):
        return "-"
    corrected, alone = (" / ".join(map(str, pair.counts(key, corrected=how))) for how in (True, False))
    return f"{corrected} ({alone})"


def _by_cell(found: Sequence[Pair]) -> str:
    cells = list(dict.fromkeys(cell for pair in found for cell in pair.cells))
    lines = []
    for cell in cells:
        line = [named(cell)]
        for pair in found:
            at = pair.cells.index(cell) if cell in pair.cells else None
            line.append("-" if at is None else _entry(pair.differences["max"][at], pair.signs("max")[at]))
        lines.append(line)
    return markdown(["cell", *(f"`{pair.ours}` less `{pair.rival}`" for pair in found)], lines)


def _entry(one: Difference, sign: int) -> str:
    if one.mean is None:
        return "-"
    text = f"{100 * one.mean:+.2f}"
    if one.interval is not None:
        text += f" [{100 * one.interval[0]:+.2f}, {100 * one.interval[1]:+.2f}]"
    return f"**{text}**" if sign else text
