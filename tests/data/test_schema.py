"""Schemas of tables: proposed, read, written, applied; held to scikit-learn, plain reading and numbers by hand."""

import json
import subprocess
import sys
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

import fedsac
from fedsac import Config
from fedsac.cli import main
from fedsac.data.catalogue import load
from fedsac.data.evidence import decades_off, is_identifier
from fedsac.data.schema.cells import values_of
from fedsac.data.schema.files import as_toml, read_schema
from fedsac.data.schema.fitting import fit
from fedsac.data.schema.guessing import guessed
from fedsac.data.schema.proposing import propose
from fedsac.data.schema.raw import RawTable, read_raw
from fedsac.data.tabular import load_memory
from fedsac.errors import FedsacError
from fedsac.models.table import OTHER, Column, Corrections, TableSchema
from tests.data.made import refused, unhurried
from tests.messy import silos, table, write

SEX = Column("sex", "category", fill="F", categories=("F", "M"))
STAGE = Column("stage", "ordered", fill="II", categories=("I", "II", "III"))
SEEN = Column("seen", "date", fill="2024-01-02", format="%d.%m.%Y")
AGE = Column("age", "number", fill=50.0, range=(20.0, 80.0), unit="years")
SCHEMA = TableSchema("ill", ("no", "yes"), (AGE, SEX, STAGE, SEEN), missing=("NA",), drop=("id",), aliases={"Y": "yes"})


def raw(text: str, folder: Path, schema: TableSchema = SCHEMA) -> RawTable:
    path = folder / "own.csv"
    path.write_text(text, encoding="utf-8")
    return read_raw(path, {schema.label, *(column.name for column in schema.columns)})


def test_by_hand(tmp_path: Path) -> None:
    text = "id,age,sex,stage,seen,ill\n1,30,M,III,03.01.1970,yes\n2,,NA,I,,Y\n"
    fitted, problems = fit(raw(text, tmp_path), SCHEMA)
    assert not problems and fitted is not None
    assert fitted.features == ("age", "sex=F", "sex=M", "stage", "seen")
    filled = (datetime(2024, 1, 2) - datetime(1970, 1, 1)).days
    assert fitted.x.tolist() == [[30, 0, 1, 2, 2], [50, 1, 0, 0, filled]]
    assert fitted.labels == ["yes", "yes"]


def test_the_same_as_a_pipeline_of_scikit_learn(tmp_path: Path) -> None:
    """The other route: its imputers and encoders, fitted with the schema's own values."""
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

    draw = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": draw.normal(50, 9, 80).round(2),
            "sex": draw.choice(["F", "M", None], 80),
            "stage": draw.choice(["I", "II", "III", None], 80),
        }
    )
    frame.loc[::7, "age"] = np.nan
    schema = replace(SCHEMA, columns=(AGE, SEX, STAGE))
    frame.assign(ill="yes").to_csv(tmp_path / "own.csv", index=False)
    ours, _ = fit(read_raw(tmp_path / "own.csv", ["ill"]), schema)

    def filled(value: object, encoder: object) -> object:
        return make_pipeline(SimpleImputer(strategy="constant", fill_value=value, missing_values=None), encoder)

    theirs = ColumnTransformer(
        [
            ("age", SimpleImputer(strategy="constant", fill_value=50.0), ["age"]),
            ("sex", filled("F", OneHotEncoder(categories=[["F", "M"]], sparse_output=False)), ["sex"]),
            ("stage", filled("II", OrdinalEncoder(categories=[["I", "II", "III"]])), ["stage"]),
        ]
    ).fit_transform(frame.astype({"sex": object, "stage": object}).where(frame.notna(), None).astype({"age": float}))
    assert ours is not None and np.array_equal(ours.x, theirs.astype(np.float64))


