import gzip
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsac.data.catalogue import load
from fedsac.data.published.readers import read_idx_images, read_idx_labels
from fedsac.errors import FedsacError
from tests.data.made import idx_content, idx_images, idx_labels, images, put, refused, unhurried

IMAGES, LABELS = "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("idx")


@pytest.mark.parametrize("name", ["fashion-mnist", "mnist"])
@pytest.mark.parametrize("packed", [True, False])
def test_four_files_are_a_set(tmp_path: Path, name: str, packed: bool) -> None:
    content = idx_content(20, 10)
    if not packed:
        content = {file.removesuffix(".gz"): gzip.decompress(raw) for file, raw in content.items()}
    put(tmp_path / name, content)
    data = load(name, tmp_path)
    assert data.name == name
    assert np.array_equal(data.x, images(20, 784))
    assert data.x_test is not None and np.array_equal(data.x_test, images(10, 784, 1))
    assert data.y.tolist() == [*range(10)] * 2 and data.y.dtype == np.int64
    assert data.channel.tolist() == [0] * 784 and data.top == 255
    assert data.paper == (name == "fashion-mnist")
    assert data.classes[9] == ("Ankle boot" if name == "fashion-mnist" else "9")
    assert data.x.flags.writeable


@unhurried
@given(st.integers(1, 5), st.integers(0, 2**32 - 1), st.booleans())
def test_round_trip(scratch: Path, n: int, seed: int, packed: bool) -> None:
    x, y = images(n, 784, seed), np.random.default_rng(seed).integers(0, 10, n)
    suffix, pack = (".gz", gzip.compress) if packed else ("", bytes)
    (scratch / f"images{suffix}").write_bytes(pack(idx_images(x)))
    (scratch / f"labels{suffix}").write_bytes(pack(idx_labels(y)))
    assert np.array_equal(read_idx_images(scratch / f"images{suffix}"), x)
    assert np.array_equal(read_idx_labels(scratch / f"labels{suffix}"), y)


@unhurried
@given(st.data(), st.booleans(), st.booleans())
def test_any_truncation_is_refused(scratch: Path, data: st.DataObject, packed: bool, labels: bool) -> None:
    raw = idx_labels(np.arange(9)) if labels else idx_images(images(2, 784))
    whole = gzip.compress(raw, mtime=0) if packed else raw
    cut = data.draw(st.integers(0, len(whole) - 1))
    path = scratch / ("cut.gz" if packed else "cut")
    path.write_bytes(whole[:cut])
    with refused(path, "truncated" if cut != 1 or not packed else "damaged"):
        (read_idx_labels if labels else read_idx_images)(path)


@unhurried
@given(st.data())
def test_a_flipped_bit_in_a_packed_file_never_passes(scratch: Path, data: st.DataObject) -> None:
    raw = idx_labels(np.arange(9))
    whole = bytearray(gzip.compress(raw, mtime=0))
    bit = data.draw(st.integers(0, 8 * len(whole) - 1))
    whole[bit // 8] ^= 1 << bit % 8
    path = scratch / "flipped.gz"
    path.write_bytes(whole)
    try:
        # Some bytes of gzip's own header (time, system) mean nothing for the content.
        assert read_idx_labels(path).tolist() == list(range(9))
    except FedsacError as err:
        assert str(path) in str(err)


def folder_with(tmp_path: Path, **changed: bytes) -> Path:
    content = idx_content()
    names = {"images": IMAGES, "labels": LABELS}
    put(tmp_path / "mnist", content | {names[key]: raw for key, raw in changed.items()})
    return tmp_path


def test_wrong_magic_number(tmp_path: Path) -> None:
    root = folder_with(tmp_path, images=gzip.compress(idx_images(images(20, 784), magic=2052)))
    with refused(tmp_path / "mnist" / IMAGES, "byte 0", "2052", "2051"):
        load("mnist", root)


def test_labels_where_images_belong(tmp_path: Path) -> None:
    root = folder_with(tmp_path, images=gzip.compress(idx_labels(np.arange(10)) + bytes(8)))
    with refused(IMAGES, "2049", "2051"):
        load("mnist", root)


def test_truncated_says_expected_and_actual_bytes(tmp_path: Path) -> None:
    root = folder_with(tmp_path, images=gzip.compress(idx_images(images(20, 784))[:-5]))
    with refused(IMAGES, "truncated", 16 + 20 * 784, 16 + 20 * 784 - 5):
        load("mnist", root)


def test_too_long(tmp_path: Path) -> None:
    root = folder_with(tmp_path, labels=gzip.compress(idx_labels(np.arange(20) % 10) + b"\0"))
    with refused(LABELS, "too long", 28, 29):
        load("mnist", root)


def test_other_image_size(tmp_path: Path) -> None:
    root = folder_with(tmp_path, images=gzip.compress(idx_images(images(20, 1024), side=32)))
    with refused(IMAGES, "byte 8", "32x32", "28x28"):
        load("mnist", root)


def test_no_samples(tmp_path: Path) -> None:
    root = folder_with(tmp_path, labels=gzip.compress(struct.pack(">II", 2049, 0)))
    with refused(LABELS, "byte 4", "0 samples"):
        load("mnist", root)


def test_damaged_checksum(tmp_path: Path) -> None:
    raw = bytearray(idx_content()[IMAGES])
    raw[-8] ^= 1
    with refused(tmp_path / "mnist" / IMAGES, "damaged", "CRC"):
        load("mnist", folder_with(tmp_path, images=bytes(raw)))


def test_damaged_stream(tmp_path: Path) -> None:
    raw = bytearray(idx_content()[IMAGES])
    raw[10:60] = b"\xff" * 50
    with refused(IMAGES, "damaged"):
        load("mnist", folder_with(tmp_path, images=bytes(raw)))


def test_not_gzip(tmp_path: Path) -> None:
    with refused(LABELS, "damaged", "gzip"):
        load("mnist", folder_with(tmp_path, labels=zlib.compress(b"labels")))


def test_more_images_than_labels(tmp_path: Path) -> None:
    root = folder_with(tmp_path, labels=gzip.compress(idx_labels(np.arange(19) % 10)))
    with refused(IMAGES, "20 images", LABELS, "19 labels"):
        load("mnist", root)


def test_label_out_of_range(tmp_path: Path) -> None:
    y = np.arange(20) % 10
    y[7] = 12
    root = folder_with(tmp_path, labels=gzip.compress(idx_labels(y)))
    with refused(LABELS, "label 7", "byte 15", "12", "0..9"):
        load("mnist", root)


def test_unreadable_file(tmp_path: Path) -> None:
    root = folder_with(tmp_path)
    with refused(tmp_path / "mnist", "cannot be read"):
        read_idx_labels(root / "mnist")
