import decimal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from fedsac.data.catalogue import load
from fedsac.data.files.reading import read_table
from fedsac.errors import FedsacError
from tests.data.made import refused, unhurried


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("parquet")


def written(folder: Path, columns: dict[str, Any]) -> Path:
    path = folder / "bank.parquet"
    parquet.write_table(pa.table(columns), path)
    return path


def test_table(tmp_path: Path) -> None:
    columns = {
        "whole": pa.array([1, 2], pa.uint8()),
        "label": ["b", "a"],
        "truth": [True, False],
        "money": [decimal.Decimal("1.25"), decimal.Decimal("2.50")],
        "half": pa.array(np.array([0.5, 2], np.float16)),
    }
    data = load(str(written(tmp_path, columns)))
    assert data.x.tolist() == [[1, 1, 1.25, 0.5], [2, 0, 2.5, 2]] and data.x.dtype == np.float64
    assert data.classes == ("a", "b") and data.y.tolist() == [1, 0] and data.channel.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (pa.array([10, 9]), ("9", "10")),
        (pa.array([10.0, 9.0]), ("9", "10")),
        (pa.array(["y", "x"]), ("x", "y")),
        (pa.array(["y", "x"], pa.large_string()), ("x", "y")),
        (pa.array(["y", "x"]).dictionary_encode(), ("x", "y")),
        (pa.array([10, 9]).dictionary_encode(), ("9", "10")),
        (pa.array([True, False]), ("False", "True")),
    ],
)
def test_labels(tmp_path: Path, labels: Any, classes: tuple[str, ...]) -> None:
    data = load(str(written(tmp_path, {"a": [1, 2], "label": labels})))
    assert data.classes == classes and data.y.tolist() == [1, 0]


def test_folders_above_the_file_are_no_columns(tmp_path: Path) -> None:
    (tmp_path / "year=2024").mkdir()
    path = written(tmp_path / "year=2024", {"a": [1, 2], "label": ["x", "y"]})
    assert read_table(path, "label", require_label=True).features == ("a",)


def test_reading_for_prediction_needs_no_labels(tmp_path: Path) -> None:
    table = read_table(written(tmp_path, {"a": [1.5]}), "label", require_label=False)
    assert table.labels is None and table.features == ("a",) and table.x.tolist() == [[1.5]]


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"a": [1, 2]}, ["schema", "no column 'label'", "'a'"]),
        ({"label": ["x", "y"]}, ["no column besides"]),
        ({"a": [1, 2], "__index_level_0__": [0, 1], "label": ["x", "y"]}, ["column 2 has no name"]),
        ({"a": pa.array([], pa.float64()), "label": pa.array([], pa.string())}, ["no row"]),
        ({"a": ["1", "two"], "label": ["x", "y"]}, ["column 'a'", "string, not numbers"]),
        ({"a": [1.0, None], "label": ["x", "y"]}, ["column 'a'", "row 1", "missing"]),
        ({"a": [1, None], "label": ["x", "y"]}, ["column 'a'", "row 1", "missing"]),
        ({"a": [1.0, float("nan")], "label": ["x", "y"]}, ["column 'a'", "row 1", "nan"]),
        ({"a": [1.0, float("-inf")], "label": ["x", "y"]}, ["column 'a'", "row 1", "-inf"]),
        ({"a": [1, 2], "label": ["x", None]}, ["column 'label'", "row 1", "missing"]),
        ({"a": [1, 2], "label": ["x", ""]}, ["column 'label'", "row 1", "empty"]),
        ({"a": [1, 2], "label": [0.5, 1.0]}, ["column 'label'", "row 0", "0.5"]),
        ({"a": [1, 2], "label": [[1], [2]]}, ["column 'label'", "object"]),
        ({"a": [1, 2], "label": ["x", "x"]}, ["every label is 'x'"]),
    ],
)
def test_refusals_name_file_and_place(tmp_path: Path, columns: dict[str, Any], told: list[str]) -> None:
    path = written(tmp_path, columns)
    with refused(path, *told):
        load(str(path))


def test_two_columns_of_one_name(tmp_path: Path) -> None:
    path = tmp_path / "bank.parquet"
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array(["x"])], names=["a", "a", "label"])
    parquet.write_table(table, path)
    with refused(path, "two columns", "'a'"):
        load(str(path))


@unhurried
@given(data=st.data())
def test_damage_is_refused_or_harmless(scratch: Path, data: st.DataObject) -> None:
    path = written(scratch, {"a": [1.0, 2.0], "label": ["x", "y"]})
    raw = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        del raw[data.draw(st.integers(0, len(raw) - 1)) :]
    else:
        raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(raw)
    try:
        assert load(str(path)).x.shape == (2, 1)
    except FedsacError as err:
        assert str(path) in str(err) and "\n" not in str(err)


def test_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, {"a": [1, 2], "label": ["x", "y"]})
    monkeypatch.setitem(sys.modules, "pyarrow", None)  # what Python itself does for a module that is barred
    with refused(path, "pip install 'fedsac[parquet]'"):
        load(str(path))
