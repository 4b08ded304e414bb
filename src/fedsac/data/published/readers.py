"""Readers of the published formats: idx (the MNIST family), CIFAR-10's records, SVHN's .mat files.

Each takes the folder of the files and checks their structure, not their hashes: a subset or another crop in the same
format is read; a damaged file is an error that names the file and the byte.
"""

import gzip
import io
import struct
import zlib
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedsac.data.messages import cause, some, unreadable
from fedsac.data.published.matfile import MAX_UNPACKED_BYTES, read_mat
from fedsac.errors import FedsacError

IDX_FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
CIFAR_FILES = (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin")
SVHN_FILES = ("train_32x32.mat", "test_32x32.mat")

IDX_SIDE_PIXELS = 28
CHUNK_BYTES = 1 << 20  # unpacked at a time
CIFAR_RECORD_BYTES = 1 + 3 * 32 * 32
REPLACE_HINT = "replace the file with an undamaged copy"


class TrainTest(NamedTuple):
    """The training and test samples of a published data set."""

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


def present(folder: Path, name: str) -> Path | None:
    """The path of a file in the folder, or of its unpacked version if the name ends in .gz; None if neither exists."""
    for path in (folder / name, folder / name.removesuffix(".gz")):
        if path.is_file():
            return path
    return None


def read_idx_set(folder: Path) -> TrainTest:
    """Fashion-MNIST or MNIST: four idx files, packed or not."""
    train = _idx_pair(_required(folder, IDX_FILES[0]), _required(folder, IDX_FILES[1]))
    test = _idx_pair(_required(folder, IDX_FILES[2]), _required(folder, IDX_FILES[3]))
    return TrainTest(*train, *test)


def read_cifar(folder: Path) -> TrainTest:
    """CIFAR-10's binary version: records of a label byte and the colour planes R, G, B."""
    batches = [_cifar_batch(_required(folder, name)) for name in CIFAR_FILES]
    x, y = (np.concatenate(parts) for parts in zip(*batches[:-1], strict=True))
    return TrainTest(x, y, *batches[-1])


def read_svhn(folder: Path) -> TrainTest:
    """SVHN's cropped digits; a sample's colour planes follow each other, R, G, B, as in CIFAR-10."""
    return TrainTest(*_svhn_mat(_required(folder, SVHN_FILES[0])), *_svhn_mat(_required(folder, SVHN_FILES[1])))


def _required(folder: Path, name: str) -> Path:
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
    if (rows, columns) != (IDX_SIDE_PIXELS, IDX_SIDE_PIXELS):
        raise FedsacError(
            f"{path}: byte 8 says images of {rows}x{columns}, not {IDX_SIDE_PIXELS}x{IDX_SIDE_PIXELS}; "
            "it is of another set"
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
        raise FedsacError(f"{path}: label {i} (byte {8 + i}) is {y[i]}, not 0..9; {REPLACE_HINT}")
    return y.astype(np.int64)


def _idx_header(path: Path, raw: bytes, magic: int, dims: int) -> tuple[int, ...]:
    size = 4 + 4 * dims
    if len(raw) < size:
        raise FedsacError(f"{path}: truncated: {len(raw)} bytes where the header alone has {size}; {REPLACE_HINT}")
    number, *shape = struct.unpack(f">{1 + dims}I", raw[:size])
    if number != magic:
        raise FedsacError(
            f"{path}: byte 0: the magic number is {number}, not {magic} as in such an idx file; {REPLACE_HINT}"
        )
    if shape[0] == 0:
        raise FedsacError(f"{path}: byte 4 says it holds 0 samples; {REPLACE_HINT}")
    return tuple(shape)


def _idx_length(path: Path, raw: bytes, header: int, body: int) -> None:
    if len(raw) != header + body:
        state = "truncated" if len(raw) < header + body else "too long"
        raise FedsacError(
            f"{path}: {state}: its header means {header + body} bytes, but there are {len(raw)}; {REPLACE_HINT}"
        )


def _unpacked(path: Path) -> bytes:
    raw = _bytes(path)
    if path.suffix != ".gz":
        return raw
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(raw)) as file:
            # In chunks: asked for all at once, it would take that much memory for the smallest file.
            chunks = iter(lambda: file.read(CHUNK_BYTES), b"")
            content = b"".join(islice(chunks, MAX_UNPACKED_BYTES // CHUNK_BYTES + 1))
        if len(content) > MAX_UNPACKED_BYTES:
            raise FedsacError(f"{path}: unpacked it is larger than {MAX_UNPACKED_BYTES >> 20} MiB; {REPLACE_HINT}")
        return content
    except MemoryError as err:
        raise FedsacError(f"{path}: unpacked it is larger than the memory that is left; {REPLACE_HINT}") from err
    except EOFError as err:
        raise FedsacError(f"{path}: truncated: the gzip stream breaks off at byte {len(raw)}; {REPLACE_HINT}") from err
    except (gzip.BadGzipFile, zlib.error) as err:
        raise FedsacError(f"{path}: damaged gzip file ({cause(err)}); {REPLACE_HINT}") from err


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as err:
        raise unreadable(path, err) from err


def _cifar_batch(path: Path) -> tuple[np.ndarray, np.ndarray]:
    raw = np.frombuffer(_bytes(path), np.uint8)
    if raw.size == 0 or raw.size % CIFAR_RECORD_BYTES:
        whole = raw.size // CIFAR_RECORD_BYTES
        raise FedsacError(
            f"{path}: truncated: {raw.size} bytes are {whole} records of {CIFAR_RECORD_BYTES} bytes and "
            f"{raw.size % CIFAR_RECORD_BYTES} left over from byte {whole * CIFAR_RECORD_BYTES}; {REPLACE_HINT}"
        )
    records = raw.reshape(-1, CIFAR_RECORD_BYTES)
    labels = records[:, 0]
    if (bad := np.flatnonzero(labels > 9)).size:
        i = int(bad[0])
        raise FedsacError(
            f"{path}: record {i} (byte {i * CIFAR_RECORD_BYTES}) has label {labels[i]}, not 0..9; {REPLACE_HINT}"
        )
    return np.ascontiguousarray(records[:, 1:]), labels.astype(np.int64)


def _svhn_mat(path: Path) -> tuple[np.ndarray, np.ndarray]:
    content = read_mat(path, _bytes(path))
    x, y = (_variable(path, content, name) for name in ("X", "y"))
    if x.ndim == 3:  # MATLAB drops the last dimension of a single image
        x = x[..., None]
    if x.ndim != 4 or x.shape[:3] != (32, 32, 3) or x.shape[3] == 0 or x.dtype != np.uint8:
        raise FedsacError(f"{path}: X is {_type_and_shape(x)}, not uint8 of 32x32x3xN; {REPLACE_HINT}")
    if y.size != x.shape[3] or max(y.shape) != y.size:
        raise FedsacError(
            f"{path}: y is {_type_and_shape(y)}, not one number for each of the {x.shape[3]} images in X; "
            f"{REPLACE_HINT}"
        )
    y = y.ravel()
    if (bad := np.flatnonzero(~np.isin(y, np.arange(1, 11)))).size:
        i = int(bad[0])
        raise FedsacError(f"{path}: y of image {i} (counting from 0) is {y[i]}, not 1..10; {REPLACE_HINT}")
    rows = np.ascontiguousarray(x.transpose(3, 2, 0, 1)).reshape(len(y), -1)
    return rows, y.astype(np.int64) % 10  # the files call the digit 0 class 10


def _variable(path: Path, content: dict[str, np.ndarray | None], name: str) -> np.ndarray:
    if name not in content:
        raise FedsacError(f"{path}: no variable {name} (there are: {some(sorted(content))}); {REPLACE_HINT}")
    values = content[name]
    if values is None:
        raise FedsacError(f"{path}: {name} is not an array of real numbers; {REPLACE_HINT}")
    return values


def _type_and_shape(a: np.ndarray) -> str:
    return f"{a.dtype} of {'x'.join(map(str, a.shape)) or 'no dimension'}"
