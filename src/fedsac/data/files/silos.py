"""A folder of silos: one data file per client, the server's validation file, and perhaps a test file."""

from pathlib import Path

import numpy as np

from fedsac.data.dataset import DataSet
from fedsac.data.files.labels import class_names, encode
from fedsac.data.files.npzfile import npz_names
from fedsac.data.files.reading import read_table
from fedsac.data.files.tables import SUFFIXES, Table, aligned
from fedsac.data.messages import unreadable
from fedsac.errors import FedsacError

VALIDATION, TEST = "validation", "test"
IGNORED_SUFFIXES = (".md", ".txt", ".toml")  # of files that describe the data


def load_silos(folder: Path, label: str) -> DataSet:
    """Read all files of a folder into one data set; they must have the same features."""
    files = _files(folder)
    clients = sorted(name for name in files if name not in (VALIDATION, TEST))
    if len(clients) < 2:
        raise FedsacError(
            f"{folder}: {len(clients)} client file(s) in it; a federation needs at least 2, one file each"
        )
    if VALIDATION not in files:
        raise FedsacError(f"{folder}: no {VALIDATION}.npz, .csv or .parquet in it; put the server's samples there")
    order = [*clients, VALIDATION, *([TEST] if TEST in files else [])]
    tables = _aligned({name: _read(files[name], label) for name in order}, files)
    parts = [*clients, VALIDATION]
    classes = class_names((text for name in parts for text in _labels(tables[name])), str(folder))
    rows = _rows({name: len(tables[name].x) for name in parts})
    test, y_test = tables.get(TEST), None
    if test is not None:
        y_test = encode(_labels(test), classes, str(files[TEST]), "any silo or validation")
    first = tables[order[0]]
    return DataSet(
        name=folder.resolve().name,
        x=np.concatenate([tables[name].x for name in parts]),
        y=np.concatenate([encode(_labels(tables[name]), classes, str(files[name])) for name in parts]),
        classes=classes,
        channel=first.channel,
        top=first.top,
        x_test=None if test is None else test.x,
        y_test=y_test,
        silos={name: rows[name] for name in clients},
        validation=rows[VALIDATION],
        features=next((tables[name].features for name in parts if tables[name].features), ()),
    )


def _files(folder: Path) -> dict[str, Path]:
    """The data files by client name, or by `validation` and `test` in lower case."""
    files: dict[str, Path] = {}
    try:
        entries = sorted(folder.iterdir())
    except OSError as err:
        raise unreadable(folder, err) from err
    for path in entries:
        suffix = path.suffix.lower()
        if path.name.startswith(".") or (suffix in IGNORED_SUFFIXES and path.is_file()):
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


def _aligned(tables: dict[str, Table], files: dict[str, Path]) -> dict[str, Table]:
    """All tables with their columns in the same order."""
    # The first table with column names is the reference: names tell more than the number of columns.
    like = next((name for name, table in tables.items() if table.features), next(iter(tables)))
    return {name: aligned(table, str(files[name]), tables[like], str(files[like])) for name, table in tables.items()}


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
