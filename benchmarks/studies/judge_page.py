"""docs/results/judge.md: FedSAC+ against its goal, cell by cell, and where every method lies."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.studies.definitions import Cell
from benchmarks.studies.measures import by_label, how_made, named, not_made, read_cells, rows
from benchmarks.studies.same_data import COPIES, NEITHER, SERVER_DATA, mean_text, numbers_of_clients, pairs, section
from benchmarks.studies.tables import COLUMNS_EXPLAINED, VERDICTS_EXPLAINED, cell_table, estimate, markdown
from fedsac.paper.printed import DATA
from fedsac.report.charts import Series, scatter
from fedsac.report.drawing import svg
from fedsac.runs.comparison import Row
from fedsac.runs.statistics import mean_interval

OURS, RIVAL = "fedsac-plus", "fedavg-server"
LEAST_SHARE, MOST_BELOW_ATTAINABLE, MOST_BELOW_RIVAL = 0.98, 0.5, 0.3  # the goal; the last in points of accuracy
COMMAND = "python -m benchmarks.studies judge OUT --device cuda"
INTRODUCTION = """\
FedSAC+ was designed on development splits of CIFAR-10 and Fashion-MNIST, cut from their training data (split seeds 100
and 101, docs/fedsac-plus.md). Here it is judged on the test sets, with seeds that were not used before, on SVHN, which
played no part in the design{twenty}. Figures of its first edition on SVHN had been seen before. Table 9's settings;
contributions measured on V; SVHN's images are re-cropped, 30,000 to train with and 10,000 to test. The cells with 10
clients ran side by side on one GPU, in 11 minutes; those with 20 beside other work: `seconds`, which adds up their
processes, is no measure of speed. Between the two commits no number changed (`python -m benchmarks.same_numbers
008cace`: every method, on the digits, to the last bit).

The raw results are in `docs/results/judge/`; `python -m benchmarks.studies page judge` writes this page from them.
"""
GOAL = f"""\
All numbers of this section are of `last` rounds, means over seeds. The goal: a share of {LEAST_SHARE} or more inside
BCF (only the best contributor is exempt from its upper bound); gamma at most {MOST_BELOW_ATTAINABLE} below the
attainable one; the best reward at most {MOST_BELOW_RIVAL} points below FedAvg with the same server data
(`{RIVAL}`), and above it on average; no client worse off than alone. FedAvg's common model is what everyone gets;
the rewards of `{RIVAL}` are copies of it that were trained one epoch more on the client's own data, the best of which
is compared beside it. Differences are in points of accuracy, ours less FedAvg's, seed by seed, with the 95 % interval
of their mean. *Worse off*: clients, of all seeds together, whose reward is below what they have alone.
"""


GOALS = {  # the keys of `Judged.reached`, and what is asked of the cells together
    "inside BCF": f"a share of {LEAST_SHARE} or more inside BCF, in every cell",
    "gamma": f"gamma at most {MOST_BELOW_ATTAINABLE} below the attainable one, in every cell",
    "reward": f"best reward at most {MOST_BELOW_RIVAL} points below the common model of FedAvg with the same server "
    "data, in every cell",
    "average": "best reward above that model on average over the cells",
    "nobody worse off": "no client worse off than alone, in any cell",
}
IN_SHORT = ("", "cells", "not in (value there)")


@dataclass(frozen=True)
class Judged:
    """FedSAC+ in one cell, at the last round. `differences` are ours less the rival's, seed by seed, in points."""

    cell: Cell
    ours: Row
    to_common: list[float | None]
    to_best: list[float | None]

    @property
    def behind(self) -> float | None:
        """How far gamma is below the attainable one, over the seeds that have both."""
        pairs = zip(self.ours.values["gamma"], self.ours.values["gamma_attainable"], strict=True)
        there = [limit - gamma for gamma, limit in pairs if gamma is not None and limit is not None]
        return float(np.mean(there)) if there else None

    @property
    def worse_off(self) -> int:
        return int(sum(value or 0 for value in self.ours.values["below"]))

    def reached(self) -> dict[str, bool]:
        """Which parts of the goal the means reach."""
        share = self.ours.mean("bcf")
        return {
            "inside BCF": share is not None and share >= LEAST_SHARE,
            "gamma": self.behind is not None and self.behind <= MOST_BELOW_ATTAINABLE,
            "reward": (mean := _mean(self.to_common)) is not None and mean >= -MOST_BELOW_RIVAL,
            "nobody worse off": self.worse_off == 0,
        }


