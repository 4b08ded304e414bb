"""A table as text: what a file or a DataFrame holds, before anything is said about what it means."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedsac.data.files.csvfile import records
from fedsac.data.files.parquetfile import parquet_columns
from fedsac.data.messages import shown
from fedsac.data.schema.problems import Problem
from fedsac.errors import FedsacError

SEPARATORS = (",", ";", "\t", "|")


@dataclass(frozen=True)
class RawTable:
    """Cells by column, each stripped of spaces; `lines` say in messages where a row stands. `comma`: the file does not
    separate columns by commas, so one inside a number may be a decimal point. `problems` are rows that were left out
    because they have too many or too few fields."""

    where: str
    cells: dict[str, list[str]]
    lines: list[str]
    comma: bool = False
    problems: tuple[Problem, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.cells)

    def renamed(self, names: Mapping[str, str]) -> "RawTable":
        """The table with some columns called otherwise."""
        after = [names.get(name, name) for name in self.names]
        if len(set(after)) < len(after):
            twice = next(name for i, name in enumerate(after) if name in after[:i])
            raise FedsacError(f"{self.where}: two columns would be called {shown(twice)}; correct only one of them")
        return replace(self, cells=dict(zip(after, self.cells.values(), strict=True)))


def read_raw(path: Path, known: Collection[str]) -> RawTable:
    """The cells of a .csv or .parquet file. Names that are `known` tell how a .csv separates its columns."""
    suffix = path.suffix.lower()
    if suffix == ".csv":
        return _of_csv(path, known)
    if suffix == ".parquet":
        return _of_parquet(path)
    raise FedsacError(f"{path}: a schema is for .csv and .parquet files, whose columns have names; this has none")


def of_frame(frame: Any, where: str) -> RawTable:
    """The cells of a DataFrame."""
    cells = {str(name): _texts(np.asarray(frame[name], dtype=object).tolist()) for name in frame.columns}
    return _named(where, cells, list(map(str, frame.columns)), len(frame))


def _of_csv(path: Path, known: Collection[str]) -> RawTable:
    separator, names = _header(path, known)
    _check_names(str(path), names)
    rows, lines, problems = [], [], []
    for number, (line, row) in enumerate(records(path, separator)):
        if number == 0:
            continue
        if len(row) != len(names):
            what = f"it has {len(row)} fields, the header has {len(names)}; mend the row (quotes around {separator!r})"
            problems.append(Problem(str(path), f"line {line}", what))
            continue
        rows.append(row)
        lines.append(f"line {line}")
    if not rows and not problems:
        raise FedsacError(f"{path}: no row after the header in line 1; add the samples")
    cells = {name: [row[i].strip() for row in rows] for i, name in enumerate(names)}
    return RawTable(str(path), cells, lines, comma=separator != ",", problems=tuple(problems))


def _header(path: Path, known: Collection[str]) -> tuple[str, list[str]]:
    """How columns are separated, and their names: so that most are known, or else that there are most of them."""
    found = {}
    for separator in SEPARATORS:
        try:
            found[separator] = [name.strip() for name in next(records(path, separator), (1, []))[1]]
        except FedsacError:
            if separator == SEPARATORS[0]:
                raise
    best = max(found, key=lambda s: (len(set(found[s]) & set(known)), len(found[s])))
    if not found[best]:
        raise FedsacError(f"{path}: line 1: the file is empty; begin it with a header row")
    return best, found[best]


def _of_parquet(path: Path) -> RawTable:
    columns, rows = parquet_columns(path)
    return _named(str(path), {name: _texts(values) for name, values in columns}, [name for name, _ in columns], rows)


def _named(where: str, cells: dict[str, list[str]], names: list[str], rows: int) -> RawTable:
    _check_names(where, names)
    if not rows:
        raise FedsacError(f"{where}: no row in it; add the samples")
    return RawTable(where, cells, [f"row {i} (counting from 0)" for i in range(rows)])


def _check_names(where: str, names: Sequence[str]) -> None:
    if "" in names or any(name.startswith("__index_level_") for name in names):
        raise FedsacError(f"{where}: a column has no name; name it, or write the file without its index (index=False)")
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise FedsacError(f"{where}: two columns are named {shown(twice)}; rename one")


def _texts(values: list[Any]) -> list[str]:
    """Values as they would stand in a .csv file; what is missing is empty."""
    return [_text(value) for value in values]


def _text(value: Any) -> str:
    if value is None or value != value or str(value) in ("NaT", "<NA>"):  # NaN is not itself
        return ""
    if hasattr(value, "isoformat"):
        return str(value.isoformat()).removesuffix("T00:00:00")
    return str(value).strip()
