"""Data sets by name or path: load one, list what there is, fetch it, check it."""

from dataclasses import dataclass
from importlib.util import find_spec
from math import isqrt
from pathlib import Path

import numpy as np

from fedsac.data.dataset import DataSet
from fedsac.data.files.functions import read_function
from fedsac.data.files.labels import class_names, encode
from fedsac.data.files.memory import GIVEN
from fedsac.data.files.npzfile import npz_names, read_npz
from fedsac.data.files.reading import read_table
from fedsac.data.files.silos import load_silos
from fedsac.data.files.tables import SUFFIXES, Table, aligned
from fedsac.data.published.fetch import obtain
from fedsac.data.published.registry import DIGIT_CLASSES, DIGITS, PUBLISHED, PublishedDataSet, find
from fedsac.data.schema.files import read_schema
from fedsac.data.schema.problems import ProblemsError
from fedsac.data.tabular import load_file, load_folder, problems, schema_for
from fedsac.doors import DATA
from fedsac.errors import FedsacError, did_you_mean

__all__ = ["DataSet", "Listed", "check", "checked", "described", "fetch", "listing", "load"]
DEFAULT_LABEL = "label"


@dataclass(frozen=True)
class Listed:
    """One data set in the output of `listing`."""

    name: str
    what: str
    folder: Path | None  # that has all its files; None: not on this machine


def load(
    name: str,
    data_dir: Path | None = None,
    *,
    label: str = DEFAULT_LABEL,
    schema: str | None = None,
    quiet: bool = True,
) -> DataSet:
    """Load a data set by name (downloaded if need be), from a file, a folder of silos, or module:function. `schema` is
    the file that says what the columns of a table mean; a folder of silos may have one in it."""
    if schema is not None and not Path(name).exists():
        raise FedsacError(f"{name!r} is no file or folder of tables; leave --schema out, or name such data")
    if name in DATA.entries:
        data: DataSet = DATA.resolve(name)(data_dir, quiet)
        return data
    if name == GIVEN:
        raise FedsacError(
            "this run's data was given in memory; go on with fedsac.resume(FOLDER, data=...) and the same data"
        )
    path = Path(name)
    named = schema_for(name, schema)
    if named is not None:
        by = read_schema(named)
        if label not in (DEFAULT_LABEL, by.label):
            raise FedsacError(f"{named}: the label's column is {by.label!r} there, not {label!r}; leave --label out")
        return load_folder(path, by) if path.is_dir() else load_file(path, by)
    if path.is_dir():
        return load_silos(path, label)
    if path.is_file():
        return _from_tables(path.stem, str(path), read_table(path, label, require_label=True), _test_table(path))
    if is_function(name):
        return _from_tables(name.replace(":", "."), name, *read_function(DATA, name))
    raise _unknown(name)


def is_function(name: str) -> bool:
    """Whether the text has the form module:function."""
    module, colon, function = name.partition(":")
    return bool(colon) and function.isidentifier() and all(part.isidentifier() for part in module.split("."))


def listing(data_dir: Path | None = None) -> list[Listed]:
    """The data sets with a name, and the folder each one is in; looks for the files without reading them."""
    folders = {DIGITS: _digits_folder()} | {s.name: find(s, data_dir).folder for s in PUBLISHED.values()}
    return [Listed(name, entry.what, folders.get(name)) for name, entry in DATA.entries.items()]


def fetch(name: str, data_dir: Path | None = None, quiet: bool = True) -> Path:
    """Download a data set unless it is there already; returns its folder (digits come with scikit-learn)."""
    if name == DIGITS:
        return _digits_folder()
    if name not in PUBLISHED:
        raise _unknown(name)
    return obtain(PUBLISHED[name], data_dir, quiet)


def check(name: str, data_dir: Path | None = None, label: str = DEFAULT_LABEL, schema: str | None = None) -> str:
    """Read a data set completely and describe it in one line; raises `FedsacError` if anything is wrong with it: of
    tables, `ProblemsError` with all of it."""
    return described(checked(name, data_dir, label, schema))


