from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedsac.data.catalogue import load
from fedsac.data.files.reading import read_table
from fedsac.errors import FedsacError
from tests.data.made import refused, unhurried

X = np.arange(12.0).reshape(6, 2)
Y = np.array([0, 1, 2, 0, 1, 2])


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("npz")


def saved(folder: Path, **arrays: Any) -> Path:
    path = folder / "bank.npz"
    np.savez(path, **arrays)
    return path


def test_table(tmp_path: Path) -> None:
    data = load(str(saved(tmp_path, x=X.astype(np.float32), y=Y)))
    assert data.name == "bank" and data.x.dtype == np.float64 and np.array_equal(data.x, X)
    assert data.channel.tolist() == [0, 1] and data.top == 1.0
    assert data.classes == ("0", "1", "2") and data.y.tolist() == Y.tolist()
    assert data.features == () and data.x_test is None and data.silos is None and not data.paper


@pytest.mark.parametrize(
    ("shape", "channel"),
    [((6, 2, 3), [0] * 6), ((6, 1, 2, 3), [0, 1, 2, 0, 1, 2]), ((6, 4), [0, 1, 2, 3])],
)
@pytest.mark.parametrize(("dtype", "top"), [("uint8", 255.0), ("float32", 1.0), ("int16", 1.0), ("bool", 1.0)])
def test_images(tmp_path: Path, shape: tuple[int, ...], channel: list[int], dtype: str, top: float) -> None:
    x = np.random.default_rng(0).integers(0, 256, shape).astype(dtype)
    data = load(str(saved(tmp_path, x=x, y=Y)))
    assert np.array_equal(data.x, x.reshape(6, -1)) and data.channel.tolist() == channel and data.top == top
    assert data.x.dtype == (np.uint8 if dtype == "uint8" else np.float64)


@pytest.mark.parametrize(
    ("y", "classes", "coded"),
    [
        ([10, 9, 10, 9, 2, 2], ("2", "9", "10"), [2, 1, 2, 1, 0, 0]),
        ([1.0, 0.0, 1.0, 0.0, 3.0, 3.0], ("0", "1", "3"), [1, 0, 1, 0, 2, 2]),
        (["ill", "well", "ill", "well", "ill", "ill"], ("ill", "well"), [0, 1, 0, 1, 0, 0]),
        ([b"ill", b"well"] * 3, ("ill", "well"), [0, 1] * 3),
        (["10", "9"] * 3, ("9", "10"), [1, 0] * 3),
        ([True, False] * 3, ("False", "True"), [1, 0] * 3),
    ],
)
def test_labels(tmp_path: Path, y: list[Any], classes: tuple[str, ...], coded: list[int]) -> None:
    data = load(str(saved(tmp_path, x=X, y=np.array(y))))
    assert data.classes == classes and data.y.tolist() == coded and data.y.dtype == np.int64


def test_test_part(tmp_path: Path) -> None:
    data = load(str(saved(tmp_path, x=X, y=Y, x_test=X[:2] + 1, y_test=[2, 0])))
    assert data.x_test is not None and np.array_equal(data.x_test, X[:2] + 1)
    assert data.y_test is not None and data.y_test.tolist() == [2, 0]


def test_reading_for_prediction_needs_no_labels(tmp_path: Path) -> None:
    table = read_table(saved(tmp_path, x=X), "label", require_label=False)
    assert table.labels is None and table.features == () and np.array_equal(table.x, X)
    assert read_table(saved(tmp_path, x=X, y=Y), "label", require_label=False).labels == list("012012")


NAN = X.copy()
NAN[4, 1] = np.nan
INF = X.reshape(6, 1, 2, 1).copy()
INF[3, 0, 1, 0] = np.inf


