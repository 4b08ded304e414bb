"""Data sets by name or path: load one, list what there is, fetch it, check it."""

from dataclasses import dataclass
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from fedsac.data.dataset import DataSet
from fedsac.data.files.labels import class_names, encode
from fedsac.data.files.npzfile import npz_names, read_npz
from fedsac.data.files.silos import load_silos
from fedsac.data.files.tables import SUFFIXES, Table, aligned, read_table
from fedsac.data.published.fetch import obtain
from fedsac.data.published.registry import DIGITS, PUBLISHED, TEN, Published, find
from fedsac.errors import FedsacError

__all__ = ["DataSet", "Listed", "check", "fetch", "listing", "load"]

NAMES = (DIGITS, *PUBLISHED)


@dataclass(frozen=True)
class Listed:
    """A line of the listing."""

    name: str
    what: str
    found: Path | None  # the folder that has all its files


def load(name: str, data_dir: Path | None = None, *, label: str = "label", quiet: bool = True) -> DataSet:
    """Load a set by name (downloaded if it is nowhere), a data file, or a folder of silos."""
    if name == DIGITS:
        return _digits()
    if name in PUBLISHED:
        return _published(PUBLISHED[name], data_dir, quiet)
    path = Path(name)
    if path.is_dir():
        return load_silos(path, label)
    if path.is_file():
        return _own_file(path, label)
    raise _unknown(name)


def listing(data_dir: Path | None = None) -> list[Listed]:
    """The sets that can be named and where each one lies; looks for the files, reads none."""
    digits = Listed(DIGITS, "1,797 images 8x8 of digits, 10 classes (embedded)", _digits_folder())
    return [digits, *(Listed(s.name, s.what, find(s, data_dir).folder) for s in PUBLISHED.values())]


def fetch(name: str, data_dir: Path | None = None, quiet: bool = True) -> Path:
    """Download a set unless it is there already; the folder it lies in (digits come with scikit-learn)."""
    if name == DIGITS:
        return _digits_folder()
    if name not in PUBLISHED:
        raise _unknown(name)
    return obtain(PUBLISHED[name], data_dir, quiet)


def check(name: str, data_dir: Path | None = None, label: str = "label") -> str:
    """Read a set wholly and sum it up in one line; whatever is wrong with it is raised."""
    data = load(name, data_dir, label=label)
    n, d = data.x.shape
    many = len(data.classes) > 10
    names = ", ".join(data.classes[:10]) + (", ..." if many else "")
    parts = [f"{n:,} samples", f"{d:,} features", f"{len(data.classes)} classes ({names})"]
    parts.append("no test samples" if data.x_test is None else f"{len(data.x_test):,} test samples")
    if data.silos is not None and data.validation is not None:
        sizes = ", ".join(f"{client} {len(rows):,}" for client, rows in data.silos.items())
        parts.append(f"{len(data.silos)} silos ({sizes}; validation {len(data.validation):,})")
    return f"{data.name}: {', '.join(parts)}"


def _digits() -> DataSet:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    x = bunch.data.astype(np.uint8)
    return DataSet(DIGITS, x, bunch.target.astype(np.int64), TEN, channel=np.zeros(x.shape[1], np.int64), top=16.0)


def _digits_folder() -> Path:
    spec = find_spec("sklearn")  # finding it does not import it, which takes a second
    if spec is None or spec.origin is None:
        raise FedsacError("digits come with scikit-learn, which is not installed: pip install scikit-learn")
    return Path(spec.origin).parent / "datasets" / "data"


def _published(wanted: Published, data_dir: Path | None, quiet: bool) -> DataSet:
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
        paper=wanted.paper,
    )


def _own_file(path: Path, label: str) -> DataSet:
    table = read_table(path, label, require_label=True)
    assert table.labels is not None
    classes = class_names(table.labels, str(path))
    y = encode(table.labels, classes, str(path))
    test = _own_test(path, table)
    y_test = None
    if test is not None and test.labels is not None:
        y_test = encode(test.labels, classes, f"{path}: y_test")
    x_test = None if test is None else test.x
    return DataSet(path.stem, table.x, y, classes, table.channel, table.top, x_test, y_test, features=table.features)


def _own_test(path: Path, table: Table) -> Table | None:
    if path.suffix.lower() != ".npz" or not npz_names(path) & {"x_test", "y_test"}:
        return None
    test = read_npz(path, require_label=True, part="_test")
    return aligned(test, f"{path}: x_test", table, "x")


def _unknown(name: str) -> FedsacError:
    near = get_close_matches(name.lower(), NAMES, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    return FedsacError(
        f"{name!r} is neither a data set nor a file or folder here{hint}; name one of {', '.join(NAMES)}, "
        f"or give a path to a {', '.join(SUFFIXES)} file or to a folder of silos"
    )
