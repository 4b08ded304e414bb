"""Small made-up data in the published formats, and the check of a refusal."""

import gzip
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from scipy.io import savemat

from fedsac.errors import FedsacError

# These properties write files: on a busy machine an example may take long without anything being wrong.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@contextmanager
def refused(*parts: object) -> Iterator[None]:
    """What happens inside is refused in one line that names all these parts."""
    with pytest.raises(FedsacError) as caught:
        yield
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert str(part) in message, f"{part!s} is not in: {message}"


def images(n: int, d: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, d), np.uint8)


def idx_images(x: np.ndarray, magic: int = 2051, side: int = 28) -> bytes:
    return struct.pack(">IIII", magic, len(x), side, side) + x.tobytes()


def idx_labels(y: np.ndarray, magic: int = 2049) -> bytes:
    return struct.pack(">II", magic, len(y)) + y.astype(np.uint8).tobytes()


def idx_content(n: int = 20, n_test: int = 10) -> dict[str, bytes]:
    """The four files of an idx set by their published names."""
    return {
        "train-images-idx3-ubyte.gz": gzip.compress(idx_images(images(n, 784)), mtime=0),
        "train-labels-idx1-ubyte.gz": gzip.compress(idx_labels(np.arange(n) % 10), mtime=0),
        "t10k-images-idx3-ubyte.gz": gzip.compress(idx_images(images(n_test, 784, 1)), mtime=0),
        "t10k-labels-idx1-ubyte.gz": gzip.compress(idx_labels(np.arange(n_test) % 10), mtime=0),
    }


def cifar_records(x: np.ndarray, y: np.ndarray) -> bytes:
    return np.concatenate([y[:, None].astype(np.uint8), x], 1).tobytes()


def cifar_content(n: int = 3) -> dict[str, bytes]:
    """The six batch files, n records each."""
    names = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
    return {name: cifar_records(images(n, 3072, i), (np.arange(n) + i) % 10) for i, name in enumerate(names)}


def put(folder: Path, content: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in content.items():
        (folder / name).write_bytes(data)
    return folder


def svhn_x(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (32, 32, 3, n), np.uint8)


def put_svhn(folder: Path, n: int = 12, n_test: int = 10, compress: bool = True) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in (("train", n), ("test", n_test)):
        content = {"X": svhn_x(count), "y": (np.arange(count) % 10 + 1).astype(np.uint8)[:, None]}
        savemat(folder / f"{name}_32x32.mat", content, do_compression=compress)
    return folder