def test_medians_are_scikit_learns() -> None:
    from sklearn.impute import SimpleImputer

    values = np.random.default_rng(1).normal(100, 20, 501)
    column = guessed("dose", [f"{v:.9g}" for v in values], comma=False).column
    median = SimpleImputer(strategy="median").fit(values[:, None]).statistics_[0]
    assert column is not None and column.fill == pytest.approx(median, abs=1)  # rounded to a hundredth of the range
    assert column.range is not None
    low, high = np.quantile(values, (0.01, 0.99))
    assert column.range == pytest.approx((low, high), abs=1)


def test_plain_numbers_are_the_same_to_the_bit(tmp_path: Path) -> None:
    """With a schema that says nothing else than that columns are numbers, a run is the same run."""
    folder = silos(tmp_path / "plain")
    plain = load(str(folder))
    columns = tuple(Column(name, "number") for name in plain.features)
    schema = TableSchema("label", plain.classes, columns)
    (tmp_path / "schema.toml").write_text(as_toml(schema, "nothing", {}))
    told = load(str(folder), schema=str(tmp_path / "schema.toml"))
    assert told.x.tobytes() == plain.x.tobytes() and told.y.tobytes() == plain.y.tobytes()
    config = Config(data=str(folder), rounds=2, hidden=(8,))
    one, two = fedsac.run(config), fedsac.run(config.replace(schema=str(tmp_path / "schema.toml")))
    assert one.records == two.records


@pytest.mark.parametrize(
    ("cell", "comma", "value"),
    [("1,5", True, 1.5), ("-,5", True, -0.5), ("1e2", False, 100.0), (" 7", False, 7.0), ("1,5e1", True, 15.0)],
)
def test_numbers(cell: str, comma: bool, value: float) -> None:
    values, faults = values_of(Column("a", "number"), [cell.strip()], (), comma)
    assert not faults and values.tolist() == [value]


@pytest.mark.parametrize(
    ("cells", "comma"), [(["1,5"], False), (["1.5", "2,5"], True), (["1_0"], False), (["inf"], False)]
)
def test_what_may_be_no_number_is_none(cells: list[str], comma: bool) -> None:
    """A comma beside points may separate thousands."""
    _, faults = values_of(Column("a", "number"), cells, (), comma)
    assert [fault.row for fault in faults] == [len(cells) - 1]


def test_categories() -> None:
    column = replace(SEX, others=True)
    values, faults = values_of(column, ["M", "X", "", "F"], (), False)
    assert not faults and values[[0, 1, 3]].tolist() == [1, OTHER, 0] and np.isnan(values[2])
    assert column.inputs(values).tolist() == [[0, 1], [0, 0], [1, 0], [1, 0]]
    numbered = Column("grade", "category", categories=("1", "2"))
    assert values_of(numbered, ["2.0"], (), False)[0].tolist() == [1]
    assert "'X' is none of 'F', 'M'" in values_of(SEX, ["X"], (), False)[1][0].what


PROBLEMS = """id;age;sex;stage;seen;more;ill
1;30;M;III;03.01.1970;a;yes
2;old;X;IV;1970-01-03;a;perhaps
3;1;M
4;31;F;I;03.01.1970;a;
"""


