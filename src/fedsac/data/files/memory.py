"""Data that a program has in memory: arrays, a DataFrame, or one of these for each silo."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fedsac.core.given import plain
from fedsac.data.dataset import DataSet
from fedsac.data.files.labels import class_names, encode, label_texts
from fedsac.data.files.npzfile import image_shape, samples
from fedsac.data.files.silos import TEST, VALIDATION, gathered
from fedsac.data.files.tables import Table, aligned, named_table
from fedsac.data.messages import shown, some
from fedsac.errors import FedsacError
from fedsac.models.table import TableSchema

GIVEN = "arrays-in-memory"  # the name of such data in a config
ReadFrame = Callable[[Any, str], Table]  # of a DataFrame, and where it is from


def in_memory(data: Any, label: str, read: ReadFrame | None = None, schema: TableSchema | None = None) -> DataSet:
    """A data set from x, y or x, y, x_test, y_test (lists, numpy or torch: [n, d] a table, [n, h, w] or [n, h, w, c]
    images); from a DataFrame with a column `label`, or two of them, the second for testing; or from silos: such samples
    by client, and of `validation` and, where there are any, of `test`. `read` says how a DataFrame is read, if not as
    a table of numbers: by a `schema`."""
    if read is None:

        def read(frame: Any, where: str) -> Table:
            return _of_frame(frame, label, where)

    if isinstance(data, Mapping):
        return _silos(data, read, schema)
    train, test = _parts(data, read)
    assert train.labels is not None
    classes = class_names(train.labels, "data") if schema is None else schema.classes
    y, x_test, y_test = encode(train.labels, classes, "data"), None, None
    if test is not None:
        test = aligned(test, "x_test", train, "x")
        x_test, y_test = test.x, encode(test.labels or [], classes, "y_test")
    return DataSet(
        *(GIVEN, train.x, y, classes, train.channel, train.top, x_test, y_test),
        features=train.features,
        image=train.image,
        table=schema if train.features else None,
    )


def _parts(data: Any, read: ReadFrame) -> tuple[Table, Table | None]:
    if _is_frame(data):
        return read(data, "data"), None
    if isinstance(data, tuple | list) and len(data) in (1, 2) and all(map(_is_frame, data)):
        tables = [read(frame, where) for frame, where in zip(data, ("data", "test data"), strict=False)]
        return tables[0], tables[1] if len(tables) == 2 else None
    if isinstance(data, tuple | list) and len(data) in (2, 4):
        test = _of_arrays(data[2], data[3], "_test", "data") if len(data) == 4 else None
        return _of_arrays(data[0], data[1], "", "data"), test
    raise FedsacError(
        "data in memory is x, y or x, y, x_test, y_test, a DataFrame with a label column, or a dict of silos with "
        f"'{VALIDATION}', not {type(data).__name__}"
    )


def _silos(data: Mapping[Any, Any], read: ReadFrame, schema: TableSchema | None) -> DataSet:
    names = [str(name) for name in data]
    clients = sorted(name for name in names if name not in (VALIDATION, TEST))
    if len(clients) < 2 or VALIDATION not in names or len(set(names)) < len(names):
        raise FedsacError(f"silos are two clients at least and '{VALIDATION}', each once; there are {some(names)}")
    tables = {}
    for name, own in ((str(name), own) for name, own in data.items()):
        if _is_frame(own):
            tables[name] = read(own, name)
        elif isinstance(own, tuple | list) and len(own) == 2:
            tables[name] = _of_arrays(own[0], own[1], "", name)
        else:
            raise FedsacError(f"silo {name}: give x, y or a DataFrame, not {type(own).__name__}")
    order = [*clients, VALIDATION, *([TEST] if TEST in tables else [])]
    return gathered(GIVEN, "data", {name: tables[name] for name in order}, {name: name for name in order}, schema)


def _is_frame(data: Any) -> bool:
    """Whether this is a DataFrame, of pandas or like it; neither is loaded to know."""
    return hasattr(data, "columns") and hasattr(data, "to_numpy")


def _of_frame(frame: Any, label: str, where: str) -> Table:
    columns = [str(column) for column in frame.columns]
    if label not in columns:
        raise FedsacError(
            f"{where}: no column {shown(label)} for the labels; the columns are {some(columns)}; name the one with "
            "Config(label=...)"
        )
    if len(set(columns)) < len(columns):
        raise FedsacError(f"{where}: two columns have the same name; rename one")
    features = [column for column in frame.columns if str(column) != label]
    if not features or not len(frame):
        raise FedsacError(f"{where}: a label column alone, or no row; add features and samples")
    x = []
    for column in features:
        values = np.asarray(frame[column])
        if values.dtype.kind not in "biuf":
            raise FedsacError(
                f"{where}: column {shown(str(column))} is {values.dtype}, not numbers; encode it as numbers, drop it, "
                "or say what it is with Config(schema=...)"
            )
        if not np.isfinite(values).all():
            row = int(np.argmin(np.isfinite(values)))
            raise FedsacError(
                f"{where}: column {shown(str(column))}, row {row} (counting from 0) is missing or infinite; fill it "
                "in or drop the sample"
            )
        x.append(values.astype(np.float64))
    named = next(column for column in frame.columns if str(column) == label)
    labels = _labels(np.asarray(frame[named]), f"{where}: {label}")
    return named_table(np.ascontiguousarray(np.stack(x, 1)), labels, tuple(map(str, features)))


def _of_arrays(x: Any, y: Any, part: str, where: str) -> Table:
    array, labels = plain(f"{where}: x{part}", x), plain(f"{where}: y{part}", y)
    rows, channel = samples(array, f"{where}: x{part}")
    if labels.ndim != 1 or len(labels) != len(rows):
        raise FedsacError(f"{where}: y{part} must have one label for each of {len(rows)} samples, not {labels.shape}")
    top = 255.0 if array.dtype == np.uint8 else 1.0
    return Table(rows, _labels(labels, f"{where}: y{part}"), (), channel, top=top, image=image_shape(array.shape))


def _labels(labels: np.ndarray, where: str) -> list[str]:
    if labels.dtype.kind == "O" and all(isinstance(value, str) for value in labels):  # text in a DataFrame
        labels = labels.astype(str)
    return label_texts(labels, where)
