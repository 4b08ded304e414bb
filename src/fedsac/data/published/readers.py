"""Readers of the published formats: idx (the MNIST family), CIFAR-10's records, SVHN's .mat files.

Each takes the folder the files lie in and checks structure, not hashes: a subset or another crop in
the same format is welcome, a damaged file is refused by name and place.
"""

import gzip
import struct
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedsac.data.messages import cause, some, unreadable
from fedsac.data.published.matfile import read_mat
from fedsac.errors import FedsacError

IDX_FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
CIFAR_FILES = (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin")
SVHN_FILES = ("train_32x32.mat", "test_32x32.mat")

IDX_SIDE = 28
CIFAR_RECORD = 1 + 3 * 32 * 32
REPLACE = "replace the file with an undamaged copy"


class Split(NamedTuple):
    """The training and the test part of a published set."""

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


def present(folder: Path, name: str) -> Path | None:
    """The file of that name in the folder, or its unpacked twin where the name ends in .gz."""
    for path in (folder / name, folder / name.removesuffix(".gz")):
        if path.is_file():
            return path
    return None


def read_idx_set(folder: Path) -> Split:
    """Fashion-MNIST or MNIST: four idx files, packed or not."""
    train = _idx_pair(_must(folder, IDX_FILES[0]), _must(folder, IDX_FILES[1]))
    test = _idx_pair(_must(folder, IDX_FILES[2]), _must(folder, IDX_FILES[3]))
    return Split(*train, *test)


def read_cifar(folder: Path) -> Split:
    """CIFAR-10's binary version: records of a label byte and the planes R, G, B."""
    batches = [_cifar_batch(_must(folder, name)) for name in CIFAR_FILES]
    x, y = (np.concatenate(parts) for parts in zip(*batches[:-1], strict=True))
    return Split(x, y, *batches[-1])


def read_svhn(folder: Path) -> Split:
    """SVHN's cropped digits; rows are planes R, G, B as in CIFAR-10."""
    return Split(*_svhn_mat(_must(folder, SVHN_FILES[0])), *_svhn_mat(_must(folder, SVHN_FILES[1])))


def _must(folder: Path, name: str) -> Path:
    path = present(folder, name)
    if path is None:
        raise FedsacError(f"{folder / name}: no such file; put it there or name another folder")
    return path


def _idx_pair(images: Path, labels: Path) -> tuple[np.ndarray, np.ndarray]:
    x, y = read_idx_images(images), read_idx_labels(labels)
    if len(x) != len(y):
        raise FedsacError(f"{images} has {len(x)} images but {labels} has {len(y)} labels; take both from the same set")
    return x, y


def read_idx_images(path: Path) -> np.ndarray:
    """Images of one idx file, [n, 784] uint8."""
    raw = _unpacked(path)
    n, rows, columns = _idx_header(path, raw, magic=2051, dims=3)
    if (rows, columns) != (IDX_SIDE, IDX_SIDE):
        raise FedsacError(
            f"{path}: byte 8 says images of {rows}x{columns}, not {IDX_SIDE}x{IDX_SIDE}; it is of another set"
        )
    _idx_length(path, raw, header=16, body=n * rows * columns)
    # A copy, because a view of bytes is read-only and torch complains about that.
    return np.frombuffer(raw, np.uint8, offset=16).reshape(n, rows * columns).copy()


def read_idx_labels(path: Path) -> np.ndarray:
    """Labels 0..9 of one idx file, [n] int64."""
    raw = _unpacked(path)
    (n,) = _idx_header(path, raw, magic=2049, dims=1)
    _idx_length(path, raw, header=8, body=n)
    y = np.frombuffer(raw, np.uint8, offset=8)
    if (bad := np.flatnonzero(y > 9)).size:
        i = int(bad[0])
        raise FedsacError(f"{path}: label {i} (byte {8 + i}) is {y[i]}, not 0..9; {REPLACE}")
    return y.astype(np.int64)


def _idx_header(path: Path, raw: bytes, magic: int, dims: int) -> tuple[int, ...]:
    size = 4 + 4 * dims
    if len(raw) < size:
        raise FedsacError(f"{path}: truncated: {len(raw)} bytes where the header alone has {size}; {REPLACE}")
    found, *shape = struct.unpack(f">{1 + dims}I", raw[:size])
    if found != magic:
        raise FedsacError(f"{path}: byte 0: the magic number is {found}, not {magic} as in such an idx file; {REPLACE}")
    if shape[0] == 0:
        raise FedsacError(f"{path}: byte 4 says it holds 0 samples; {REPLACE}")
    return tuple(shape)


def _idx_length(path: Path, raw: bytes, header: int, body: int) -> None:
    if len(raw) != header + body:
        state = "truncated" if len(raw) < header + body else "too long"
        raise FedsacError(
            f"{path}: {state}: its header means {header + body} bytes, but there are {len(raw)}; {REPLACE}"
        )


def _unpacked(path: Path) -> bytes:
    raw = _bytes(path)
    if path.suffix != ".gz":
        return raw
    try:
        return gzip.decompress(raw)
    except EOFError as err:
        raise FedsacError(f"{path}: truncated: the gzip stream breaks off at byte {len(raw)}; {REPLACE}") from err
    except (gzip.BadGzipFile, zlib.error) as err:
        raise FedsacError(f"{path}: damaged gzip file ({cause(err)}); {REPLACE}") from err


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as err:
        raise unreadable(path, err) from err


def _cifar_batch(path: Path) -> tuple[np.ndarray, np.ndarray]:
    raw = np.frombuffer(_bytes(path), np.uint8)
    if raw.size == 0 or raw.size % CIFAR_RECORD:
        whole = raw.size // CIFAR_RECORD
        raise FedsacError(
            f"{path}: truncated: {raw.size} bytes are {whole} records of {CIFAR_RECORD} bytes and "
            f"{raw.size % CIFAR_RECORD} left over from byte {whole * CIFAR_RECORD}; {REPLACE}"
        )
    records = raw.reshape(-1, CIFAR_RECORD)
    labels = records[:, 0]
    if (bad := np.flatnonzero(labels > 9)).size:
        i = int(bad[0])
        raise FedsacError(f"{path}: record {i} (byte {i * CIFAR_RECORD}) has label {labels[i]}, not 0..9; {REPLACE}")
    return np.ascontiguousarray(records[:, 1:]), labels.astype(np.int64)


def _svhn_mat(path: Path) -> tuple[np.ndarray, np.ndarray]:
    content = read_mat(path, _bytes(path))
    x, y = (_variable(path, content, name) for name in ("X", "y"))
    if x.ndim == 3:  # MATLAB drops the last dimension of a single image
        x = x[..., None]
    if x.ndim != 4 or x.shape[:3] != (32, 32, 3) or x.shape[3] == 0 or x.dtype != np.uint8:
        raise FedsacError(f"{path}: X is {_kind(x)}, not uint8 of 32x32x3xN; {REPLACE}")
    if y.size != x.shape[3] or max(y.shape) != y.size:
        raise FedsacError(
            f"{path}: y is {_kind(y)}, not one number for each of the {x.shape[3]} images in X; {REPLACE}"
        )
    y = y.ravel()
    if (bad := np.flatnonzero(~np.isin(y, np.arange(1, 11)))).size:
        i = int(bad[0])
        raise FedsacError(f"{path}: y of image {i} (counting from 0) is {y[i]}, not 1..10; {REPLACE}")
    rows = np.ascontiguousarray(x.transpose(3, 2, 0, 1)).reshape(len(y), -1)
    return rows, y.astype(np.int64) % 10  # the files call the digit 0 class 10


def _variable(path: Path, content: dict[str, np.ndarray | None], name: str) -> np.ndarray:
    if name not in content:
        raise FedsacError(f"{path}: no variable {name} (there are: {some(sorted(content))}); {REPLACE}")
    values = content[name]
    if values is None:
        raise FedsacError(f"{path}: {name} is not an array of real numbers; {REPLACE}")
    return values


def _kind(a: np.ndarray) -> str:
    return f"{a.dtype} of {'x'.join(map(str, a.shape)) or 'no dimension'}"
