"""`Table`: what every data file is read into; checking its columns, and aligning them with those of another."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fedsac.data.messages import shown, some
from fedsac.errors import FedsacError

SUFFIXES = (".npz", ".csv", ".parquet")
SCHEMA_HINT = " (or say what the columns mean: fedsac schema propose; fedsac data check lists every such place)"


class NoLabelError(FedsacError):
    """A table without the label column; `what` leaves out how to name another, which is not everywhere an option."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(f"{what}; name the one with --label")


@dataclass(frozen=True)
class Table:
    """The samples in one file."""

    x: np.ndarray  # [n, d] uint8 or float64
    labels: list[str] | None  # None if the file has none
    features: tuple[str, ...]  # () if they have no names (.npz)
    channel: np.ndarray  # [d] int64, as in `DataSet`
    top: float  # as in `DataSet`
    image: tuple[int, int, int] | None = None  # as in `DataSet`


def named_table(x: np.ndarray, labels: list[str] | None, features: tuple[str, ...]) -> Table:
    """A table with named columns, each a channel of its own."""
    return Table(x, labels, features, np.arange(len(features), dtype=np.int64), top=1.0)


def check_columns(path: Path, names: list[str], label: str, require_label: bool) -> None:
    """Raise if column names are missing or repeated, or if there is no label column or no feature."""
    where = f"{path}: line 1" if path.suffix.lower() == ".csv" else f"{path}: schema"
    for i, name in enumerate(names, 1):
        if not name or name.startswith("__index_level_"):
            raise FedsacError(
                f"{where}, column {i} has no name ({shown(name)}); name it, or write the file without its "
                "index (pandas: index=False)"
            )
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise FedsacError(f"{where}: two columns are named {shown(twice)}; rename one")
    if require_label and label not in names:
        hint = f"; separate columns by commas{SCHEMA_HINT}" if len(names) == 1 and set(names[0]) & set(";\t|") else ""
        raise NoLabelError(f"{where}: no column {shown(label)} for the labels{hint}; the columns are {some(names)}")
    if not set(names) - {label}:
        raise FedsacError(f"{where}: no column besides the label; add the features")


def aligned(table: Table, name: str, like: Table, like_name: str) -> Table:
    """The table with its columns in the order of table `like`; raises if the two do not have the same features."""
    d, like_d = table.x.shape[1], like.x.shape[1]
    if table.features and like.features:
        if set(table.features) != set(like.features):
            raise FedsacError(_name_clash(table.features, name, like.features, like_name))
        if table.features != like.features:
            at = {feature: i for i, feature in enumerate(table.features)}
            x = np.ascontiguousarray(table.x[:, [at[feature] for feature in like.features]])
            table = replace(table, x=x, features=like.features)
    elif d != like_d:
        raise FedsacError(f"{name} has {d} features but {like_name} has {like_d}; they must agree")
    if table.x.dtype != like.x.dtype:
        raise FedsacError(f"{name} has {table.x.dtype} values but {like_name} has {like.x.dtype}; use one type")
    if not np.array_equal(table.channel, like.channel):
        raise FedsacError(
            f"{name} has {_channels(table)} but {like_name} has {_channels(like)} over {d} features; "
            "save both in the same shape"
        )
    return table


def _name_clash(names: tuple[str, ...], name: str, like: tuple[str, ...], like_name: str) -> str:
    extra = next((feature for feature in names if feature not in like), None)
    lacking = next((feature for feature in like if feature not in names), None)
    first = " and ".join(
        f"{shown(feature)} is only in {where}"
        for feature, where in ((extra, name), (lacking, like_name))
        if feature is not None
    )
    return (
        f"{name} has {len(names)} features ({some(names)}) but {like_name} has {len(like)} ({some(like)}): "
        f"{first}; give both the same columns"
    )


def _channels(table: Table) -> str:
    count = len(set(table.channel.tolist()))
    return f"{count} channel{'' if count == 1 else 's'}"