def test_all_problems_are_listed_by_line_and_column(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own.csv").write_text(PROBLEMS)
    (tmp_path / "schema.toml").write_text(as_toml(SCHEMA, "nothing", {}))
    for command in (
        ["schema", "check", "schema.toml", "own.csv"],
        ["data", "check", "own.csv", "--schema", "schema.toml"],
    ):
        paths = [str(tmp_path / part) if part.endswith((".toml", ".csv")) else part for part in command]
        assert main(paths) == 2
        out, err = capsys.readouterr()
        lines = out.splitlines()
        assert all(line.startswith(f"{tmp_path / 'own.csv'}: ") for line in lines)
        for place in (
            "line 3, column 'age': 'old'",
            "line 3, column 'sex': 'X'",
            "line 3, column 'stage': 'IV'",
            "line 3, column 'seen': '1970-01-03'",
            "line 3, column 'ill': label 'perhaps'",
            "line 4: it has 3 fields",
            "line 5, column 'ill': the label is missing",
            "column 'more': the schema does not know it",
        ):
            assert sum(place in line for line in lines) == 1, place
        assert len(lines) == 8 and "8 problems" in err and err.count("\n") == 1


def test_data_check_lists_all_problems_without_a_schema(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = silos(tmp_path / "own")
    (folder / "a.csv").write_text("dose,weight,more,label\n1,,x,0\n2,NA,x,1\n")
    (folder / "b.csv").write_text("dose;weight;label\n1,5;2;0\n")
    (folder / "c.csv").write_text("dose,label\n1,\n2,1\n")
    assert main(["data", "check", str(folder)]) == 2
    out, err = capsys.readouterr()
    for place in (
        "a.csv: line 2, column 'weight': the value is missing",
        "a.csv: line 3, column 'weight': 'NA' is not a number",
        "a.csv: line 2, column 'more': 'x'",
        "a.csv: column 'more': the others do not have it",
        "b.csv: line 1: columns are not separated by commas",
        "c.csv: column 'weight': it is missing",
        "c.csv: line 2, column 'label': the label is missing",
    ):
        assert place in out, place
    assert "fedsac schema propose" in err


def test_a_column_that_is_wholly_wrong_is_one_line(tmp_path: Path) -> None:
    lines = [f"{i},F,I,0{i}.01.1970,yes" for i in range(1, 9)]
    text = "age,sex,stage,seen,ill\n" + "\n".join(line.replace("I,", "first,") for line in lines)
    _, problems = fit(raw(text, tmp_path), SCHEMA)
    (problem,) = problems
    assert problem.place == "column 'stage'" and problem.what.startswith(
        "8 of 8 values do not fit, the first in line 2"
    )


def test_other_units_are_refused_or_corrected(tmp_path: Path) -> None:
    """Ages in months: the median of 12 x 40 lies beyond 20 to 80, widened by 60 on both sides."""
    text = "age,sex,stage,seen,ill\n" + "\n".join(f"{12 * (35 + i)},F,I,03.01.1970,yes" for i in range(11))
    _, problems = fit(raw(text, tmp_path), SCHEMA, "north")
    assert "its median is 480" in str(problems[0]) and "from 20 to 80 years" in str(problems[0])
    assert "[silos.north]" in str(problems[0]) and len(problems) == 1
    corrected = replace(SCHEMA, silos={"north": Corrections(factors={"age": 1 / 12})})
    fitted, problems = fit(raw(text, tmp_path), corrected, "north")
    assert not problems and fitted is not None and fitted.x[:, 0] == pytest.approx(np.arange(35, 46))


def test_missing_values_are_refused_where_nothing_fills_them(tmp_path: Path) -> None:
    schema = replace(SCHEMA, columns=(replace(AGE, fill=None),))
    _, problems = fit(raw("age,ill\n,yes\n30,no\n", tmp_path, schema), schema)
    assert str(problems[0]).endswith("the value is missing; fill it in, or give the column a fill in the schema")


NAME = st.text(st.characters(codec="utf-8", exclude_characters="="), min_size=1, max_size=8)
TEXTS = st.lists(NAME, min_size=2, max_size=4, unique=True)


@st.composite
def schemas(draw: st.DrawFn) -> TableSchema:
    label, *names = draw(st.lists(NAME, min_size=3, max_size=5, unique=True))
    classes = draw(TEXTS)
    columns = []
    for name in names:
        number = Column(name, "number", draw(st.none() | st.floats(-1e9, 1e9)), (-1.5, draw(st.floats(0, 1e9))))
        categories = tuple(draw(TEXTS))
        category = Column(name, "category", categories[0], categories=categories, others=draw(st.booleans()))
        columns.append(draw(st.sampled_from([number, category, Column(name, "date", format=draw(NAME))])))
    own = Corrections({draw(NAME): names[0]}, {names[0]: draw(st.floats(0.001, 1e6))}, {draw(NAME): classes[0]})
    return TableSchema(
        label, tuple(classes), tuple(columns), tuple(draw(TEXTS)), (), {draw(NAME): classes[1]}, {"s": own}
    )


@unhurried
@given(schema=schemas())
def test_written_and_read_again(schema: TableSchema, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("schema")
    (folder / "schema.toml").write_text(as_toml(schema, "rows", {schema.columns[0].name: "a remark"}), encoding="utf-8")
    (folder / "schema.json").write_text(json.dumps(schema.as_dict()), encoding="utf-8")
    assert read_schema(folder / "schema.toml") == schema == read_schema(folder / "schema.json")
    assert read_schema(folder / "schema.toml").sha256 == schema.without_silos().sha256


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"label": 3}, "label must be text"),
        ({"classes": ["a"]}, "two classes at least"),
        ({"columns": {}}, "a schema has columns"),
        ({"columns": {"a": {"type": "text"}}}, "type 'text' is none"),
        ({"columns": {"a": {"type": "number", "fill": "x"}}}, "fill 'x' is no number"),
        ({"columns": {"a": {"type": "category"}}}, "has categories"),
        ({"columns": {"a": {"type": "number", "range": [2, 1]}}}, "from low to high"),
        ({"columns": {"a": {"type": "number", "colour": 1}}}, "no 'colour'"),
        ({"columns": {"a": {"type": "date"}}}, "a date has a format"),
        (
            {"columns": {"a=b": {"type": "number"}, "a": {"type": "category", "categories": ["b"]}}},
            "inputs of one name",
        ),
        ({"format_version": 2}, "version 2"),
        ({"more": 1}, "no 'more'"),
        ({"aliases": {"x": "z"}}, "'z' is none of the classes"),
        ({"silos": {"n": {"factors": {"a": 0}}}}, "would leave nothing"),
        ({"silos": {"n": {"factors": {"q": 2}}}}, "no column of the schema"),
    ],
)
def test_what_is_no_schema_is_refused(tmp_path: Path, change: dict[str, object], told: str) -> None:
    sound = {"label": "y", "classes": ["a", "b"], "columns": {"a": {"type": "number"}}}
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(sound))
    read_schema(path)
    path.write_text(json.dumps(sound | change))
    with refused(path, told):
        read_schema(path)


