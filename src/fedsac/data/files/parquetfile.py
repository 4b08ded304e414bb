"""Reading a .parquet file, by the rules of a .csv file; needs pyarrow."""

from pathlib import Path
from typing import Any

import numpy as np

from fedsac.data.files.labels import label_texts
from fedsac.data.files.tables import SCHEMA_HINT, Table, check_columns, named_table
from fedsac.data.messages import cause, shown, unreadable
from fedsac.errors import FedsacError

FILL_HINT = f"fill it in or drop the row{SCHEMA_HINT}"


def read_parquet(path: Path, label: str, require_label: bool) -> Table:
    """Read the whole file: one label column, numbers in all the other columns."""
    names, content = _content(path)
    check_columns(path, names, label, require_label)
    if content.num_rows == 0:
        raise FedsacError(f"{path}: no row in it; add the samples")
    features = tuple(name for name in names if name != label)
    x = np.empty((content.num_rows, len(features)))
    for i, name in enumerate(features):
        x[:, i] = _numbers(content.column(name), f"{path}: column {shown(name)}")
    labels = _labels(content.column(label), f"{path}: column {shown(label)}") if label in names else None
    return named_table(x, labels, features)


def parquet_columns(path: Path) -> tuple[list[tuple[str, list[Any]]], int]:
    """The columns, each with its name and its values as Python has them, and the number of rows."""
    from pyarrow import types

    names, content = _content(path)
    columns = []
    for i, name in enumerate(names):
        column = content.column(i)
        if types.is_dictionary(column.type):  # what pandas calls a category
            column = column.cast(column.type.value_type)
        columns.append((name, column.to_pylist()))
    return columns, content.num_rows


def _content(path: Path) -> tuple[list[str], Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as err:
        raise FedsacError(f"{path}: reading .parquet needs pyarrow: pip install 'fedsac[parquet]'") from err
    try:
        raw = path.read_bytes()
    except OSError as err:
        raise unreadable(path, err) from err
    try:
        # From memory: given a path, pyarrow takes folders named a=b above the file for columns.
        # On one thread: with torch loaded, pyarrow's thread pool sometimes aborts the process when it ends.
        content = parquet.ParquetFile(pyarrow.BufferReader(raw)).read(use_threads=False)
        content.validate(full=True)  # text that is not UTF-8 would otherwise fail only later
        return list(content.schema.names), content
    except (pyarrow.ArrowException, OSError, ValueError, MemoryError) as err:
        raise FedsacError(f"{path}: damaged, or no parquet file ({cause(err)}); write it again") from err


def _numbers(column: Any, where: str) -> np.ndarray:
    from pyarrow import float64, types

    kind = column.type
    numeric = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
    if not any(is_kind(kind) for is_kind in numeric):
        raise FedsacError(f"{where} is {kind}, not numbers; make it numbers, or drop the column{SCHEMA_HINT}")
    _refuse_nulls(column, where)
    if types.is_decimal(kind):
        column = column.cast(float64())
    values: np.ndarray = column.to_numpy().astype(np.float64)
    if (bad := np.flatnonzero(~np.isfinite(values))).size:
        i = int(bad[0])
        raise FedsacError(f"{where}, row {i} (counting from 0): {values[i]} is not a finite number; {FILL_HINT}")
    return values


def _labels(column: Any, where: str) -> list[str]:
    from pyarrow import types

    if types.is_dictionary(column.type):  # what pandas calls a category
        column = column.cast(column.type.value_type)
    _refuse_nulls(column, where)
    values = column.to_numpy()
    if values.dtype == object and all(isinstance(v, str) for v in values):
        values = values.astype(str)
    return label_texts(values, where)


def _refuse_nulls(column: Any, where: str) -> None:
    if column.null_count:
        row = column.is_null().to_pylist().index(True)
        raise FedsacError(f"{where}, row {row} (counting from 0): the value is missing; {FILL_HINT}")
