"""What is wrong with a table, place by place: all of it, and not only the first."""

from collections.abc import Sequence
from dataclasses import dataclass

from fedsac.data.messages import shown
from fedsac.errors import FedsacError

FEW = 5  # faults of a column that are listed one by one even if they are most of its values


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: the file, the place in it, what it is and what to do.

    >>> str(Problem("a.csv", "line 3, column 'x'", "the value is missing; fill it in"))
    "a.csv: line 3, column 'x': the value is missing; fill it in"
    """

    where: str
    place: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.place}: {self.what}"


class ProblemsError(FedsacError):
    """Everything that is wrong with some tables; in one line, the first of it."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        more = len(problems) - 1
        rest = f" (and {more} more; fedsac data check lists all)" if more else ""
        super().__init__(f"{problems[0]}{rest}")


@dataclass(frozen=True)
class Fault:
    """A cell that is no value of its column: its row, counting from 0, and what is wrong with it."""

    row: int
    what: str


def of_column(where: str, name: str, faults: Sequence[Fault], lines: Sequence[str], count: int) -> list[Problem]:
    """A column's faults as problems; where most of its `count` cells are at fault, one stands for all."""
    if len(faults) > FEW and 2 * len(faults) > count:
        first = faults[0]
        what = f"{len(faults)} of {count} values do not fit, the first in {lines[first.row]}: {first.what}"
        return [Problem(where, f"column {shown(name)}", what)]
    return [Problem(where, f"{lines[fault.row]}, column {shown(name)}", fault.what) for fault in faults]
