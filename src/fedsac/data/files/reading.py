"""Reading a data file, .npz, .csv or .parquet, into a `Table`."""

from pathlib import Path

from fedsac.data.files.csvfile import read_csv
from fedsac.data.files.npzfile import read_npz
from fedsac.data.files.parquetfile import read_parquet
from fedsac.data.files.tables import SUFFIXES, Table
from fedsac.errors import FedsacError


def read_table(path: Path, label: str, require_label: bool) -> Table:
    """Read a whole file; `label` names the label column of a .csv or .parquet (in an .npz the labels are `y`)."""
    try:
        return _read(path, label, require_label)
    except MemoryError as err:
        raise FedsacError(f"{path}: what it holds is larger than the memory that is left; give fewer samples") from err


def _read(path: Path, label: str, require_label: bool) -> Table:
    suffix = path.suffix.lower()
    if suffix == ".npz":
        return read_npz(path, require_label)
    if suffix == ".csv":
        return read_csv(path, label, require_label)
    if suffix == ".parquet":
        return read_parquet(path, label, require_label)
    raise FedsacError(f"{path}: {suffix or 'no suffix'} is no kind of data file; use {', '.join(SUFFIXES)}")