def write(docs: Path) -> list[Path]:
    """The page and its pictures, from the raw files in docs/judge."""
    cells, heads = read_cells(docs / "judge", "judge")
    tables = {cell: rows(runs, "validation") for cell, runs in cells.items()}
    judged = [judge(cell, table) for cell, table in tables.items()]
    pictures = frontier(docs / "judge", tables)
    page = [
        "# FedSAC+, judged",
        *in_short(judged),
        *same_data_in_short(tables),
        *not_made("judge", cells),
        *rows_not_made(tables),
        "## How it was made",
        how_made(heads, cells, COMMAND),
        INTRODUCTION.rstrip().format(
            twenty=", and with 20 clients" if any(cell.clients > 10 for cell in cells) else ""
        ),
        "## The goal, cell by cell",
        GOAL.rstrip(),
        summary(judged),
        goal_table(judged),
        *section(tables),
        "## The frontier",
        "Means over the cells of a data set and number of clients, `last` rounds; `fedsac-plus`, `fedavg-server`, "
        "`fedrac-server` and `server-alone` train on V, the others do not. A method whose gamma does not exist "
        "in some cell (equal rewards for all have none) has no mean and no point in the pictures, which are of the "
        "fewest clients, all data sets together.",
        frontier_table(tables),
        *(f"![{path.stem}](judge/{path.name})" for path in pictures),
        "## Every method in every cell",
        COLUMNS_EXPLAINED
        + VERDICTS_EXPLAINED.rstrip()
        + " They are against all rows, those that train on\nV and those that do not, which is unequal: see [the same "
        "data](#with-the-same-data-and-without).",
    ]
    for cell, table in tables.items():
        page += [f"### {named(cell)}", cell_table(table)]
    path = docs / "judge.md"
    path.write_text("\n\n".join(page) + "\n", encoding="utf-8")
    return [path, *pictures]


def in_short(judged: Sequence[Judged]) -> list[str]:
    """For each part of the goal, by number of clients: in how many cells it is reached, and where it is not."""
    parts = [
        "The goal set for FedSAC+, part by part (`last` rounds, means over seeds;\n"
        "[in numbers](#the-goal-cell-by-cell)). Its server trains on one half of V, and so does that of the FedAvg it\n"
        "is compared with here."
    ]
    for clients in dict.fromkeys(one.cell.clients for one in judged):
        group = [one for one in judged if one.cell.clients == clients]
        lines = []
        for part, words in GOALS.items():
            if part == "average":
                lines.append([words, *_average(group), ""])
                continue
            missed = [f"{named(one.cell)} ({_missed(one, part)})" for one in group if not one.reached()[part]]
            lines.append(
                [words, _verdict(not missed), f"{len(group) - len(missed)} of {len(group)}", "; ".join(missed)]
            )
        whole = sum(all(one.reached().values()) for one in group)
        lines.append(["all that is asked of a cell", _verdict(whole == len(group)), f"{whole} of {len(group)}", ""])
        body = ["| " + " | ".join(line) + " |" for line in ([f"{clients} clients", *IN_SHORT], *lines)]
        parts.append("\n".join([body[0], "| --- | --- | --- | --- |", *body[1:]]))
    return parts


def _average(group: Sequence[Judged]) -> tuple[str, str]:
    """Whether our best reward is above FedAvg's common model on average, and the mean over the cells with the 95 %
    interval over the seeds."""
    by_seed = [
        float(np.mean(there))
        for seed in zip(*(one.to_common for one in group), strict=True)
        if len(there := [value for value in seed if value is not None]) == len(group)
    ]
    means = [mean for one in group if (mean := _mean(one.to_common)) is not None]
    mean, bounds = (float(np.mean(means)) if means else None), mean_interval(by_seed)
    if mean is None:
        return "no", "-"
    return _verdict(mean > 0), f"{mean:+.2f}" + ("" if bounds is None else f" [{bounds[0]:+.2f}, {bounds[1]:+.2f}]")


