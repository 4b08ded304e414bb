"""The paper's claims, checked in every column of its tables: where they hold in our results, with the numbers."""

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from fedsac.paper.cells import Cell, Row, Table
from fedsac.paper.printed import METHODS, TABLES, Column, standalone_later
from fedsac.paper.results import Results
from fedsac.paper.tables import READS_BETA, Index, other_beta, table, table9_beta
from fedsac.runs.statistics import VERDICTS, judge

CLOSE_POINTS = 3.0  # percentage points: a number this close to the printed one counts as reproduced
CLOSE_SHARE = 0.05  # relative: a size this close to the printed one counts as reproduced
ALONE_LABELS = ("alone",)  # the one label of standalone accuracies, which have no rounds


@dataclass(frozen=True)
class Verdict:
    """Whether a claim holds in one column, and the numbers that decide it. `significance`: one of `VERDICTS` where the
    claim is that one row is above all others, and there are seeds to test it with."""

    column: Column
    holds: bool
    numbers: str
    significance: str | None = None


@dataclass(frozen=True)
class Claim:
    """A claim, and its verdicts by label in the columns that were run; the paper has `cells` columns.

    `verdicts` are with FedSAC's beta of Table 9, which we report first; `verdicts_other_beta` with the beta of Tables 2
    and 7, if there are such runs.
    """

    key: str
    text: str
    cells: int
    verdicts: dict[str, tuple[Verdict, ...]]
    verdicts_other_beta: dict[str, tuple[Verdict, ...]]

    @property
    def tested(self) -> bool:
        return any(self.verdicts.values())

    def of_beta(self, other: bool) -> dict[str, tuple[Verdict, ...]]:
        """The verdicts with Table 9's beta, or with the other one."""
        return self.verdicts_other_beta if other else self.verdicts

    def count(self, label: str, *, other_beta: bool = False) -> tuple[int, int]:
        """In how many columns it holds, of how many that were run."""
        verdicts = self.of_beta(other_beta).get(label, ())
        return sum(verdict.holds for verdict in verdicts), len(verdicts)

    def significance(self, label: str, *, other_beta: bool = False) -> tuple[int, ...]:
        """In how many columns the claimed row is significantly first, beaten, and undecided."""
        found = [verdict.significance for verdict in self.of_beta(other_beta).get(label, ())]
        return tuple(found.count(verdict) for verdict in VERDICTS)

    def failures(self, label: str, *, other_beta: bool = False) -> list[Verdict]:
        """Where it fails; with the other beta only where the two betas differ, so that no failure is told twice."""
        failed = [v for v in self.of_beta(other_beta).get(label, ()) if not v.holds]
        return [v for v in failed if betas_differ(v.column)] if other_beta else failed


def betas_differ(column: Column) -> bool:
    """Whether Table 9 names another beta than Tables 2 and 7."""
    return other_beta(column) != table9_beta(column)


Judge = Callable[["ColumnView", str], tuple[bool, str] | tuple[bool, str, str | None]]
"""Whether a claim holds in a column at a label, the numbers as text, and for some claims the significance."""


@dataclass(frozen=True)
class ColumnView:
    """One column of a table, with one of FedSAC's two betas."""

    table: Table
    number: int
    other: bool

    @property
    def column(self) -> Column:
        return self.table.columns[self.number]

    def cell(self, key: str) -> Cell:
        """A row's cell; with the other beta, the cell of that variant if the betas differ."""
        row = self.table.row(
            f"{key}:other-beta" if self.other and betas_differ(self.column) and key in READS_BETA else key
        )
        return Cell(None) if row is None else row.cells[self.number]

    def rows(self) -> Iterator[Row]:
        """The printed rows, without variants."""
        return (row for row in self.table.rows if not row.variant)

    def mean(self, key: str, label: str) -> float | None:
        return self.cell(key).mean(label)

    def by_seed(self, key: str, label: str) -> dict[Hashable, float | None]:
        ours = self.cell(key).ours.get(label)
        return {} if ours is None else dict(zip(ours.of_seeds, ours.values, strict=True))

    def significance(self, label: str, own: str, rivals: Iterable[str]) -> str | None:
        """Whether a row is significantly first among these, beaten or undecided: paired tests over the shared seeds."""
        numbers = {key: self.by_seed(key, label) for key in (own, *rivals)}
        return judge(numbers, self.table.better)[own].verdict

    def others(self, own: str) -> list[str]:
        """The keys of all other printed rows."""
        return [row.key for row in self.rows() if row.key != own]