def test_proposed_columns() -> None:
    draw = np.random.default_rng(0)
    days = [date(2024, 1, 1 + i % 28) for i in range(60)]
    cells = {
        "patient": [str(i) for i in draw.permutation(1000)[:60]],
        "id": [str(100 + i) for i in range(60)],
        "dose": [f"{v:.3f}" for v in draw.normal(5, 1, 60)],
        "count": [str(v) for v in draw.integers(0, 9, 60)],
        "sex": ["F"] * 30 + ["M"] * 28 + ["D"] * 2,
        "seen": [day.strftime("%d.%m.%Y") for day in days],
        "either": [day.strftime("%d/%m/%Y") for day in [date(2024, 1, 1 + i % 12) for i in range(60)]],
        "note": [f"note {i}" for i in range(60)],
        "same": ["7"] * 60,
        "nearly": [f"{v:.2f}" for v in draw.normal(size=57)] + ["unknown", "unknown", "ask"],
        "label": ["well", "ill"] * 30,
    }
    made = propose({"validation": RawTable("v.csv", cells, [""] * 60)}, "validation", "label")
    types = {column.name: column.type for column in made.schema.columns}
    assert types == {
        **{"patient": "number", "dose": "number", "count": "number", "sex": "category"},
        **{"seen": "date", "either": "date", "nearly": "number"},
    }
    assert made.schema.drop == ("id", "note", "same") and made.schema.classes == ("ill", "well")
    sex = next(column for column in made.schema.columns if column.name == "sex")
    assert sex.categories == ("F", "M") and sex.others and sex.fill == "F"
    assert {"unknown", "ask"} <= set(made.schema.missing)
    assert any("'either'" in line and "%d/%m/%Y or %m/%d/%Y" in line for line in made.remarks)


