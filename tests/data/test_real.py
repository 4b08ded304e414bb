"""The readers on real data in the published formats."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedsac.data.catalogue import DataSet, check, load

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (SHARED / "unpack.py").is_file(), reason=f"no real data: {SHARED} is not there"),
]


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published")
    subprocess.run([sys.executable, SHARED / "unpack.py", folder], check=True)
    return folder


def originals(name: str, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Images, channels last, and labels from the archives that unpack.py reads."""
    xs, ys = [], []
    for path in sorted(SHARED.glob(f"{name}_{split}*.npz")):
        with np.load(path, allow_pickle=False) as file:
            ys.append(file["y"])
            if "x" in file.files:
                xs.append(file["x"])
                continue
            deltas = file["x_delta"].cumsum(2, dtype=np.uint8).cumsum(3, dtype=np.uint8)
        green = deltas[:, 0]
        xs.append(np.stack([deltas[:, 1] + green, green, deltas[:, 2] + green], -1))
    return np.concatenate(xs), np.concatenate(ys)


def same_pixels(data: DataSet, rows: np.ndarray, pixels: np.ndarray) -> bool:
    planes = [rows[:, data.channel == c] for c in range(int(data.channel.max()) + 1)]
    return all(
        np.array_equal(plane, pixels.reshape(len(rows), -1, len(planes))[..., c]) for c, plane in enumerate(planes)
    )


@pytest.mark.parametrize(
    ("name", "file", "counts"),
    [
        ("fashion-mnist", "fashion_mnist", (60_000, 10_000)),
        ("cifar10", "cifar10", (50_000, 10_000)),
        ("svhn", "svhn", (30_000, 10_000)),
    ],
)
def test_every_pixel_and_label(root: Path, name: str, file: str, counts: tuple[int, int]) -> None:
    data = load(name, root)
    assert data.paper and data.x.dtype == np.uint8 and data.x_test is not None and data.y_test is not None
    assert (len(data.x), len(data.x_test)) == counts
    for split, x, y in (("train", data.x, data.y), ("test", data.x_test, data.y_test)):
        pixels, labels = originals(file, split)
        assert np.array_equal(y, labels)
        assert same_pixels(data, x, pixels)
    assert f"{counts[0]:,} samples" in check(name, root)
