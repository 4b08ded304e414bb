"""Reading a .csv file: a header, one label column, numbers in all the other columns. Anything else needs a schema."""

import csv
from collections.abc import Iterator
from itertools import islice
from math import isfinite
from pathlib import Path

import numpy as np

from fedsac.data.files.labels import label_text
from fedsac.data.files.tables import SCHEMA_HINT, Table, check_columns, named_table
from fedsac.data.messages import shown, unreadable
from fedsac.errors import FedsacError

CHUNK_ROWS = 10_000  # kept in memory as text at a time: text takes ten times the memory of the numbers


def read_csv(path: Path, label: str, require_label: bool) -> Table:
    """Read the whole file in one fast pass; only if that fails, read it again row by row to report where."""
    parts: list[np.ndarray] = []
    labels: list[str] = []
    rows = records(path)
    names = _header(path, next(rows, (1, []))[1], label, require_label)
    label_column = names.index(label) if label in names else None
    while chunk := [row for _, row in islice(rows, CHUNK_ROWS)]:
        numbers = _convert(chunk, len(names), label_column, labels)
        if numbers is None:
            raise _first_error(path, names, label_column)
        parts.append(numbers)
    if not parts:
        raise FedsacError(f"{path}: no row after the header in line 1; add the samples")
    features = tuple(name for name in names if name != label)
    return named_table(np.concatenate(parts), None if label_column is None else labels, features)


def records(path: Path, separator: str = ",") -> Iterator[tuple[int, list[str]]]:
    """The rows that are not blank, each with the number of its first line."""
    line = 1
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True, delimiter=separator)
            try:
                for row in reader:
                    if row:
                        yield line, row
                    line = reader.line_num + 1
            except csv.Error as err:
                raise FedsacError(f"{path}: line {line}: {err}; check the quotes from there on") from err
    except UnicodeDecodeError as err:
        raise FedsacError(
            f"{path}: line {_undecodable_line(path)} is not UTF-8 text; save the file as CSV in UTF-8"
        ) from err
    except OSError as err:
        raise unreadable(path, err) from err


def _undecodable_line(path: Path) -> int:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError:
                return number
    return 1


def _header(path: Path, row: list[str], label: str, require_label: bool) -> list[str]:
    if not row:
        raise FedsacError(f"{path}: line 1: the file is empty; begin it with a header row")
    names = [name.strip() for name in row]
    check_columns(path, names, label, require_label)
    return names


def _convert(rows: list[list[str]], width: int, label_column: int | None, labels: list[str]) -> np.ndarray | None:
    """The numbers in some rows; their labels are appended to `labels`. None if any row is malformed."""
    if any(len(row) != width for row in rows):
        return None
    if label_column is not None:
        texts = [label_text(row.pop(label_column)) for row in rows]
        if "" in texts:
            return None
        labels += texts
    # Python reads 1_000 as a number; in a file it is a typing error.
    if any("_" in cells for cells in map("".join, rows)):
        return None
    try:
        numbers = np.array(rows, dtype=np.float64)
    except ValueError:
        return None
    return numbers if np.isfinite(numbers).all() else None


def _first_error(path: Path, names: list[str], label_column: int | None) -> FedsacError:
    """The error for the first malformed row, with its line and column."""
    for line, row in islice(records(path), 1, None):
        if len(row) != len(names):
            return FedsacError(
                f"{path}: line {line} has {len(row)} fields, the header has {len(names)}; "
                "mend the row (a comma inside a field needs quotes)"
            )
        for i, cell in enumerate(row):
            if error := _cell_error(cell, is_label=i == label_column):
                return FedsacError(f"{path}: line {line}, column {shown(names[i])}: {error}")
    return FedsacError(f"{path}: it changed while it was read; try again")


def _cell_error(cell: str, is_label: bool) -> str | None:
    if not cell.strip():
        return f"the value is missing; fill it in or drop the row{SCHEMA_HINT if not is_label else ''}"
    if is_label:
        return None
    try:
        number = float(cell)
    except ValueError:
        return f"{shown(cell)} is not a number; write one, or drop the column{SCHEMA_HINT}"
    if "_" in cell:
        return f"{shown(cell)} is not a number; leave the underscore out"
    return (
        None if isfinite(number) else f"{shown(cell)} is not a finite number; fill it in or drop the row{SCHEMA_HINT}"
    )