def test_a_schema_holds_nothing_that_few_rows_decide() -> None:
    """Nobody's extreme value, and no category of fewer than five rows: it goes to every site."""
    values = np.random.default_rng(3).normal(size=80)
    values[0], values[1] = 1234.5678, -999.125
    cells = [f"{v:.6f}" for v in values]
    column = guessed("dose", cells, comma=False).column
    assert column is not None and column.range is not None
    beyond = (values < column.range[0]).sum(), (values > column.range[1]).sum()
    assert min(beyond) >= 4  # five, but for rounding
    assert guessed("sex", ["F"] * 40 + ["M"] * 36 + ["intersex"] * 4, comma=False).column.categories == ("F", "M")


def test_a_column_of_nearly_nothing_but_zeros_has_no_range() -> None:
    """Else a silo with many other values would be refused for its units."""
    column = guessed("count", ["0"] * 57 + ["4"] * 3, comma=False).column
    assert column is not None and column.range is None and column.fill == 0.0
    assert TableSchema.of_dict(TableSchema("y", ("a", "b"), (column,)).as_dict()).columns == (column,)


def test_proposed_for_silos(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Labels in other letters, or in others altogether; another unit; another name for a column."""
    spelled = {
        "validation": ("benign", "malignant"),
        "a": ("Benign", "M"),
        "b": ("1", "2"),
        "c": ("benign", "malignant"),
    }
    folder = silos(tmp_path / "own", spelled=spelled, factor={"c": 0.001})
    clean = load(str(silos(tmp_path / "clean")))
    text = (folder / "b.csv").read_text()
    (folder / "b.csv").write_text(text.replace("dose,weight", "Dose,WEIGHT_,extra".replace(",extra", ""), 1))
    assert main(["schema", "propose", str(folder)]) == 0
    said = capsys.readouterr().out
    schema = read_schema(folder / "schema.toml")
    assert schema.aliases == {"Benign": "benign", "M": "malignant"}
    assert schema.silos["b"].labels == {"1": "benign", "2": "malignant"}
    assert schema.silos["b"].columns == {"Dose": "dose", "WEIGHT_": "weight"}
    assert schema.silos["c"].factors == {"dose": 1000.0}
    for line in (
        "a: label 'M' is read as 'malignant'",
        "b: labels are read '1' as 'benign'",
        "c: column 'dose' is 0.001",
    ):
        assert line in said
    data = load(str(folder))
    assert data.classes == ("benign", "malignant") and np.array_equal(data.y, clean.y)
    assert data.x == pytest.approx(clean.x, rel=1e-12)
    assert main(["schema", "propose", str(folder)]) == 2 and "--overwrite" in capsys.readouterr().err


def test_labels_that_nothing_explains_are_left_to_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = silos(tmp_path / "own", spelled={"b": ("x", "y")})
    x, _ = table(60, 1)
    write(folder / "b.csv", x, [("x", "y")[i % 2] for i in range(60)])  # has nothing to do with the doses
    assert main(["schema", "propose", str(folder)]) == 0
    assert "nothing tells what they mean: write them under [silos.b.labels]" in capsys.readouterr().out
    with refused("b.csv", "line 2, column 'label'", "label 'x' (30 times) is none of '0', '1'"):
        load(str(folder))


def test_a_table_in_memory_and_in_parquet(tmp_path: Path) -> None:
    seen = [datetime(1970, 1, 3), None, datetime(1970, 1, 4, 12)]
    columns = {"age": [30.0, None, 31.5], "sex": ["M", "F", None], "seen": seen, "ill": ["yes", "no", "yes"]}
    schema = replace(SCHEMA, columns=(AGE, SEX, Column("seen", "date", fill="1970-01-01", format="%Y-%m-%d")))
    half = replace(schema, columns=(*schema.columns[:2], replace(schema.columns[2], format="%Y-%m-%dT%H:%M:%S")))
    with refused("'1970-01-04T12:00:00' is no date"):
        load_memory(pd.DataFrame(columns), "label", schema)
    columns["seen"] = [datetime(1970, 1, 3, 6), None, datetime(1970, 1, 4, 12)]
    expected = [[30, 0, 1, 2.25], [50, 1, 0, 0], [31.5, 1, 0, 3.5]]
    assert load_memory(pd.DataFrame(columns), "label", half).x.tolist() == expected
    parquet.write_table(pa.table(columns), tmp_path / "own.parquet")
    (tmp_path / "schema.toml").write_text(as_toml(half, "nothing", {}))
    assert load(str(tmp_path / "own.parquet"), schema=str(tmp_path / "schema.toml")).x.tolist() == expected
    with refused("a schema is for DataFrames"):
        load_memory((np.zeros((4, 4)), np.array(["yes", "no"] * 2)), "label", half)


def test_silos_in_memory_are_corrected_by_their_names() -> None:
    frames = {name: pd.DataFrame({"age": [30.0, 40.0], "ill": ["no", "yes"]}) for name in ("a", "b", "validation")}
    frames["b"] = pd.DataFrame({"AGE": [360.0, 480.0], "ill": ["1", "2"]})
    own = Corrections({"AGE": "age"}, {"age": 1 / 12}, {"1": "no", "2": "yes"})
    schema = replace(SCHEMA, classes=("yes", "no"), columns=(AGE,), silos={"b": own})
    data = load_memory(frames, "label", schema)
    assert data.silos is not None and data.x[data.silos["b"]] == pytest.approx(np.array([[30.0], [40.0]]))
    assert data.classes == ("yes", "no") and data.y.tolist() == [1, 0] * 3  # in the order of the schema


def test_reading_by_a_schema_needs_no_scikit_learn(tmp_path: Path) -> None:
    """A machine that only trains has none."""
    folder = silos(tmp_path / "own")
    assert main(["schema", "propose", str(folder)]) == 0
    program = (
        f"import sys; from fedsac.data.catalogue import load; load({str(folder)!r}); print('sklearn' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_what_a_schema_is_not_for(tmp_path: Path) -> None:
    (tmp_path / "schema.toml").write_text(as_toml(SCHEMA, "nothing", {}))
    np.savez(tmp_path / "own.npz", x=np.zeros((4, 2)), y=[0, 1, 0, 1])
    with refused("own.npz", "whose columns have names"):
        load(str(tmp_path / "own.npz"), schema=str(tmp_path / "schema.toml"))
    with pytest.raises(FedsacError, match="leave --schema out"):
        load("digits:own", schema=str(tmp_path / "schema.toml"))


@pytest.mark.parametrize(("factor", "decades"), [(1000, 3), (0.01, -2), (10, 1), (1, None), (3, None)])
def test_units(factor: float, decades: int | None) -> None:
    draw = np.random.default_rng(0)
    assert decades_off(factor * draw.normal(20, 4, 40), draw.normal(20, 4, 60)) == decades
    assert decades_off(factor * draw.normal(0, 4, 40), draw.normal(0, 4, 60)) == decades


def test_identifiers() -> None:
    draw = np.random.default_rng(0)
    assert is_identifier("row", draw.permutation(50).astype(float))
    assert is_identifier("Patient ID", draw.choice(10**6, 50, replace=False).astype(float))
    assert not is_identifier("platelets", draw.choice(10**6, 50, replace=False).astype(float))
    assert not is_identifier("count", draw.integers(0, 40, 50).astype(float))