def _missed(one: Judged, part: str) -> str:
    """By what a cell misses a part of the goal."""
    if part == "inside BCF":
        return estimate(one.ours, "bcf", 3)
    if part == "gamma":
        return "-" if one.behind is None else f"{one.behind:.2f} below"
    if part == "reward":
        return "-" if (mean := _mean(one.to_common)) is None else f"{mean:+.2f}"
    return f"{one.worse_off} of {one.cell.clients * len(one.ours.seeds)}"


def _verdict(reached: bool) -> str:
    return "reached" if reached else "**not reached**"


def same_data_in_short(tables: dict[Cell, list[Row]]) -> list[str]:
    """Sentences on FedSAC+ without server data against the others that have none."""
    said = [part for clients in numbers_of_clients(tables) if (part := _in_short(tables, clients))]
    if not said:
        return []
    return [
        "The servers of FedAvg, FedSAC and Aequa train on nothing. To be compared with them FedSAC+ has to do without "
        "its training,\ntoo: `fedsac-plus-no-server`. Its best reward, mean over the cells with its 95 % interval "
        "([more](#with-the-same-data-and-without)):",
        *said,
    ]


def _in_short(tables: dict[Cell, list[Row]], clients: int) -> str:
    """The list for so many clients; empty where there is nothing to compare."""
    lines = []
    for pair in (pair for pair in pairs(tables, clients) if pair.kind == NEITHER):
        above, below, undecided = pair.counts("max")
        model = "'s common model" if pair.rival in COPIES else "'s"
        lines.append(
            f"- {clients} clients, less `{pair.rival}`{model}: {mean_text(pair, 'max')} points; significantly above in "
            f"{above}, below in {below}, undecided in {undecided} of {len(pair.cells)} cells. Inside BCF: "
            f"{mean_text(pair, 'bcf')} points."
        )
    return "\n".join(lines)


def rows_not_made(tables: dict[Cell, list[Row]]) -> list[str]:
    """Which methods that train on V have no row here, though the methods page has one."""
    there = {row.method for table in tables.values() for row in table}
    missing = [f"`{method}`" for method in SERVER_DATA if method not in there]
    if not missing or "server-alone" not in there:  # a try
        return []
    return [
        f"Of the methods that train on V the judging lacks {' and '.join(missing)}, which are on the [methods\n"
        "page](methods.md), with 100 rounds."
    ]


def judge(cell: Cell, table: Sequence[Row]) -> Judged:
    at = by_label(table, "last")
    ours, rival = at[OURS], at[RIVAL]
    return Judged(cell, ours, _differences(ours, rival, "global"), _differences(ours, rival, "max"))


def _differences(ours: Row, rival: Row, key: str) -> list[float | None]:
    """Our best reward less the rival's number, in points, for each seed that both have."""
    theirs = rival.by_seed(key)
    pairs = [(own, theirs.get(seed)) for seed, own in ours.by_seed("max").items()]
    return [None if own is None or other is None else 100 * (own - other) for own, other in pairs]


def goal_table(judged: Sequence[Judged]) -> str:
    head = ["cell", f"in BCF >= {LEAST_SHARE}", "gamma", "attainable", f"less <= {MOST_BELOW_ATTAINABLE}"]
    head += ["best reward", "less FedAvg's common model", f">= -{MOST_BELOW_RIVAL}", "less FedAvg's best reward"]
    lines = []
    for one in judged:
        met = {part: "yes" if holds else "no" for part, holds in one.reached().items()}
        behind = "-" if one.behind is None else f"{one.behind:.2f}"
        lines.append(
            [
                named(one.cell),
                f"{estimate(one.ours, 'bcf', 3)} {met['inside BCF']}",
                estimate(one.ours, "gamma", 2, interval=True),
                estimate(one.ours, "gamma_attainable", 2),
                f"{behind} {met['gamma']}",
                estimate(one.ours, "max", 4),
                _with_interval(one.to_common),
                met["reward"],
                _with_interval(one.to_best),
                f"{one.worse_off} of {one.cell.clients * len(one.ours.seeds)}",
            ]
        )
    return markdown([*head, "worse off"], lines)