def checked(name: str, data_dir: Path | None, label: str, schema: str | None) -> DataSet:
    """A data set, read completely, with every problem looked for."""
    if name not in DATA.entries and Path(name).exists() and (wrong := problems(name, label, schema)):
        raise ProblemsError(wrong)
    return load(name, data_dir, label=label, schema=schema)


def described(data: DataSet) -> str:
    """A data set in one line."""
    n, d = data.x.shape
    many = len(data.classes) > 10
    names = ", ".join(data.classes[:10]) + (", ..." if many else "")
    parts = [f"{n:,} samples", f"{d:,} features", f"{len(data.classes)} classes ({names})"]
    parts.append("no test samples" if data.x_test is None else f"{len(data.x_test):,} test samples")
    if data.silos is not None and data.validation is not None:
        sizes = ", ".join(f"{client} {len(rows):,}" for client, rows in data.silos.items())
        parts.append(f"{len(data.silos)} silos ({sizes}; validation {len(data.validation):,})")
    return f"{data.name}: {', '.join(parts)}"


def digits(data_dir: Path | None, quiet: bool) -> DataSet:
    """The digits that come with scikit-learn."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    x = bunch.data.astype(np.uint8)
    return DataSet(
        DIGITS,
        x,
        bunch.target.astype(np.int64),
        DIGIT_CLASSES,
        channel=np.zeros(x.shape[1], np.int64),
        top=16.0,
        image=(1, 8, 8),
    )


def fashion_mnist(data_dir: Path | None, quiet: bool) -> DataSet:
    return _published(PUBLISHED["fashion-mnist"], data_dir, quiet)


def cifar10(data_dir: Path | None, quiet: bool) -> DataSet:
    return _published(PUBLISHED["cifar10"], data_dir, quiet)


def svhn(data_dir: Path | None, quiet: bool) -> DataSet:
    return _published(PUBLISHED["svhn"], data_dir, quiet)


def mnist(data_dir: Path | None, quiet: bool) -> DataSet:
    return _published(PUBLISHED["mnist"], data_dir, quiet)


def _digits_folder() -> Path:
    spec = find_spec("sklearn")  # finding it does not import it, which takes a second
    if spec is None or spec.origin is None:
        raise FedsacError("digits come with scikit-learn, which is not installed: pip install scikit-learn")
    return Path(spec.origin).parent / "datasets" / "data"


def _published(wanted: PublishedDataSet, data_dir: Path | None, quiet: bool) -> DataSet:
    split = wanted.read(obtain(wanted, data_dir, quiet))
    plane = split.x.shape[1] // wanted.channels
    channel = np.repeat(np.arange(wanted.channels, dtype=np.int64), plane)
    return DataSet(
        wanted.name,
        split.x,
        split.y,
        wanted.classes,
        channel,
        top=255.0,
        x_test=split.x_test,
        y_test=split.y_test,
        image=_square(wanted.channels, plane),
        paper=wanted.paper,
    )


def _square(channels: int, plane: int) -> tuple[int, int, int]:
    """The shape of a square image with so many pixels in each channel."""
    side = isqrt(plane)
    return channels, side, side


def _from_tables(name: str, where: str, table: Table, test: Table | None) -> DataSet:
    """A data set from a table of training samples and, where there is one, a table of test samples."""
    assert table.labels is not None
    classes = class_names(table.labels, where)
    y = encode(table.labels, classes, where)
    x_test = y_test = None
    if test is not None:
        test = aligned(test, f"{where}: x_test", table, "x")
        x_test, y_test = test.x, encode(test.labels or [], classes, f"{where}: y_test")
    return DataSet(
        name, table.x, y, classes, table.channel, table.top, x_test, y_test, features=table.features, image=table.image
    )


def _test_table(path: Path) -> Table | None:
    """The test samples in an .npz file, if it has any."""
    if path.suffix.lower() != ".npz" or not npz_names(path) & {"x_test", "y_test"}:
        return None
    return read_npz(path, require_label=True, part="_test")


def _unknown(name: str) -> FedsacError:
    hint = did_you_mean(name.lower(), DATA.entries)
    return FedsacError(
        f"{name!r} is neither a data set nor a file or folder here{hint}; name one of {DATA.names()}, "
        f"or give a path to a {', '.join(SUFFIXES)} file or to a folder of silos, or module:function"
    )
