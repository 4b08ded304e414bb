"""Figures of several methods and seeds side by side."""

from collections.abc import Sequence
from typing import Protocol

from fedsac.report.charts import Series, scatter
from fedsac.report.shapes import Drawing


class Point(Protocol):
    """What a row of a comparison has."""

    @property
    def method(self) -> str: ...

    @property
    def label(self) -> str: ...

    def mean(self, key: str) -> float | None: ...


def fairness_accuracy(rows: Sequence[Point], title: str, label: str = "last") -> Drawing:
    """Best reward (across) and gamma (up) of each method at one label; the upper right corner is where one wants to be.
    Methods whose gamma does not exist are left out."""
    series = []
    for row in (row for row in rows if row.label == label):
        x, y = row.mean("max"), row.mean("gamma")
        points = () if x is None or y is None else ((100 * x, y),)
        series.append(Series(row.method, points, labels=(row.method,)))
    return scatter(f"{title}: fairness against accuracy ({label})", series, "best reward (%)", "gamma")
