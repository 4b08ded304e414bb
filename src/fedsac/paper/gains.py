"""What collaborating gains, which the paper does not print: mean and spread of rewards less contributions (MCG and CGS)
of every row and column of its tables of accuracies and ablations."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev

from fedsac.atomic import write_atomic
from fedsac.core.fairness import cgs, mcg
from fedsac.paper.cells import span
from fedsac.paper.kinds import LABELS, gamma
from fedsac.paper.printed import DATA, TABLES, Column, printed, scene_name
from fedsac.paper.render import grid_lines
from fedsac.paper.results import Results, Run
from fedsac.paper.tables import Index, method_sources

COLUMNS_OF, ROWS_OF = ("table1", "table5"), ("table1", "table3")
EXPLAINED = """\
MCG and CGS (Tastan et al., CYCle, 2025): mean and spread (population standard deviation) over the clients of what they
gain, reward less accuracy alone, in percentage points on the test set; each as mean ±deviation over seeds. Where MCG is
negative, the clients would, on average, be better off alone. gamma shows neither: it is 100 where everyone is paid with
their own model, and MCG 0. The paper has no such table.
"""


@dataclass(frozen=True)
class Gain:
    """A row in a column at a label: for each seed MCG and CGS, in points."""

    row: str
    name: str
    column: Column
    label: str
    mcg: tuple[float, ...]
    cgs: tuple[float, ...]
    rounds: int


def gains(results: Results) -> list[Gain]:
    """Of all rows and columns that were run."""
    index, found = Index(results), list[Gain]()
    columns = list(dict.fromkeys(column for name in COLUMNS_OF for column in TABLES[name]))
    methods = dict.fromkeys(row for name in ROWS_OF for row in printed(name)[TABLES[name][0]] if row != "standalone")
    for source in (source for method in methods for source in method_sources(index, method, gamma)):
        for column in columns:
            runs = source.runs(column)
            found += [_gain(source.key, source.name, column, label, runs) for label in LABELS if runs]
    return found


def _gain(row: str, name: str, column: Column, label: str, runs: Sequence[Run]) -> Gain:
    pairs = [(run.contributions, run.labels[label].rewards) for run in runs]
    means, spreads = (tuple(100 * measure(c, theta) for c, theta in pairs) for measure in (mcg, cgs))
    return Gain(row, name, column, label, means, spreads, runs[0].rounds)


def gains_markdown(found: Sequence[Gain], mark: str) -> str:
    """The part of the page: a block for each data set and number of clients."""
    seeds, rounds = ({len(gain.mcg) for gain in found}, {gain.rounds for gain in found})
    made = f"{span(sorted(seeds), 'seed')}, {span(sorted(rounds), 'round')}"
    parts = [f"## What collaborating gains: MCG and CGS{mark} ({made})", EXPLAINED.rstrip()]
    for data, clients in dict.fromkeys((gain.column.data, gain.column.clients) for gain in found):
        block = [gain for gain in found if (gain.column.data, gain.column.clients) == (data, clients)]
        scenes = list(dict.fromkeys(gain.column.scene for gain in block))
        at = {(gain.row, gain.label, gain.column.scene): gain for gain in block}
        lines = [
            [name if first else "", label, *(_text(at.get((row, label, scene))) for scene in scenes)]
            for row, name in dict.fromkeys((gain.row, gain.name) for gain in block)
            for first, label in ((label == next(iter(LABELS)), label) for label in LABELS)
        ]
        title = DATA[data] + ("" if clients == 10 else f", {clients} clients")
        parts.append("\n".join(grid_lines([title, "MCG / CGS", *map(scene_name, scenes)], lines, left=2)))
    legend = ". ".join(f"{label}: {text}" for label, text in LABELS.items())
    return "\n\n".join(
        [*parts, f"{legend}. -: not run, or no other than the row above.", "As a file: [gains.csv](gains.csv)"]
    )


def _text(gain: Gain | None) -> str:
    if gain is None:
        return "-"
    return f"{_spread(gain.mcg, '+')} / {_spread(gain.cgs, '')}"


def _spread(values: Sequence[float], sign: str) -> str:
    return f"{mean(values):{sign}.2f}" + (f" ±{stdev(values):.1f}" if len(values) > 1 else "")


def write_gains(found: Sequence[Gain], path: Path) -> None:
    """As CSV: a line for each row, column and label."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ["data", "clients", "scene", "row", "label", *("mcg", "mcg_deviation", "cgs", "cgs_deviation"), "seeds"]
    )
    for gain in found:
        numbers = [*_numbers(gain.mcg), *_numbers(gain.cgs)]
        writer.writerow([*gain.column, gain.row, gain.label, *numbers, len(gain.mcg)])
    write_atomic(path, text.getvalue().encode())


def _numbers(values: Sequence[float]) -> list[str]:
    return [f"{mean(values):.6g}", f"{stdev(values):.6g}" if len(values) > 1 else ""]
