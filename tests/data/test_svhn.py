from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.io import loadmat, savemat

from fedsac.data.catalogue import load
from fedsac.data.published.matfile import read_mat
from fedsac.errors import FedsacError
from tests.data.made import put_svhn, refused, svhn_x, unhurried

TRAIN = "train_32x32.mat"


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("svhn")


def with_train(root: Path, **content: Any) -> Path:
    savemat(put_svhn(root / "svhn") / TRAIN, content)
    return root


@pytest.mark.parametrize("compress", [True, False])
def test_two_files_are_a_set(tmp_path: Path, compress: bool) -> None:
    put_svhn(tmp_path / "svhn", 12, 10, compress)
    data = load("svhn", tmp_path)
    assert data.y.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2]  # class 10 is the digit 0
    assert data.x.shape == (12, 3072) and data.x.dtype == np.uint8 and data.x.flags.writeable
    assert data.x_test is not None and data.x_test.shape == (10, 3072)
    x = svhn_x(12)
    for channel in range(3):
        plane = data.x[5][data.channel == channel].reshape(32, 32)
        assert np.array_equal(plane, x[:, :, channel, 5])


def test_one_image_alone(tmp_path: Path) -> None:
    assert len(load("svhn", with_train(tmp_path, X=svhn_x(1)[..., 0], y=[[3]])).x) == 1


def test_labels_may_be_doubles_in_a_row(tmp_path: Path) -> None:
    assert load("svhn", with_train(tmp_path, X=svhn_x(3), y=[[1.0, 10.0, 2.0]])).y.tolist() == [1, 0, 2]


def test_missing_variable(tmp_path: Path) -> None:
    with refused(tmp_path / "svhn" / TRAIN, "no variable y", "'X'"):
        load("svhn", with_train(tmp_path, X=svhn_x(3), labels=[1]))


@pytest.mark.parametrize(
    ("x", "told"),
    [
        (np.zeros((32, 32, 3, 3)), "float64 of 32x32x3x3"),
        (np.zeros((32, 32, 1, 3), np.uint8), "uint8 of 32x32x1x3"),
        (np.zeros((3, 3072), np.uint8), "uint8 of 3x3072"),
        (np.zeros((32, 32, 3, 0), np.uint8), "uint8 of 32x32x3x0"),
    ],
)
def test_wrong_images(tmp_path: Path, x: np.ndarray, told: str) -> None:
    with refused(tmp_path / "svhn" / TRAIN, "X is", told, "32x32x3xN"):
        load("svhn", with_train(tmp_path, X=x, y=[1, 2, 3]))


@pytest.mark.parametrize("y", [[1, 2], np.ones((3, 3))])
def test_labels_that_do_not_match_the_images(tmp_path: Path, y: Any) -> None:
    with refused(TRAIN, "y is", "3 images"):
        load("svhn", with_train(tmp_path, X=svhn_x(3), y=y))


@pytest.mark.parametrize("bad", [0, 11, 2.5, float("nan")])
def test_label_out_of_range(tmp_path: Path, bad: float) -> None:
    with refused(TRAIN, "image 2", bad, "1..10"):
        load("svhn", with_train(tmp_path, X=svhn_x(3), y=[1, 2, bad]))


@pytest.mark.parametrize("y", ["text", np.array([1 + 2j, 1, 1])])
def test_labels_that_are_no_numbers(tmp_path: Path, y: Any) -> None:
    with refused(TRAIN, "y is not an array of real numbers"):
        load("svhn", with_train(tmp_path, X=svhn_x(3), y=y))


@pytest.mark.parametrize("raw", [b"", b"junk" * 50, b"MATLAB 5.0" + bytes(50)])
def test_no_mat_file(tmp_path: Path, raw: bytes) -> None:
    (put_svhn(tmp_path / "svhn") / TRAIN).write_bytes(raw)
    with refused(tmp_path / "svhn" / TRAIN, "byte 126", "MATLAB 5"):
        load("svhn", tmp_path)


def test_newer_mat_file(tmp_path: Path) -> None:
    (put_svhn(tmp_path / "svhn") / TRAIN).write_bytes(b"MATLAB 7.3 MAT-file".ljust(512))
    with refused(TRAIN, "7.3", "-v7"):
        load("svhn", tmp_path)


@pytest.mark.parametrize("compress", [True, False])
@unhurried
@given(data=st.data())
def test_any_truncation_is_refused(scratch: Path, compress: bool, data: st.DataObject) -> None:
    path = put_svhn(scratch / "svhn", 3, 2, compress) / TRAIN
    raw = path.read_bytes()
    path.write_bytes(raw[: data.draw(st.integers(0, len(raw) - 1))])
    with refused(path):  # cut between the variables, one of them is missing; else it is truncated
        load("svhn", scratch)


@pytest.mark.parametrize("compress", [True, False])
@unhurried
@given(data=st.data())
def test_damage_is_refused_or_harmless(scratch: Path, compress: bool, data: st.DataObject) -> None:
    """scipy crashes on some of these, which is why fedsac has a reader of its own."""
    path = put_svhn(scratch / "svhn", 2, 2, compress) / TRAIN
    raw = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(100, 300) | st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(raw)
    try:
        assert load("svhn", scratch).x.shape == (2, 3072)
    except FedsacError as err:
        assert str(path) in str(err) and "\n" not in str(err)


@unhurried
@given(
    dtype=st.sampled_from(["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8"]),
    shape=st.lists(st.integers(1, 4), min_size=2, max_size=4),
    compress=st.booleans(),
)
def test_reads_what_scipy_writes(scratch: Path, dtype: str, shape: list[int], compress: bool) -> None:
    values = np.random.default_rng(0).integers(0, 100, shape).astype(dtype)
    path = scratch / "any.mat"
    savemat(path, {"some": values, "other": values.T[:1]}, do_compression=compress)
    ours, theirs = read_mat(path, path.read_bytes()), loadmat(path)
    for name in ("some", "other"):
        found = ours[name]
        assert found is not None and np.array_equal(found, theirs[name]) and found.dtype == values.dtype
