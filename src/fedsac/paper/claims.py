"""What the paper claims, cell by cell: where our results bear it out and where they do not, with the numbers."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from fedsac.paper.cells import Cell, Row, Table
from fedsac.paper.printed import METHODS, TABLES, Column, standalone_later
from fedsac.paper.results import Results
from fedsac.paper.tables import READS_BETA, Index, other_beta, table, table9_beta

POINTS = 3.0  # a number within this many points of the printed one counts as reproduced
SHARE = 0.05  # and so does a size within this share
ALONE = ("alone",)  # standalone accuracies have one label: they have no rounds


@dataclass(frozen=True)
class Verdict:
    """One cell: whether the claim holds there, and the numbers that say so."""

    column: Column
    holds: bool
    numbers: str


@dataclass(frozen=True)
class Claim:
    """A claim, and its verdicts by label in the cells that were run, of the `cells` that the paper has.

    `verdicts` are with Table 9's beta, our headline; `beside` with that of Tables 2 and 7, where there are such runs.
    """

    key: str
    text: str
    cells: int
    verdicts: dict[str, tuple[Verdict, ...]]
    beside: dict[str, tuple[Verdict, ...]]

    @property
    def tested(self) -> bool:
        return any(self.verdicts.values())

    def count(self, label: str, *, beside: bool = False) -> tuple[int, int]:
        """In how many cells it holds, of how many that were run."""
        verdicts = (self.beside if beside else self.verdicts).get(label, ())
        return sum(verdict.holds for verdict in verdicts), len(verdicts)

    def failures(self, label: str, *, beside: bool = False) -> list[Verdict]:
        """Where it fails; beside, only where the two settings differ: elsewhere it is the same failure."""
        if beside:
            return [v for v in self.beside.get(label, ()) if not v.holds and differ(v.column)]
        return [v for v in self.verdicts.get(label, ()) if not v.holds]


def differ(column: Column) -> bool:
    """Whether Table 9 and Tables 2 and 7 name different betas."""
    return other_beta(column) != table9_beta(column)


Judge = Callable[["Place", str], tuple[bool, str]]


@dataclass(frozen=True)
class Place:
    """A column of a table, seen with one of the two settings of beta."""

    table: Table
    number: int
    other: bool

    @property
    def column(self) -> Column:
        return self.table.columns[self.number]

    def cell(self, key: str) -> Cell:
        """A row's cell; with the other beta, where it differs, that of the variant."""
        row = self.table.row(f"{key}:other-beta" if self.other and differ(self.column) and key in READS_BETA else key)
        return Cell(None) if row is None else row.cells[self.number]

    def rows(self) -> Iterator[Row]:
        return (row for row in self.table.rows if not row.variant)

    def mean(self, key: str, label: str) -> float | None:
        return self.cell(key).mean(label)


def claims(results: Results) -> list[Claim]:
    """All of them; one that nothing was run for has no verdicts."""
    t = {name: table(name, results) for name in TABLES}
    best, sizes, fair = ("best", "last"), ("mean", "last"), ("fair", "last")
    peak = (*best, "peak")
    return [
        _claim("fairness-first", "FedSAC has the highest gamma (Table 1)", t["table1"], best, _first),
        _claim("accuracy-first", "FedSAC's best client has the highest accuracy (Table 2)", t["table2"], peak, _first),
        _claim(
            "accuracy-common",
            "FedSAC's best client is above FedAvg's common model (not a claim of the paper)",
            t["table2"],
            peak,
            _above_common,
            needs=("fedsac", "fedavg:common"),
        ),
        _claim(
            "fairness-close",
            f"FedSAC's gamma is within {POINTS:g} points of the printed one (Table 1)",
            t["table1"],
            best,
            _close("fedsac"),
            needs=("fedsac",),
        ),
        _claim(
            "standalone-close",
            f"Standalone's best accuracy is within {POINTS:g} points of the printed one (Table 2)",
            t["table2"],
            ALONE,
            _close("standalone"),
            needs=("standalone",),
        ),
        *_later(results),
        _claim(
            "ablation-fairness", "The ablations' gammas are ordered as printed (Table 3)", t["table3"], best, _order
        ),
        _claim(
            "ablation-accuracy", "The ablations' accuracies are ordered as printed (Table 4)", t["table4"], peak, _order
        ),
        _claim("clients-fairness", "More clients: FedSAC has the highest gamma (Table 5)", t["table5"], best, _first),
        _claim(
            "clients-accuracy",
            "More clients: FedSAC's best client has the highest accuracy (Table 6)",
            t["table6"],
            peak,
            _first,
        ),
        _claim("beta-accuracy", "The lowest beta has the best accuracy (Table 7)", t["table7"], fair, _lowest_beta),
        _claim("beta-lowest", "The lowest reward falls as beta grows (Table 7)", t["table7"], fair, _falling),
        _claim(
            "megabytes-close",
            f"FedSAC sends what is printed, within {100 * SHARE:g} % (Table 8)",
            t["table8"],
            sizes,
            _close_share,
            needs=("fedsac",),
        ),
        _claim("megabytes-less", "FedSAC sends less than every other method (Table 8)", t["table8"], sizes, _less),
    ]


