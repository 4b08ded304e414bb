"""docs/results/long.md: FedSAC in both readings, FedAvg and FedRAC over thousands of rounds."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.studies.definitions import Cell
from benchmarks.studies.measures import by_label, how_made, named, read_cells, rows
from benchmarks.studies.raw import Raw
from benchmarks.studies.tables import estimate, markdown
from fedsac.report.charts import Series, lines
from fedsac.report.drawing import svg
from fedsac.runs.labels import LABELS

ROUNDS = (100, 300, 1000, 3000)
KEYS = (
    *(("gamma", "gamma", 2), ("bcf", "in BCF", 2), ("best", "best reward", 4)),
    *(("mean", "mean", 4), ("global", "global", 4)),
)
CURVES = (("gamma", 1, "gamma"), ("best", 100, "best reward (%)"), ("global", 100, "common model's accuracy (%)"))
MAX_POINTS = 100  # of a line: more make a picture larger, not clearer
COMMAND = "python -m benchmarks.studies long OUT --device cuda"
INTRODUCTION = """\
Settings of `--preset paper`: Table 9's, and contributions on the test set decide, as in the paper. Every client stands
alone for as many steps as it trains in the whole run, so contributions, and with them gamma and BCF at round 100, are
not those of a run that ends there. `fedsac-over-n` is the other reading of Eq. 9: updates divided by N.

The commit that is named above is not in the repository's history any more: the source that ran is not kept there.

The raw results are in `docs/results/long/`; `python -m benchmarks.studies page long` writes this page from them.
"""
EXPLAINED = """\
Means over seeds, and in brackets the lowest and the highest seed; k/n: the number exists for k of n seeds; "-": it does
not exist. The first table of a scene shows single rounds, the last of which is the label `last`; the second the rounds
that the labels choose: `selected`, the evaluated round with the highest gamma on validation data; `best`, the one with
the highest gamma on the test set, the paper's rule; and the highest best reward of any evaluated round, chosen on the
test set, too. *in BCF*: the share of clients inside it; *mean*: the mean reward; *global*: the accuracy of the common
model (FedAvg's rewards are copies of it that were trained one epoch more on the client's own data). Pictures: means
over seeds, of at most a hundred evaluated rounds, evenly spaced.
"""


def write(docs: Path) -> list[Path]:
    """The page and its pictures, from the raw files in docs/long."""
    cells, heads = read_cells(docs / "long", "long")
    page = ["# Long runs", how_made(heads, cells, COMMAND), INTRODUCTION.rstrip(), EXPLAINED.rstrip()]
    pictures = []
    for cell, runs in cells.items():
        drawn = draw(docs / "long", cell, runs)
        pictures += drawn
        page += [f"## {named(cell)}", rounds_table(runs), labels_table(runs)]
        page += [f"![{path.stem}](long/{path.name})" for path in drawn]
    path = docs / "long.md"
    path.write_text("\n\n".join(page) + "\n", encoding="utf-8")
    return [path, *pictures]


def by_method(runs: Sequence[Raw]) -> dict[str, list[Raw]]:
    methods = dict.fromkeys(run["method"] for run in runs)
    return {method: [run for run in runs if run["method"] == method] for method in methods}


def rounds_table(runs: Sequence[Raw]) -> str:
    """Every method at the rounds of `ROUNDS` that were evaluated, and at the last one."""
    evaluated = runs[0]["curve"]["round"]
    shown = [t for t in ROUNDS if t in evaluated and t != evaluated[-1]] + [evaluated[-1]]
    made = []
    for method, own in by_method(runs).items():
        for t in shown:
            at = [run["curve"]["round"].index(t) for run in own]
            values = {key: [run["curve"][key][i] for run, i in zip(own, at, strict=True)] for key, *_ in KEYS}
            made.append([f"`{method}`", str(t), *(_spread(values[key], digits) for key, _, digits in KEYS)])
    return markdown(["method", "round", *(heading for _, heading, _ in KEYS)], made)


def labels_table(runs: Sequence[Raw]) -> str:
    """The rounds that the labels choose, and the peak of the best reward."""
    table = rows(runs, "test")
    at = {label: by_label(table, label) for label in LABELS}
    head = ["method", *(f"gamma {label}" for label in LABELS), *(f"best reward {label}" for label in LABELS)]
    head += ["round selected", "round best", "highest best reward", "at round"]
    made = []
    for method, own in by_method(runs).items():
        numbers = [
            estimate(at[label][method], key, digits) for key, digits in (("gamma", 2), ("max", 4)) for label in LABELS
        ]
        chosen = [_spread([float(run["labels"][label]["round"]) for run in own], 0) for label in ("selected", "best")]
        peaks = [max(zip(run["curve"]["best"], run["curve"]["round"], strict=True)) for run in own]
        highest, when = _spread([peak for peak, _ in peaks], 4), _spread([float(t) for _, t in peaks], 0)
        made.append([f"`{method}`", *numbers, *chosen, highest, when])
    return markdown(head, made)


def draw(folder: Path, cell: Cell, runs: Sequence[Raw]) -> list[Path]:
    """A picture for each of `CURVES`: means over seeds, round by round."""
    written = []
    for key, factor, what in CURVES:
        series = [_series(method, own, key, factor) for method, own in by_method(runs).items()]
        drawing = lines(f"{named(cell)}: {what} over the rounds", series, "round", what, direct=False)
        written.append(folder / f"{cell.file}-{key}.svg")
        written[-1].write_text(svg(drawing), encoding="utf-8")
    return written


def _series(method: str, runs: Sequence[Raw], key: str, factor: float) -> Series:
    """The mean over seeds in the rounds where all have the number: every k-th evaluated one, and the last."""
    evaluated = runs[0]["curve"]["round"]
    step = -(-len(evaluated) // MAX_POINTS)
    points, gaps = [], []
    for i in range((len(evaluated) - 1) % step, len(evaluated), step):
        t, values = evaluated[i], [run["curve"][key][i] for run in runs]
        if None in values:
            gaps.append(t)
        else:
            points.append((t, factor * float(np.mean(values))))
    return Series(method, tuple(points), gaps=tuple(gaps))


def _spread(values: Sequence[float | None], digits: int) -> str:
    there = [value for value in values if value is not None]
    if not there:
        return "-"
    text = f"{np.mean(there):.{digits}f}"
    if max(there) > min(there):
        text += f" [{min(there):.{digits}f}, {max(there):.{digits}f}]"
    return text if len(there) == len(values) else f"{text} {len(there)}/{len(values)}"
