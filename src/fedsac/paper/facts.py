"""Facts that no single table shows: distances from the printed numbers, and whether training had converged."""

from dataclasses import dataclass

import numpy as np

from fedsac.paper.cells import Table
from fedsac.paper.claims import is_close
from fedsac.paper.printed import METHODS, TABLES, printed
from fedsac.paper.results import Results

SETTLED_RISE = 0.005  # of accuracy on V in the last quarter of the rounds, at most, for a run that counts as settled


@dataclass(frozen=True)
class Distance:
    """How far a row is from the printed one at one label: the number of cells within 3 points, and the mean and largest
    difference in points."""

    name: str
    label: str
    within: int
    cells: int
    mean: float
    largest: float


def distances(table: Table) -> list[Distance]:
    """The distance of every row that was run, at every label."""
    rows = []
    for row in table.rows:
        for label in table.labels:
            cells = [(cell.mean(label), cell.mean("paper")) for cell in row.cells]
            pairs = [(own, paper) for own, paper in cells if own is not None and paper is not None]
            if pairs:
                differences = [abs(own - paper) for own, paper in pairs]
                within = sum(is_close(own, paper) for own, paper in pairs)
                mean, largest = float(np.mean(differences)), max(differences)
                rows.append(Distance(row.name, label, within, len(pairs), mean, largest))
    return rows


@dataclass(frozen=True)
class Settled:
    """How much the mean reward on V rose in the second half of the rounds and in their last quarter (medians over a
    method's runs), and in how many runs by at most `SETTLED_RISE` in the last quarter."""

    name: str
    runs: int
    settled: int
    half: float
    quarter: float


def plateau(results: Results) -> list[Settled]:
    """Whether the number of rounds was enough, method by method."""
    methods = []
    for method in dict.fromkeys([*METHODS, *(run.method for run in results.runs)]):
        runs = [run.plateau for run in results.runs if run.method == method]
        if runs:
            half = [last - middle for middle, _, last in runs]
            quarter = [last - late for _, late, last in runs]
            settled = sum(round(rise, 6) <= SETTLED_RISE for rise in quarter)
            name = METHODS.get(method, method)
            methods.append(Settled(name, len(runs), settled, float(np.median(half)), float(np.median(quarter))))
    return methods


def not_first() -> list[str]:
    """The cells of Tables 1 to 6 where the paper marks FedSAC as best although another printed number is higher."""
    lines = []
    for name in list(TABLES)[:6]:
        for column, rows in printed(name).items():
            top = max(rows, key=lambda row: rows[row].value)
            if top != "fedsac":
                best, own = rows[top].value, rows["fedsac"].value
                number = name.removeprefix("table")
                lines.append(
                    f"Table {number}, {column}: FedSAC's {own:.2f} is marked as best; {METHODS[top]} has {best:.2f}."
                )
    return lines
