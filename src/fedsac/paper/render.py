"""A table as text: for a terminal, as Markdown, as CSV."""

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

MOVED_MARK = "≠"
MAX_NAME_CHARACTERS = 16  # of a row's name on a terminal; longer names continue on a second line


def terminal(table: Table) -> RenderableType:
    """A table for the terminal: a block for each data set, split where it is too wide, and a legend."""
    return _OnTerminal(table)


class _OnTerminal:
    def __init__(self, table: Table) -> None:
        self.table = table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = self.table
        yield Text(table.headline + "\n", style="bold")
        names = min(MAX_NAME_CHARACTERS, max(len(row.name) for row in table.rows))
        room = options.max_width - names - max(map(len, ("paper", *table.labels))) - 2
        for block in _blocks(table):
            widths = {position: _width(table, position) for position in block.positions}
            yield Text(block.name, style="italic")
            for positions in _groups_that_fit(widths, room):
                yield _grid(table, block.rows, positions, names)
                yield Text()
        yield Text("\n".join(legend(table)) + "\n", style="dim")


def _grid(table: Table, rows: Sequence[Row], positions: Sequence[int], names: int) -> Grid:
    grid = Grid(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    grid.add_column("", width=names, overflow="fold")
    grid.add_column("", no_wrap=True, style="dim")
    for position in positions:
        grid.add_column(scene_name(table.columns[position].scene) + " ", justify="right", no_wrap=True)
    lines = ("paper", *table.labels)
    for row in rows:
        cells = [Text("\n").join(_styled(table, row.cells[position], line) for line in lines) for position in positions]
        grid.add_row(row.name, Text("\n".join(lines)), *cells)
    return grid


def _styled(table: Table, cell: Cell, line: str) -> Text:
    # A blank in place of the mark keeps the numbers aligned.
    text = cell_text(table, cell, line) + (MOVED_MARK if cell.moved(line) else " ")
    style = "bold" if line in cell.first else ""
    return Text(text, style=f"{style} yellow".strip() if cell.moved(line) else style)


def _width(table: Table, position: int) -> int:
    lines = ("paper", *table.labels)
    texts = [cell_text(table, row.cells[position], line) for row in table.rows for line in lines]
    return 1 + max(len(text) for text in (scene_name(table.columns[position].scene), *texts))


def _groups_that_fit(widths: dict[int, int], room: int) -> list[list[int]]:
    """Columns in as few groups as fit the width, of about equal size."""
    groups: list[list[int]] = [[]]
    for position in widths:
        if groups[-1] and sum(widths[p] + 1 for p in (*groups[-1], position)) > room:
            groups.append([])
        groups[-1].append(position)
    positions, size = list(widths), -(-len(widths) // len(groups))
    even = [positions[start : start + size] for start in range(0, len(positions), size)]
    return even if all(sum(widths[p] + 1 for p in group) <= room for group in even) else groups


class _Block(NamedTuple):
    """The columns of one data set and number of clients, and the rows that have a number there."""

    name: str
    positions: list[int]
    rows: list[Row]


def _blocks(table: Table) -> list[_Block]:
    blocks: dict[str, list[int]] = {}
    for position, column in enumerate(table.columns):
        blocks.setdefault(_block_name(column), []).append(position)
    return [
        _Block(
            name,
            positions,
            [row for row in table.rows if any(_has_number(row.cells[position]) for position in positions)],
        )
        for name, positions in blocks.items()
    ]


def _block_name(column: Column) -> str:
    return DATA[column.data] + ("" if column.clients == 10 else f", {column.clients} clients")


def _has_number(cell: Cell) -> bool:
    return not cell.same and (cell.paper is not None or bool(cell.ours))


def cell_text(table: Table, cell: Cell, line: str) -> str:
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
    partial = f" {len(value.values)}/{value.seeds}" if len(value.values) < value.seeds else ""
    return _number(table, value.mean, value.deviation, value.lowest) + partial


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
    """What a table's lines and marks mean, and its notes."""
    every = [cell for row in table.rows for cell in row.cells]
    lines = ["paper: as printed. " + ". ".join(f"{label}: {text}" for label, text in table.labels.items()) + "."]
    if table.better:
        moved = {label: table.moved(label) for label in table.labels}
        counts = ", ".join(f"{label} {k} of {n} cells" for label, (k, n) in moved.items() if n)
        lines.append(
            ("±: deviation over seeds. " if table.name != "table7" else "")
            + "Bold: the best of its column."
            + (f" {MOVED_MARK}: another rank in its column than in the paper ({counts})." if counts else "")
        )
    marks = []
    if any(len(value.values) < value.seeds for cell in every for value in cell.ours.values()):
        marks.append("k/n: the number exists for k of n seeds.")
    if any(cell.same for cell in every):
        marks.append("=: the two settings are the same there.")
    if any(not cell.ours and not cell.same for cell in every) and not table.empty:
        marks.append("-: not run, or not printed.")
    return [*lines, *([" ".join(marks)] if marks else []), *table.notes]


def markdown(table: Table, level: int = 2) -> str:
    """A table as Markdown: a heading, a block for each data set, the legend."""
    lines = [f"{'#' * level} {table.headline}", ""]
    for name, positions, rows in _blocks(table):
        head = [name, "", *(scene_name(table.columns[position].scene) for position in positions)]
        lines += grid_lines(head, (cells for row in rows for cells in _md_rows(table, row, positions)), left=2)
        lines.append("")
    return "\n".join([*lines, *(f"- {line}" for line in legend(table)), ""])


def _md_rows(table: Table, row: Row, positions: Sequence[int]) -> Iterator[list[str]]:
    for number, line in enumerate(("paper", *table.labels)):
        yield [row.name if number == 0 else "", line, *(_md_cell(table, row.cells[p], line) for p in positions)]


def _md_cell(table: Table, cell: Cell, line: str) -> str:
    text = cell_text(table, cell, line)
    text = f"**{text}**" if line in cell.first else text
    return f"{text} {MOVED_MARK}" if cell.moved(line) else text


def grid_lines(head: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> list[str]:
    """The lines of a Markdown table; the first `left` columns are aligned left (text), the others right (numbers)."""
    rule = ["---" if number < left else "---:" for number in range(len(head))]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |" for cells in (head, rule, *rows)]


def write_csv(table: Table, path: Path) -> None:
    """Write a table as CSV: a line for each row, column and label."""
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
