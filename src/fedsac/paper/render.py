"""Tables as people read them: on a terminal, in Markdown, as CSV."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table as Grid
from rich.text import Text

from fedsac.atomic import write_atomic
from fedsac.paper.cells import Cell, Row, Table
from fedsac.paper.printed import DATA, Column, scene_name

MOVED = "≠"
NAME_WIDTH = 16  # of a row's name on a terminal, at most; longer ones take a second line


def terminal(table: Table) -> RenderableType:
    """A table for the terminal: blocks of as many columns as fit, one data set a block, and a legend."""
    return _OnTerminal(table)


class _OnTerminal:
    def __init__(self, table: Table) -> None:
        self.table = table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = self.table
        yield Text(table.headline + "\n", style="bold")
        names = min(NAME_WIDTH, max(len(row.name) for row in table.rows))
        room = options.max_width - names - max(map(len, ("paper", *table.labels))) - 2
        for block in _blocks(table):
            widths = {place: _width(table, place) for place in block.places}
            yield Text(block.name, style="italic")
            for places in _fitting(widths, room):
                yield _grid(table, block.rows, places, names)
                yield Text()
        yield Text("\n".join(legend(table)) + "\n", style="dim")


def _grid(table: Table, rows: Sequence[Row], places: Sequence[int], names: int) -> Grid:
    grid = Grid(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    grid.add_column("", width=names, overflow="fold")
    grid.add_column("", no_wrap=True, style="dim")
    for place in places:
        grid.add_column(scene_name(table.columns[place].scene) + " ", justify="right", no_wrap=True)
    lines = ("paper", *table.labels)
    for row in rows:
        cells = [Text("\n").join(_styled(table, row.cells[place], line) for line in lines) for place in places]
        grid.add_row(row.name, Text("\n".join(lines)), *cells)
    return grid


def _styled(table: Table, cell: Cell, line: str) -> Text:
    # A place is kept for the mark, so that the numbers stand below each other.
    text = shown(table, cell, line) + (MOVED if cell.moved(line) else " ")
    style = "bold" if line in cell.first else ""
    return Text(text, style=f"{style} yellow".strip() if cell.moved(line) else style)


def _width(table: Table, place: int) -> int:
    lines = ("paper", *table.labels)
    texts = [shown(table, row.cells[place], line) for row in table.rows for line in lines]
    return 1 + max(len(text) for text in (scene_name(table.columns[place].scene), *texts))


def _fitting(widths: dict[int, int], room: int) -> list[list[int]]:
    """Columns in as few groups as fit, none much smaller than the others."""
    groups: list[list[int]] = [[]]
    for place in widths:
        if groups[-1] and sum(widths[p] + 1 for p in (*groups[-1], place)) > room:
            groups.append([])
        groups[-1].append(place)
    places, size = list(widths), -(-len(widths) // len(groups))
    even = [places[start : start + size] for start in range(0, len(places), size)]
    return even if all(sum(widths[p] + 1 for p in group) <= room for group in even) else groups


class _Block(NamedTuple):
    """The columns of one data set and number of clients, and the rows that have anything to say there."""

    name: str
    places: list[int]
    rows: list[Row]


def _blocks(table: Table) -> list[_Block]:
    found: dict[str, list[int]] = {}
    for place, column in enumerate(table.columns):
        found.setdefault(_block_name(column), []).append(place)
    return [
        _Block(name, places, [row for row in table.rows if any(_says(row.cells[place]) for place in places)])
        for name, places in found.items()
    ]


def _block_name(column: Column) -> str:
    return DATA[column.data] + ("" if column.clients == 10 else f", {column.clients} clients")


def _says(cell: Cell) -> bool:
    return not cell.same and (cell.paper is not None or bool(cell.ours))


def shown(table: Table, cell: Cell, line: str) -> str:
    """One line of a cell as text: `line` is "paper" or one of the table's labels."""
    if cell.same:
        return "="
    if line == "paper":
        return "-" if cell.paper is None else _number(table, *cell.paper)
    if line not in cell.ours:
        return "-"
    value = cell.ours[line]
    if table.digits is None:
        return ", ".join(f"{entry:g}" for entry in value.values)
    some = f" {len(value.values)}/{value.seeds}" if len(value.values) < value.seeds else ""
    return _number(table, value.mean, value.deviation, value.lowest) + some