def claims(results: Results) -> list[Claim]:
    """All claims; those that nothing was run for have no verdicts."""
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
            f"FedSAC's gamma is within {CLOSE_POINTS:g} points of the printed one (Table 1)",
            t["table1"],
            best,
            _close("fedsac"),
            needs=("fedsac",),
        ),
        _claim(
            "standalone-close",
            f"Standalone's best accuracy is within {CLOSE_POINTS:g} points of the printed one (Table 2)",
            t["table2"],
            ALONE_LABELS,
            _close("standalone"),
            needs=("standalone",),
        ),
        *_standalone_later_claims(results),
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
            f"FedSAC sends what is printed, within {100 * CLOSE_SHARE:g} % (Table 8)",
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
    """Judge a claim in every column where all rows in `needs` were run (None: all printed rows)."""
    keys = needs or tuple(row.key for row in table.rows if not row.variant)

    def judged(other: bool) -> dict[str, tuple[Verdict, ...]]:
        views = [ColumnView(table, number, other) for number in range(len(table.columns))]
        run = [p for p in views if all(p.cell(key).ours for key in keys)]
        if other and not ("fedsac" in keys and any(betas_differ(view.column) for view in run)):
            return {}
        return {label: tuple(Verdict(p.column, *judge(p, label)) for p in run) for label in labels}

    return Claim(key, text, len(table.columns), judged(False), judged(True))


def _first(view: ColumnView, label: str) -> tuple[bool, str, str | None]:
    """FedSAC's number is above all others."""
    own = view.mean("fedsac", label)
    others = {row.name: view.mean(row.key, label) for row in view.rows() if row.key != "fedsac"}
    holds, numbers = _above_all(own, {name: mean for name, mean in others.items() if mean is not None})
    return holds, numbers, view.significance(label, "fedsac", view.others("fedsac"))


def _above_common(view: ColumnView, label: str) -> tuple[bool, str, str | None]:
    """FedSAC's number is above that of FedAvg's common model."""
    common = view.mean("fedavg:common", label)
    holds, numbers = _above_all(view.mean("fedsac", label), {} if common is None else {"FedAvg's common model": common})
    return holds, numbers, view.significance(label, "fedsac", ["fedavg:common"])


def _above_all(own: float | None, others: dict[str, float]) -> tuple[bool, str]:
    top = max(others, key=lambda name: others[name], default=None)
    best_other = "nobody else has one" if top is None else f"{top} {others[top]:.2f}"
    holds = own is not None and (top is None or own > others[top])
    return holds, f"FedSAC {_number(own)}, {best_other}"


def _less(view: ColumnView, label: str) -> tuple[bool, str, str | None]:
    """FedSAC's number is below all others."""
    own, others = view.mean("fedsac", label), [view.mean(r.key, label) for r in view.rows() if r.key != "fedsac"]
    least = min(mean for mean in others if mean is not None)
    numbers = f"FedSAC {_number(own)}, least of the others {least:.2f}"
    return own is not None and own < least, numbers, view.significance(label, "fedsac", view.others("fedsac"))


def _close(key: str) -> Judge:
    """A row's number is within `CLOSE_POINTS` of the printed one."""

    def judge(view: ColumnView, label: str) -> tuple[bool, str]:
        own, paper = view.mean(key, "last" if label == "alone" else label), view.mean(key, "paper")
        assert paper is not None
        return own is not None and is_close(own, paper), _own_and_printed(own, paper)

    return judge