def summary(judged: Sequence[Judged]) -> str:
    """In how many cells each part of the goal is reached, by number of clients."""
    lines = []
    for clients in dict.fromkeys(one.cell.clients for one in judged):
        group = [one for one in judged if one.cell.clients == clients]
        met = {part: sum(one.reached()[part] for one in group) for part in group[0].reached()}
        intervals = [bounds for one in group if (bounds := mean_interval(one.to_common)) is not None]
        surely = sum(low > -MOST_BELOW_RIVAL for low, _ in intervals)
        missed = sum(high < -MOST_BELOW_RIVAL for _, high in intervals)
        means = [mean for one in group if (mean := _mean(one.to_common)) is not None]
        lines.append(
            f"- {clients} clients, {len(group)} cells: inside BCF reached in {met['inside BCF']}, gamma in "
            f"{met['gamma']}, best reward in {met['reward']} by its mean (the whole interval above "
            f"-{MOST_BELOW_RIVAL} in {surely}, below it in {missed}), nobody worse off in {met['nobody worse off']}, "
            f"all four in {sum(all(one.reached().values()) for one in group)}. Best reward less FedAvg's common model, "
            f"mean over the cells: {np.mean(means):+.2f} points."
        )
    return "\n".join(lines)


def frontier_table(tables: dict[Cell, list[Row]]) -> str:
    head = ["data, clients, method", "gamma", "attainable", "in BCF", "best reward", "global", "mean", "lose"]
    keys = [("gamma", 2), ("gamma_attainable", 2), ("bcf", 3), ("max", 4), ("global", 4), ("mean", 4), ("losers", 2)]
    lines = []
    for data, clients in dict.fromkeys((cell.data, cell.clients) for cell in tables):
        group = [table for cell, table in tables.items() if (cell.data, cell.clients) == (data, clients)]
        for method in by_label(group[0], "last"):
            numbers = [(over_cells(group, method, key), digits) for key, digits in keys]
            shown = ["-" if value is None else f"{value:.{digits}f}" for value, digits in numbers]
            lines.append([f"{DATA.get(data, data)}, {clients}, `{method}`", *shown])
    return markdown(head, lines)


def frontier(folder: Path, tables: dict[Cell, list[Row]]) -> list[Path]:
    """Two pictures: gamma across, and up the share inside BCF or the best reward; means over all cells with as many
    clients as the first."""
    clients = next(iter(tables)).clients
    group = [table for cell, table in tables.items() if cell.clients == clients]
    written = []
    for key, name, what in (("bcf", "bcf", "clients inside BCF (%)"), ("max", "reward", "best reward (%)")):
        series = []
        for method in by_label(group[0], "last"):
            x, y = over_cells(group, method, "gamma"), over_cells(group, method, key)
            points = () if x is None or y is None else ((x, 100 * y),)
            series.append(Series(method, points))
        title = f"Means over {len(group)} cells, {clients} clients, last round"
        written.append(folder / f"frontier-{name}.svg")
        written[-1].write_text(svg(scatter(title, series, "gamma", what)), encoding="utf-8")
    return written


def over_cells(tables: Sequence[Sequence[Row]], method: str, key: str) -> float | None:
    """The mean over cells of a method's means at the last round; None if one of them does not exist."""
    means = [by_label(table, "last")[method].mean(key) for table in tables]
    there = [mean for mean in means if mean is not None]
    return float(np.mean(there)) if len(there) == len(means) else None


def _mean(values: Sequence[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return float(np.mean(there)) if there else None


def _with_interval(differences: Sequence[float | None]) -> str:
    mean, bounds = _mean(differences), mean_interval(differences)
    if mean is None:
        return "-"
    return f"{mean:+.2f}" + ("" if bounds is None else f" [{bounds[0]:+.2f}, {bounds[1]:+.2f}]")
