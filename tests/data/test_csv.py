import csv
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedsac.data.catalogue import load
from fedsac.data.files.csvfile import CHUNK_ROWS
from fedsac.data.files.reading import read_table
from tests.data.made import refused, unhurried


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("csv")


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "hospital.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_table(tmp_path: Path) -> None:
    data = load(str(written(tmp_path, "age,label,dose\n1,ill,2.5\n3,well,-4e1\n")))
    assert data.x.tolist() == [[1.0, 2.5], [3.0, -40.0]] and data.x.dtype == np.float64
    assert data.classes == ("ill", "well") and data.y.tolist() == [0, 1]
    assert data.channel.tolist() == [0, 1] and data.top == 1.0 and data.name == "hospital"
    assert data.features == ("age", "dose")


@pytest.mark.parametrize(
    "text",
    [
        b"\xef\xbb\xbfa,label\n1,x\n2,y\n",
        b'"a","label"\n"1","x"\n"2","y"\n',
        b"a,label\r\n1,x\r\n2,y\r\n",
        b"a,label\n1,x\n2,y\n\n\n",
        b"a,label\n\n1,x\n\n2,y",
        b" a , label\n 1 , x \n 2,y\n",
    ],
)
def test_ways_to_write_the_same(tmp_path: Path, text: bytes) -> None:
    table = read_table(written(tmp_path, text), "label", require_label=True)
    assert table.features == ("a",) and table.labels == ["x", "y"] and table.x.tolist() == [[1.0], [2.0]]


def test_labels_that_are_numbers_are_sorted_as_numbers(tmp_path: Path) -> None:
    data = load(str(written(tmp_path, "a,label\n1,10\n1,9\n1,-1\n1,9.0\n")))
    assert data.classes == ("-1", "9", "10") and data.y.tolist() == [2, 1, 0, 1]
    assert load(str(written(tmp_path, "a,label\n1,10\n1,9\n1,x\n"))).classes == ("10", "9", "x")


def test_label_column_by_another_name(tmp_path: Path) -> None:
    path = written(tmp_path, "label,kind\n1,x\n2,y\n")
    assert load(str(path), label="kind").x.tolist() == [[1.0], [2.0]]


def test_reading_for_prediction_needs_no_labels(tmp_path: Path) -> None:
    table = read_table(written(tmp_path, "a,b\n1,2\n"), "label", require_label=False)
    assert table.labels is None and table.features == ("a", "b") and table.x.tolist() == [[1.0, 2.0]]


def test_label_with_a_line_break_in_quotes(tmp_path: Path) -> None:
    path = written(tmp_path, 'a,label\n1,"x\ny"\n2,z\n')
    assert load(str(path)).classes == ("x\ny", "z")
    with refused(path, "line 4", "'a'", "'q'"):
        load(str(written(tmp_path, 'a,label\n1,"x\ny"\nq,z\n')))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", ["line 1", "empty"]),
        ("\n\n", ["line 1", "empty"]),
        ("a,label\n", ["no row"]),
        ("a,b\n1,2\n", ["line 1", "no column 'label'", "'a', 'b'", "--label"]),
        ("a;label\n1;2\n", ["'a;label'", "separate columns by commas"]),
        ("a,a,label\n1,2,x\n", ["line 1", "two columns", "'a'"]),
        (",a,label\n0,1,x\n", ["line 1", "column 1 has no name", "index=False"]),
        ("label\nx\ny\n", ["line 1", "no column besides"]),
        ("a,label\n1,x\n,y\n", ["line 3", "column 'a'", "missing"]),
        ("a,label\n1,x\n\n \t,y\n", ["line 4", "column 'a'", "missing"]),
        ("a,label\n1,x\n2,\n", ["line 3", "column 'label'", "missing"]),
        ("a,label\n1,x\ntwo,y\n", ["line 3", "column 'a'", "'two'", "not a number"]),
        ("a,label\n1,x\n1_000,y\n", ["line 3", "column 'a'", "'1_000'", "underscore"]),
        ("a,label\n1,x\nnan,y\n", ["line 3", "column 'a'", "'nan'", "finite"]),
        ("a,label\n1,x\n1e999,y\n", ["line 3", "column 'a'", "'1e999'", "finite"]),
        ("a,label\n1,x\n" + "z" * 500 + ",y\n", ["line 3", "'a'", "z...'"]),
        ("a,label\n1,x\n2\n", ["line 3 has 1 field", "header has 2"]),
        ("a,label\n1,x\n2,y,3\n", ["line 3 has 3 fields", "header has 2"]),
        ("a,label\n1,x\n2,x\n", ["every label is 'x'", "2 classes"]),
        ('a,label\n1,x\n2,"y\n3,z\n', ["line 3", "quotes"]),
        (b"a,label\n1,x\n2,\xff\n", ["line 3", "UTF-8"]),
        ("a,label\n1,x\n2,y\n".encode("utf-16"), ["line 1", "UTF-8"]),
    ],
)
def test_refusals_name_file_and_place(tmp_path: Path, text: str | bytes, told: list[str]) -> None:
    path = written(tmp_path, text)
    with refused(path, *told):
        load(str(path))


def test_many_columns_are_not_all_listed(tmp_path: Path) -> None:
    header = ",".join(f"c{i}" for i in range(50))
    with refused("'c0'", "'c7', ... (50 in all)"):
        load(str(written(tmp_path, header + "\n")))


def test_fault_far_down_the_file(tmp_path: Path) -> None:
    rows = ["1,2,x"] * (2 * CHUNK_ROWS + 100)
    rows[2 * CHUNK_ROWS + 50] = "1,oops,x"
    with refused(f"line {2 * CHUNK_ROWS + 52}", "column 'b'", "'oops'"):
        load(str(written(tmp_path, "a,b,label\n" + "\n".join(rows))))


def test_no_permission_or_a_folder(tmp_path: Path) -> None:
    with refused(tmp_path, "is no kind of data file"):
        read_table(tmp_path, "label", require_label=True)
    (tmp_path / "a.csv").mkdir()
    with refused(tmp_path / "a.csv", "cannot be read"):
        read_table(tmp_path / "a.csv", "label", require_label=True)


def test_a_large_file_takes_seconds(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(20_000, 50)).round(6)
    lines = [",".join(map(repr, row)) + f",{i % 3}" for i, row in enumerate(x.tolist())]
    path = written(tmp_path, ",".join(f"c{i}" for i in range(50)) + ",label\n" + "\n".join(lines))
    start = time.perf_counter()
    assert np.array_equal(load(str(path)).x, x)
    assert time.perf_counter() - start < 10  # about half a second on an idle core


labels = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=8)


@unhurried
@given(
    x=hnp.arrays(
        np.float64,
        st.tuples(st.integers(2, 6), st.integers(1, 4)),
        elements=st.floats(allow_nan=False, allow_infinity=False),
    ),
    data=st.data(),
)
def test_round_trip(scratch: Path, x: np.ndarray, data: st.DataObject) -> None:
    n, d = x.shape
    names = data.draw(st.lists(labels.map(str.strip).filter(bool), min_size=d, max_size=d, unique=True))
    names = [f"{name}'" for name in names]  # none of them is "label"
    y = data.draw(st.lists(st.sampled_from(["ill", "a,b", 'a "b"', "10", "9"]), min_size=n, max_size=n))
    path = scratch / "round.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([[*names, "label"], *([*row, y[i]] for i, row in enumerate(x.tolist()))])
    table = read_table(path, "label", require_label=True)
    assert np.array_equal(table.x, x) and table.labels == y and table.features == tuple(names)