def _claim(
    key: str, text: str, table: Table, labels: tuple[str, ...], judge: Judge, needs: tuple[str, ...] | None = None
) -> Claim:
    """Judged in every column where all rows it needs were run: all printed ones, if none are named."""
    keys = needs or tuple(row.key for row in table.rows if not row.variant)

    def judged(other: bool) -> dict[str, tuple[Verdict, ...]]:
        places = [Place(table, number, other) for number in range(len(table.columns))]
        run = [p for p in places if all(p.cell(key).ours for key in keys)]
        if other and not ("fedsac" in keys and any(differ(place.column) for place in run)):
            return {}
        return {label: tuple(Verdict(p.column, *judge(p, label)) for p in run) for label in labels}

    return Claim(key, text, len(table.columns), judged(False), judged(True))


def _first(place: Place, label: str) -> tuple[bool, str]:
    own = place.mean("fedsac", label)
    others = {row.name: place.mean(row.key, label) for row in place.rows() if row.key != "fedsac"}
    return _above(own, {name: mean for name, mean in others.items() if mean is not None})


def _above_common(place: Place, label: str) -> tuple[bool, str]:
    common = place.mean("fedavg:common", label)
    return _above(place.mean("fedsac", label), {} if common is None else {"FedAvg's common model": common})


def _above(own: float | None, others: dict[str, float]) -> tuple[bool, str]:
    top = max(others, key=lambda name: others[name], default=None)
    beside = "nobody else has one" if top is None else f"{top} {others[top]:.2f}"
    holds = own is not None and (top is None or own > others[top])
    return holds, f"FedSAC {_number(own)}, {beside}"


def _less(place: Place, label: str) -> tuple[bool, str]:
    own, others = place.mean("fedsac", label), [place.mean(r.key, label) for r in place.rows() if r.key != "fedsac"]
    least = min(mean for mean in others if mean is not None)
    return own is not None and own < least, f"FedSAC {_number(own)}, least of the others {least:.2f}"


def _close(key: str) -> Judge:
    def judge(place: Place, label: str) -> tuple[bool, str]:
        own, paper = place.mean(key, "last" if label == "alone" else label), place.mean(key, "paper")
        assert paper is not None
        return own is not None and near(own, paper), _beside(own, paper)

    return judge


def _close_share(place: Place, label: str) -> tuple[bool, str]:
    own, paper = place.mean("fedsac", label), place.mean("fedsac", "paper")
    assert own is not None
    assert paper is not None
    return abs(own / paper - 1) <= SHARE, f"{own:.2f}, printed {paper:.2f} ({100 * (own / paper - 1):+.1f} %)"


def _order(place: Place, label: str) -> tuple[bool, str]:
    def order(where: str) -> list[str]:
        means = {row.key: place.mean(row.key, where) for row in place.rows()}
        there = {key: mean for key, mean in means.items() if mean is not None}
        return sorted(there, key=lambda key: -there[key])

    ours, paper = order(label), order("paper")
    numbers = " > ".join(f"{METHODS[key]} {_number(place.mean(key, label))}" for key in ours)
    return ours == paper, f"{numbers}, printed {' > '.join(METHODS[key] for key in paper)}"


def _lowest_beta(place: Place, label: str) -> tuple[bool, str]:
    means = {row.name: place.mean(row.key, label) for row in place.rows()}
    lowest, *others = means.values()
    holds = lowest is not None and all(other is None or other < lowest for other in others)
    return holds, ", ".join(f"{name}: {_number(mean)}" for name, mean in means.items())


def _falling(place: Place, label: str) -> tuple[bool, str]:
    low = {row.name: place.cell(row.key).ours[label].lowest for row in place.rows()}
    there = [value for value in low.values() if value is not None]
    holds = len(there) == len(low) and all(a > b for a, b in pairwise(there))
    return holds, ", ".join(f"{name}: {_number(value)}" for name, value in low.items())


def _later(results: Results) -> list[Claim]:
    """Standalone accuracies against the lists that the authors published later."""
    index, top, each = Index(results), list[Verdict](), list[Verdict]()
    lists = standalone_later()
    for (data, scene), published in lists.items():
        column = Column(data, 10, scene)
        runs = index.any(column)
        if not runs:
            continue
        best, theirs = 100 * float(np.mean([max(run.contributions) for run in runs])), 100 * max(published)
        top.append(Verdict(column, near(best, theirs), _beside(best, theirs)))
        clients = 100 * np.abs(np.mean([run.contributions for run in runs], axis=0) - published)
        numbers = f"mean difference {clients.mean():.2f}, largest {clients.max():.2f}"
        each.append(Verdict(column, near(float(clients.mean()), 0), numbers))
    said = f"within {POINTS:g} points of the authors' later lists"
    return [
        Claim("standalone-later", f"Standalone's best accuracy is {said}", len(lists), {"alone": tuple(top)}, {}),
        Claim("standalone-clients", f"Standalone, client by client, is {said}", len(lists), {"alone": tuple(each)}, {}),
    ]


def near(own: float, paper: float) -> bool:
    return round(abs(own - paper), 6) <= POINTS


def _beside(own: float | None, paper: float) -> str:
    return f"{_number(own)}, printed {paper:.2f}" + ("" if own is None else f" ({own - paper:+.2f})")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
