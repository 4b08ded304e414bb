"""Plain facts about results that no single table shows: distances from the paper, and whether training had settled."""

from dataclasses import dataclass

import numpy as np

from fedsac.paper.cells import Table
from fedsac.paper.claims import near
from fedsac.paper.printed import METHODS, TABLES, printed
from fedsac.paper.results import Results

SETTLED = 0.005  # of accuracy on V


@dataclass(frozen=True)
class Distance:
    """How far a row lies from the printed one, at one label: in how many of its cells within 3 points, and how far in
    the mean and at most."""

    name: str
    label: str
    within: int
    cells: int
    mean: float
    largest: float


def distances(table: Table) -> list[Distance]:
    """For every row that was run, at every label."""
    found = []
    for row in table.rows:
        for label in table.labels:
            pairs = [(cell.mean(label), cell.mean("paper")) for cell in row.cells]
            there = [(own, paper) for own, paper in pairs if own is not None and paper is not None]
            if there:
                away = [abs(own - paper) for own, paper in there]
                within = sum(near(own, paper) for own, paper in there)
                found.append(Distance(row.name, label, within, len(there), float(np.mean(away)), max(away)))
    return found


@dataclass(frozen=True)
class Settled:
    """How much the mean reward on V still rose in the second half of the rounds and in their last quarter, in the
    median over a method's runs; in how many runs the last quarter brought at most .005."""

    name: str
    runs: int
    settled: int
    half: float
    quarter: float


def plateau(results: Results) -> list[Settled]:
    """The evidence for the number of rounds, method by method."""
    found = []
    for method in dict.fromkeys([*METHODS, *(run.method for run in results.runs)]):
        runs = [run.plateau for run in results.runs if run.method == method]
        if runs:
            half = [last - middle for middle, _, last in runs]
            quarter = [last - late for _, late, last in runs]
            settled = sum(round(rise, 6) <= SETTLED for rise in quarter)
            name = METHODS.get(method, method)
            found.append(Settled(name, len(runs), settled, float(np.median(half)), float(np.median(quarter))))
    return found


def not_first() -> list[str]:
    """Where another method's printed number is above FedSAC's, which Tables 1 to 6 mark as the best everywhere."""
    found = []
    for name in list(TABLES)[:6]:
        for column, rows in printed(name).items():
            top = max(rows, key=lambda row: rows[row].value)
            if top != "fedsac":
                best, own = rows[top].value, rows["fedsac"].value
                number = name.removeprefix("table")
                found.append(
                    f"Table {number}, {column}: FedSAC's {own:.2f} is marked as best; {METHODS[top]} has {best:.2f}."
                )
    return found