@pytest.mark.parametrize(
    ("arrays", "told"),
    [
        ({"x": X}, ["no array y", "'x'"]),
        ({"y": Y, "X": X}, ["no array x", "'X', 'y'"]),
        ({"x": np.array([[1, None]]), "y": Y}, ["x holds Python objects"]),
        ({"x": X, "y": np.array(["a", 1, None] * 2, dtype=object)}, ["y holds Python objects"]),
        ({"x": np.array([["a"]]), "y": [1]}, ["x is <U1"]),
        ({"x": X * 1j, "y": Y}, ["x is complex128"]),
        ({"x": X[:, 0], "y": Y}, ["x has shape 6"]),
        ({"x": np.zeros((6, 1, 1, 1, 1)), "y": Y}, ["x has shape 6x1x1x1x1"]),
        ({"x": X[:0], "y": Y[:0]}, ["x has shape 0x2", "no sample"]),
        ({"x": X[:, :0], "y": Y}, ["x has shape 6x0"]),
        ({"x": NAN, "y": Y}, ["x[4, 1]", "row 4, column 1", "nan"]),
        ({"x": INF, "y": Y}, ["x[3, 0, 1, 0]", "row 3, column 1", "inf"]),
        ({"x": X, "y": Y[:5]}, ["y has 5 labels for 6 samples"]),
        ({"x": X, "y": np.eye(6)}, ["y has shape 6x6"]),
        ({"x": X, "y": [0, 1, 2, 0, 1.5, 2]}, ["y, row 4", "1.5"]),
        ({"x": X, "y": [0, 1, 2, 0, 1, np.nan]}, ["y, row 5", "nan"]),
        ({"x": X, "y": [0, 1, -1, 0, 1, 2]}, ["y[2]", "row 2", "-1"]),
        ({"x": X, "y": ["a", "b", "", "a", "b", "a"]}, ["y, row 2", "empty"]),
        ({"x": X, "y": [b"\xff"] * 6}, ["y", "UTF-8"]),
        ({"x": X, "y": Y * 1j}, ["y", "complex128"]),
        ({"x": X, "y": Y * 0}, ["every label is '0'", "2 classes"]),
        ({"x": X, "y": Y, "x_test": X}, ["no array y_test"]),
        ({"x": X, "y": Y, "y_test": Y}, ["no array x_test"]),
        ({"x": X, "y": Y, "x_test": X, "y_test": Y[:5]}, ["y_test has 5 labels for 6"]),
        ({"x": X, "y": Y, "x_test": NAN, "y_test": Y}, ["x_test[4, 1]"]),
        ({"x": X, "y": Y, "x_test": X[:1], "y_test": [7]}, ["y_test, row 0", "'7'", "does not occur"]),
        ({"x": X, "y": Y, "x_test": X[:1, :1], "y_test": [1]}, ["x_test has 1 feature", "2"]),
        (
            {"x": X, "y": Y, "x_test": X.astype(np.uint8), "y_test": Y},
            ["x_test has uint8", "x has float64"],
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::numpy.exceptions.VisibleDeprecationWarning")
def test_refusals_name_file_and_place(tmp_path: Path, arrays: dict[str, Any], told: list[str]) -> None:
    path = saved(tmp_path, **arrays)
    with refused(path, *told):
        load(str(path))


def test_no_npz_at_all(tmp_path: Path) -> None:
    path = tmp_path / "bank.npz"
    path.write_text("a,b,label\n")
    with refused(path, "not an .npz file"):
        load(str(path))


def test_member_that_is_no_array(tmp_path: Path) -> None:
    import zipfile

    path = tmp_path / "bank.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", b"hello")
        archive.writestr("y.npy", b"hello")
    with refused(path, "x cannot be read", "not an array"):
        load(str(path))


@unhurried
@given(data=st.data(), packed=st.booleans())
def test_damage_is_refused_or_harmless(scratch: Path, data: st.DataObject, packed: bool) -> None:
    path = scratch / "damaged.npz"
    (np.savez_compressed if packed else np.savez)(path, x=X, y=Y)
    raw = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        del raw[data.draw(st.integers(0, len(raw) - 1)) :]
    else:
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(raw)
    try:
        assert np.array_equal(load(str(path)).x, X)
    except FedsacError as err:
        assert str(path) in str(err) and "\n" not in str(err)


@unhurried
@given(
    x=hnp.arrays(np.float64, st.tuples(st.integers(2, 6), st.integers(1, 4)), elements=st.floats(-1e9, 1e9)),
    data=st.data(),
)
def test_round_trip(scratch: Path, x: np.ndarray, data: st.DataObject) -> None:
    labels = st.integers(0, 50)
    y = data.draw(st.lists(labels, min_size=len(x), max_size=len(x)).filter(lambda y: len(set(y)) > 1))
    found = load(str(saved(scratch, x=x, y=y)))
    assert np.array_equal(found.x, x)
    assert [int(found.classes[i]) for i in found.y] == y
    assert list(found.classes) == [str(v) for v in sorted(set(y))]
