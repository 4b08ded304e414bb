from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from fedsac.data.catalogue import check, load
from tests.data.made import refused

ROWS = "age,dose,label\n1,2,ill\n3,4,well\n"


def folder(tmp_path: Path, **files: str) -> Path:
    """Two clients and validation, and whatever else is given ("b_csv" is b.csv; "" leaves it out)."""
    root = tmp_path / "hospitals"
    root.mkdir()
    for name, text in ({"b_csv": ROWS, "a_csv": ROWS, "validation_csv": ROWS} | files).items():
        if text:
            (root / name.replace("_", ".")).write_text(text)
    return root


def test_a_file_a_client(tmp_path: Path) -> None:
    root = folder(
        tmp_path,
        b_csv="age,dose,label\n5,6,dead\n",
        validation_csv="age,dose,label\n7,8,ill\n",
        test_csv="age,dose,label\n9,10,well\n",
    )
    data = load(str(root))
    assert data.silos is not None and list(data.silos) == ["a", "b"]
    assert data.x[data.silos["a"]].tolist() == [[1, 2], [3, 4]] and data.x[data.silos["b"]].tolist() == [[5, 6]]
    assert data.validation is not None and data.x[data.validation].tolist() == [[7, 8]]
    assert data.classes == ("dead", "ill", "well") and data.y.tolist() == [1, 2, 0, 1]
    assert data.x_test is not None and data.x_test.tolist() == [[9, 10]]
    assert data.y_test is not None and data.y_test.tolist() == [2]
    assert data.name == "hospitals" and data.top == 1.0 and data.channel.tolist() == [0, 1]


def test_columns_in_another_order_are_put_in_order(tmp_path: Path) -> None:
    data = load(str(folder(tmp_path, b_csv="label,dose,age\nill,6,5\n")))
    assert data.silos is not None and data.x[data.silos["b"]].tolist() == [[5, 6]]
    assert data.features == ("age", "dose")


def test_kinds_of_file_may_be_mixed(tmp_path: Path) -> None:
    root = folder(tmp_path, README_md="what this is", b_csv="", notes_txt="x", _hidden="x")
    (root / "sub.toml").write_text("")
    np.savez(root / "b.npz", x=[[5.0, 6.0]], y=["ill"])
    parquet.write_table(pa.table({"dose": [8], "label": ["well"], "age": [7]}), root / "c.parquet")
    data = load(str(root))
    assert data.silos is not None and list(data.silos) == ["a", "b", "c"]
    assert data.x[data.silos["b"]].tolist() == [[5, 6]] and data.x[data.silos["c"]].tolist() == [[7, 8]]


def test_images_in_silos(tmp_path: Path) -> None:
    for name in ("a", "b", "Validation"):
        np.savez(tmp_path / f"{name}.npz", x=np.ones((2, 3, 3), np.uint8), y=[1, 2])
    data = load(str(tmp_path))
    assert data.x.dtype == np.uint8 and data.top == 255 and data.channel.tolist() == [0] * 9
    assert data.validation is not None and data.validation.tolist() == [4, 5]


def test_whole_numbers_are_one_class_however_written(tmp_path: Path) -> None:
    root = folder(tmp_path, a_csv="x,label\n1,2\n1,10\n", b_csv="x,label\n1,2.0\n", validation_csv="x,label\n1,10\n")
    assert load(str(root)).classes == ("2", "10")


def test_summary(tmp_path: Path) -> None:
    root = folder(tmp_path, test_csv=ROWS)
    assert check(str(root)) == (
        "hospitals: 6 samples, 2 features, 2 classes (ill, well), 2 test samples, 2 silos (a 2, b 2; validation 2)"
    )


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"validation_csv": ""}, ["hospitals", "validation.npz"]),
        ({"b_csv": ""}, ["1 client file", "at least 2"]),
        ({"c_xlsx": "x"}, ["c.xlsx", "not a silo"]),
        ({"README": "x"}, ["README", "not a silo"]),
        ({"b_npz": "x"}, ["b.csv", "b.npz", "both named b"]),
        ({"validation_npz": "x"}, ["validation.csv", "validation.npz", "both named"]),
        (
            {"b_csv": "age,size,label\n1,2,ill\n"},
            ["b.csv has 2", "a.csv has 2", "'size' is only in", "'dose' is"],
        ),
        ({"b_csv": "age,dose,x,label\n1,2,3,ill\n"}, ["b.csv has 3", "a.csv has 2", "'x' is only in"]),
        ({"b_csv": "age,label\n1,ill\n"}, ["b.csv has 1", "a.csv has 2", "'dose' is only in"]),
        ({"b_csv": "age,dose,label\n1,oops,ill\n"}, ["b.csv", "line 2", "'dose'", "'oops'"]),
        ({"test_csv": "age,dose,label\n1,2,ill\n1,2,new\n"}, ["test.csv", "row 1", "'new'", "any silo"]),
        ({"a_csv": ROWS.replace("label", "kind")}, ["a.csv", "no column 'label'"]),
    ],
)
def test_refusals_name_file_and_place(tmp_path: Path, files: dict[str, str], told: list[str]) -> None:
    root = folder(tmp_path, **files)
    with refused(root, *told):
        load(str(root))


def test_one_class_in_all(tmp_path: Path) -> None:
    rows = ROWS.replace("well", "ill")
    root = folder(tmp_path, a_csv=rows, b_csv=rows, validation_csv=rows)
    with refused(root, "every label is 'ill'"):
        load(str(root))


def test_folder_in_the_folder(tmp_path: Path) -> None:
    root = folder(tmp_path)
    (root / ".git").mkdir()
    load(str(root))
    (root / "old.csv").mkdir()
    with refused(root / "old.csv", "not a silo"):
        load(str(root))


@pytest.mark.parametrize(
    ("x", "told"),
    [
        (np.ones((2, 4)), ["b.npz has 4 features", "a.npz has 6"]),
        (np.ones((2, 6), np.uint8), ["b.npz has uint8", "a.npz has float64"]),
        (np.ones((2, 2, 3)), ["b.npz has 1 channel ", "a.npz has 6 channels"]),
    ],
)
def test_arrays_that_do_not_fit(tmp_path: Path, x: np.ndarray, told: list[str]) -> None:
    for name in ("a", "validation"):
        np.savez(tmp_path / f"{name}.npz", x=np.ones((2, 6)), y=[0, 1])
    np.savez(tmp_path / "b.npz", x=x, y=[0, 1])
    with refused(tmp_path, *told):
        load(str(tmp_path))


def test_test_part_inside_a_silo(tmp_path: Path) -> None:
    root = folder(tmp_path)
    np.savez(root / "c.npz", x=[[1.0, 2.0]], y=["ill"], x_test=[[1.0, 2.0]])
    with refused(root / "c.npz", "x_test", "test.npz"):
        load(str(root))
