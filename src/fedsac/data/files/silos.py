"""A folder of silos: one data file per client, the server's validation file, and perhaps a test file."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from fedsac.data.dataset import DataSet
from fedsac.data.files.labels import class_names, encode
from fedsac.data.files.npzfile import npz_names
from fedsac.data.files.reading import read_table
from fedsac.data.files.tables import SUFFIXES, Table, aligned
from fedsac.data.messages import unreadable
from fedsac.errors import FedsacError
from fedsac.models.table import TableSchema

VALIDATION, TEST = "validation", "test"
IGNORED_SUFFIXES = (".md", ".txt", ".toml")  # of files that describe the data
SCHEMA_JSON = "schema.json"
Reading = Callable[[Path, str], Table]  # of a file, and the name of its silo


def load_silos(folder: Path, label: str, read: Reading | None = None, schema: TableSchema | None = None) -> DataSet:
    """Read all files of a folder into one data set; they must have the same features. `read` says how, if not as
    tables of numbers: by a `schema`."""
    files = silo_files(folder)
    clients = sorted(name for name in files if name not in (VALIDATION, TEST))
    if len(clients) < 2:
        raise FedsacError(
            f"{folder}: {len(clients)} client file(s) in it; a federation needs at least 2, one file each"
        )
    if VALIDATION not in files:
        raise FedsacError(f"{folder}: no {VALIDATION}.npz, .csv or .parquet in it; put the server's samples there")
    order = [*clients, VALIDATION, *([TEST] if TEST in files else [])]
    tables = {name: _read(files[name], label) if read is None else read(files[name], name) for name in order}
    return gathered(folder.resolve().name, str(folder), tables, {name: str(files[name]) for name in order}, schema)


def gathered(
    name: str, where: str, tables: dict[str, Table], wheres: dict[str, str], schema: TableSchema | None = None
) -> DataSet:
    """One data set of the tables of clients, of the server's validation samples and, where it comes, of the test;
    `wheres` say in errors where each of them is from. A `schema` has the classes."""
    tables = _aligned(tables, wheres)
    order = list(tables)
    parts = [part for part in order if part != TEST]
    clients = [part for part in parts if part != VALIDATION]
    classes = class_names((text for part in parts for text in _labels(tables[part])), where)
    classes = classes if schema is None else schema.classes
    rows = _rows({part: len(tables[part].x) for part in parts})
    test, y_test = tables.get(TEST), None
    if test is not None:
        y_test = encode(_labels(test), classes, wheres[TEST], "any silo or validation")
    first = tables[order[0]]
    return DataSet(
        name=name,
        x=np.concatenate([tables[part].x for part in parts]),
        y=np.concatenate([encode(_labels(tables[part]), classes, wheres[part]) for part in parts]),
        classes=classes,
        channel=first.channel,
        top=first.top,
        x_test=None if test is None else test.x,
        y_test=y_test,
        silos={client: rows[client] for client in clients},
        validation=rows[VALIDATION],
        features=next((tables[part].features for part in parts if tables[part].features), ()),
        image=first.image,
        table=schema,
    )


def silo_files(folder: Path) -> dict[str, Path]:
    """The data files by client name, or by `validation` and `test` in lower case."""
    files: dict[str, Path] = {}
    try:
        entries = sorted(folder.iterdir())
    except OSError as err:
        raise unreadable(folder, err) from err
    for path in entries:
        suffix = path.suffix.lower()
        if path.name.startswith(".") or (suffix in IGNORED_SUFFIXES and path.is_file()) or path.name == SCHEMA_JSON:
            continue
        if suffix not in SUFFIXES or not path.is_file():
            raise FedsacError(f"{path}: not a silo; such a folder holds {', '.join(SUFFIXES)} files, move others away")
        # Validation.csv is meant as the validation set, not as a client of that name.
        role = path.stem.lower()
        name = role if role in (VALIDATION, TEST) else path.stem
        if name in files:
            raise FedsacError(f"{files[name]} and {path.name} are both named {name}; keep one or rename it")
        files[name] = path
    return files


def _read(path: Path, label: str) -> Table:
    if path.suffix.lower() == ".npz" and (extra := npz_names(path) & {"x_test", "y_test"}):
        raise FedsacError(f"{path}: {', '.join(sorted(extra))} in a silo would go unused; put them into {TEST}.npz")
    return read_table(path, label, require_label=True)


def _aligned(tables: dict[str, Table], wheres: dict[str, str]) -> dict[str, Table]:
    """All tables with their columns in the same order."""
    # The first table with column names is the reference: names tell more than the number of columns.
    like = next((name for name, table in tables.items() if table.features), next(iter(tables)))
    return {name: aligned(table, wheres[name], tables[like], wheres[like]) for name, table in tables.items()}


def _rows(counts: dict[str, int]) -> dict[str, np.ndarray]:
    """The rows of each part, when parts of these lengths are concatenated."""
    ends = np.cumsum(list(counts.values()))
    return {
        name: np.arange(end - count, end, dtype=np.int64)
        for (name, count), end in zip(counts.items(), ends, strict=True)
    }


def _labels(table: Table) -> list[str]:
    assert table.labels is not None  # read with require_label
    return table.labels