def _close_share(view: ColumnView, label: str) -> tuple[bool, str]:
    """FedSAC's size is within `CLOSE_SHARE` of the printed one."""
    own, paper = view.mean("fedsac", label), view.mean("fedsac", "paper")
    assert own is not None
    assert paper is not None
    return abs(own / paper - 1) <= CLOSE_SHARE, f"{own:.2f}, printed {paper:.2f} ({100 * (own / paper - 1):+.1f} %)"


def _order(view: ColumnView, label: str) -> tuple[bool, str]:
    """The rows, sorted by their numbers, are in the printed order."""

    def order(where: str) -> list[str]:
        means = {row.key: view.mean(row.key, where) for row in view.rows()}
        known = {key: mean for key, mean in means.items() if mean is not None}
        return sorted(known, key=lambda key: -known[key])

    ours, paper = order(label), order("paper")
    numbers = " > ".join(f"{METHODS[key]} {_number(view.mean(key, label))}" for key in ours)
    return ours == paper, f"{numbers}, printed {' > '.join(METHODS[key] for key in paper)}"


def _lowest_beta(view: ColumnView, label: str) -> tuple[bool, str, str | None]:
    """The first row, the lowest beta, has the highest number."""
    means = {row.name: view.mean(row.key, label) for row in view.rows()}
    lowest, *others = means.values()
    holds = lowest is not None and all(other is None or other < lowest for other in others)
    numbers = ", ".join(f"{name}: {_number(mean)}" for name, mean in means.items())
    first = next(view.rows()).key
    return holds, numbers, view.significance(label, first, view.others(first))


def _falling(view: ColumnView, label: str) -> tuple[bool, str]:
    """The lowest rewards fall from row to row."""
    low = {row.name: view.cell(row.key).ours[label].lowest for row in view.rows()}
    known = [value for value in low.values() if value is not None]
    holds = len(known) == len(low) and all(a > b for a, b in pairwise(known))
    return holds, ", ".join(f"{name}: {_number(value)}" for name, value in low.items())


def _standalone_later_claims(results: Results) -> list[Claim]:
    """Standalone accuracies compared with the lists that the authors published later."""
    index, top, each = Index(results), list[Verdict](), list[Verdict]()
    lists = standalone_later()
    for (data, scene), published in lists.items():
        column = Column(data, 10, scene)
        runs = index.any(column)
        if not runs:
            continue
        best, theirs = 100 * float(np.mean([max(run.contributions) for run in runs])), 100 * max(published)
        top.append(Verdict(column, is_close(best, theirs), _own_and_printed(best, theirs)))
        # In DIR no client is like the other's of the same number: there the k-th best is compared with the k-th best.
        dealt_at_random = scene.startswith("dir")
        ours = [sorted(run.contributions) if dealt_at_random else run.contributions for run in runs]
        listed = sorted(published) if dealt_at_random else published
        clients = 100 * np.abs(np.mean(ours, axis=0) - listed)
        numbers = f"mean difference {clients.mean():.2f}, largest {clients.max():.2f}"
        each.append(Verdict(column, is_close(float(clients.mean()), 0), numbers))
    within = f"within {CLOSE_POINTS:g} points of the authors' later lists"
    return [
        Claim("standalone-later", f"Standalone's best accuracy is {within}", len(lists), {"alone": tuple(top)}, {}),
        Claim(
            "standalone-clients",
            f"Standalone, on average over the clients, is {within}",
            len(lists),
            {"alone": tuple(each)},
            {},
        ),
    ]


def is_close(own: float, paper: float) -> bool:
    return round(abs(own - paper), 6) <= CLOSE_POINTS


def _own_and_printed(own: float | None, paper: float) -> str:
    return f"{_number(own)}, printed {paper:.2f}" + ("" if own is None else f" ({own - paper:+.2f})")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