def _number(table: Table, mean: float | None, deviation: float | None, low: float | None) -> str:
    if mean is None:
        return "-"
    if table.digits is None:
        return f"{mean:g}"
    text = f"{mean:.{table.digits}f}"
    if low is not None:  # Table 7 has no deviations, and no room for them
        return f"{text} ({low:.{table.digits}f})"
    return f"{text} ±{deviation:.1f}" if deviation else text


def legend(table: Table) -> list[str]:
    """What the lines and marks of a table mean, those that it has, and its notes."""
    every = [cell for row in table.rows for cell in row.cells]
    found = ["paper: as printed. " + ". ".join(f"{label}: {text}" for label, text in table.labels.items()) + "."]
    if table.better:
        moved = {label: table.moved(label) for label in table.labels}
        counts = ", ".join(f"{label} {k} of {n} cells" for label, (k, n) in moved.items() if n)
        found.append(
            ("±: deviation over seeds. " if table.name != "table7" else "")
            + "Bold: the best of its column."
            + (f" {MOVED}: another rank in its column than in the paper ({counts})." if counts else "")
        )
    marks = []
    if any(len(value.values) < value.seeds for cell in every for value in cell.ours.values()):
        marks.append("k/n: the number exists for k of n seeds.")
    if any(cell.same for cell in every):
        marks.append("=: the two settings are the same there.")
    if any(not cell.ours and not cell.same for cell in every) and not table.empty:
        marks.append("-: not run, or not printed.")
    return [*found, *([" ".join(marks)] if marks else []), *table.notes]


def markdown(table: Table, level: int = 2) -> str:
    """A table as Markdown: a heading, a block for each data set, the legend."""
    lines = [f"{'#' * level} {table.headline}", ""]
    for name, places, rows in _blocks(table):
        head = [name, "", *(scene_name(table.columns[place].scene) for place in places)]
        lines += grid_lines(head, (cells for row in rows for cells in _md_rows(table, row, places)), left=2)
        lines.append("")
    return "\n".join([*lines, *(f"- {line}" for line in legend(table)), ""])


def _md_rows(table: Table, row: Row, places: Sequence[int]) -> Iterator[list[str]]:
    for number, line in enumerate(("paper", *table.labels)):
        yield [row.name if number == 0 else "", line, *(_md_cell(table, row.cells[p], line) for p in places)]


def _md_cell(table: Table, cell: Cell, line: str) -> str:
    text = shown(table, cell, line)
    text = f"**{text}**" if line in cell.first else text
    return f"{text} {MOVED}" if cell.moved(line) else text


def grid_lines(head: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> list[str]:
    """A Markdown table; the first `left` columns are words, the others numbers."""
    rule = ["---" if number < left else "---:" for number in range(len(head))]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |" for cells in (head, rule, *rows)]


def write_csv(table: Table, path: Path) -> None:
    """One line for each row, column and label."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    head = [
        "table",
        "data",
        "clients",
        "scene",
        "row",
        "label",
        "mean",
        "deviation",
        "lowest",
        "seeds",
        "seeds_with_it",
    ]
    writer.writerow([*head, "printed", "printed_deviation", "printed_lowest", "rank", "printed_rank", "quick"])
    for row in table.rows:
        for column, cell in zip(table.columns, row.cells, strict=True):
            for label in table.labels if not cell.same else ():
                numbers = _csv_numbers(cell, label)
                if table.digits is None:  # settings: all values that were run, not their mean
                    numbers[0:2] = [" ".join(f"{v:g}" for v in cell.ours[label].values) if cell.ours else "", ""]
                writer.writerow([table.name, *column, row.key, label, *numbers, int(table.quick)])
    write_atomic(path, text.getvalue().encode())


def _csv_numbers(cell: Cell, label: str) -> list[str]:
    value, rank = cell.ours.get(label), cell.ranks.get(label, (None, None))
    ours: tuple[float | None, ...] = (None,) * 5
    if value is not None:
        ours = (value.mean, value.deviation, value.lowest, value.seeds, len(value.values))
    numbers = (*ours, *(cell.paper or (None,) * 3), rank[1], rank[0])
    return ["" if number is None else f"{number:.6g}" for number in numbers]
