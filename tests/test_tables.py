"""Tables as people have them, from the command to the page: warnings with evidence, raw rows in predict and in ONNX."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from torch import nn

import fedsac
from fedsac import Config
from fedsac.cli import main
from fedsac.data.catalogue import load
from fedsac.data.concerns import concerns_of
from fedsac.data.schema.raw import read_raw
from fedsac.models.files import ModelFile
from fedsac.models.table import Column, TableSchema
from tests.messy import silos

QUICK = ["--rounds", "2", "--hidden", "8", "--local-steps", "3", "--standalone-steps", "5", "--threads", "1"]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


WRONG = {
    "other words": (
        {"spelled": {"b": ("benign", "malignant")}},
        "b: labels 'benign', 'malignant' (60 of 60 rows) do not occur in validation, which has '0', '1'",
    ),
    "another case": (
        {"spelled": dict.fromkeys(("a", "c", "validation"), ("benign", "ill")) | {"b": ("Benign", "ill")}},
        "b: labels 'Benign' (",
    ),
    "other units": ({"factor": {"c": 1000.0}}, "c: column 'dose' is 1000 times what it is in validation (medians of"),
    "swapped labels": ({"flipped": ("a",)}, "a: a linear model of validation is right in "),
    "an identifier": (
        {"patient": lambda rows: range(500, 500 + rows)},
        "validation: column 'patient' has 60 different",
    ),
    "a constant": ({"ward": lambda rows: [3] * rows}, "validation: column 'ward' hardly varies ('ward' is 3 in 100%"),
    "a constant in one silo": (
        {"ward": lambda rows: [3] * rows if rows == 80 else [i % 4 for i in range(rows)]},
        "c: column 'ward' hardly varies",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_looks_wrong_is_said_with_silo_and_evidence(name, capsys):
    made, told = WRONG[name]
    folder = silos(Path("own"), **made)
    assert main(["data", "check", str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    warned = [line for line in lines if line.startswith("warning: ")]
    assert len(warned) == 1 and warned[0].startswith(f"warning: {told}"), warned


def test_everything_wrong_at_once_is_all_said():
    """No fault hides another."""
    patient = {"patient": lambda rows: range(rows)}
    silos(Path("own"), spelled={"b": ("benign", "malignant")}, factor={"c": 1000.0}, flipped=("a",), **patient)
    said = concerns_of(load("own"))
    assert [line.split(": ")[0] for line in said] == ["validation", "b", "c", "a"]


def test_the_run_says_it_before_training_and_the_page_has_it(capsys):
    folder = silos(Path("own"), factor={"c": 1000.0}, flipped=("a",))
    assert main(["run", "--data", str(folder), *QUICK, "--out", "run"]) == 0
    said = capsys.readouterr().err
    page = Path("run/report.html").read_text()
    for told in ("c: column &#x27;dose&#x27; is 1000 times", "a: a linear model of validation is right in"):
        assert f"Warning: {told}".replace("&#x27;", "'") in page.replace("&#x27;", "'").replace("&#39;", "'")
        assert f"warning: {told}".replace("&#x27;", "'") in " ".join(said.split())
    assert len(json.loads(Path("run/warnings.json").read_text())["warnings"]) == 2
    compare = ["compare", "--data", str(folder), *QUICK, "--methods", "fedsac,fedavg", "--seeds", "1", "--out", "both"]
    assert main(compare) == 0
    assert Path("both/report.html").read_text().count("Warning: c: column") == 1


def test_nothing_is_said_of_sound_data(capsys):
    assert concerns_of(load("digits")) == ()
    assert concerns_of(load(str(silos(Path("own"))))) == ()
    result = fedsac.run(Config(data="own", rounds=1, hidden=(4,), standalone_steps=2), "run")
    assert not Path("run/warnings.json").exists() and "Warning" not in fedsac.figures(result)
    # Silos that differ, as real ones do: other shares of the classes, other means.
    sizes = {"a": 30, "b": 200, "validation": 60}
    silos(Path("others"), sizes=sizes, factor={"a": 1.7, "b": 0.8})
    assert concerns_of(load("others")) == ()


def test_one_class_that_nearly_all_have_is_said_where_accuracy_is_the_score(capsys):
    """One ill in twenty: all rewards were alike, gamma had no value, and nothing said why."""
    folder = silos(Path("own"))
    for path in folder.iterdir():
        head, *rows = path.read_text().splitlines()
        ill = [row for row in rows if row.endswith(",1")]
        kept = [row for row in rows if row.endswith(",0")] + ill[:1]
        path.write_text("\n".join([head, *kept]) + "\n")
    told = "warning: validation: label '0' has 9"
    assert main(["data", "check", "own"]) == 0
    assert told in capsys.readouterr().out
    assert main(["run", "--data", "own", *QUICK, "--out", "run"]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert told in said and "--metric balanced-accuracy, macro-f1 or auc" in said
    assert main(["run", "--data", "own", *QUICK, "--metric", "macro-f1", "--out", "other"]) == 0
    assert told not in " ".join(capsys.readouterr().err.split())


def test_the_remedy_of_swapped_labels_works_as_it_is_written(capsys):
    silos(Path("own"), flipped=("a",))
    assert main(["schema", "propose", "own"]) == 0
    assert main(["data", "check", "own"]) == 0
    assert "under [silos.a.labels]" in capsys.readouterr().out
    with Path("own/schema.toml").open("a") as file:
        file.write('\n[silos.a.labels]\n0 = "1"\n1 = "0"\n')
    assert main(["data", "check", "own"]) == 0
    assert "warning" not in capsys.readouterr().out


def test_the_proposal_that_check_names_can_be_typed(capsys):
    made = {"outcome": ("ill", "well"), "ward": ("east", "east", "west", "west")}
    silos(Path("own"), **{name: lambda rows, of=of: of * (rows // len(of)) for name, of in made.items()})
    assert main(["data", "check", "own", "--label", "outcome"]) == 2
    remedy = capsys.readouterr().err.split("; fedsac ")[1].split(" says ")[0]
    assert remedy == "schema propose own --label outcome"
    assert main(remedy.split()) == 0
    # With a schema, another proposal would be refused, and is not advised.
    Path("own/a.csv").write_text(Path("own/a.csv").read_text().replace(",well,", ",unwell,"))
    assert main(["data", "check", "own"]) == 2
    assert "propose" not in capsys.readouterr().err


def test_rows_in_other_units_are_predicted_with_a_warning(capsys):
    """They were predicted without a word."""
    silos(Path("own"), factor={"c": 1000.0})
    assert main(["schema", "propose", "own"]) == 0
    assert main(["run", "--data", "own", *QUICK, "--out", "run"]) == 0
    for model, silo, warned in (("a", [], True), ("c", [], True), ("c", ["--silo", "c"], False)):
        capsys.readouterr()
        assert main(["predict", f"run/rewards/{model}.safetensors", "own/c.csv", *silo, "--out", "p.csv"]) == 0
        said = capsys.readouterr().err
        assert ("warning: own/c.csv: column 'dose': its median is" in said) == warned
        assert ("--silo corrects" in said) == (warned and model == "c")


def test_numbers_beyond_all_measure_are_looked_at_without_a_word_from_numpy():
    folder = silos(Path("own"), factor=dict.fromkeys("abc", 1e300) | {"validation": 1e307})
    assert all("dose" in line for line in concerns_of(load(str(folder))))


def test_a_schema_is_for_tables(capsys):
    assert main(["run", "--schema", "schema.toml", *QUICK]) == 2
    assert "'digits' is no file or folder of tables; leave --schema out" in capsys.readouterr().err


def test_rounds_in_which_nobodys_answer_counted_are_on_the_page():
    config = Config(data=str(silos(Path("own"))), rounds=3, hidden=(4,), standalone_steps=2, local_steps=1)
    fedsac.run_together([config], [Path("run")], absent=lambda round, name: round == 1)
    assert main(["report", "run"]) == 0
    assert "in 1 of 3 rounds nobody" in Path("run/report.html").read_text()


def gelu(shape, classes):
    return nn.Sequential(nn.Linear(shape[0], 16), nn.GELU(), nn.Linear(16, classes))


def messy(folder, rows, seed):
    """A table with everything that a schema is for."""
    folder.mkdir(exist_ok=True)
    for i, (name, n) in enumerate(rows.items()):
        draw = np.random.default_rng(seed + i)
        ill = draw.integers(0, 2, n)
        with (folder / f"{name}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["id", "große dose", "sex", "stage", "seen", "x", "label"])
            for k, y in enumerate(ill.tolist()):
                dose = "" if draw.random() < 0.1 else repr(1e5 + 3 * y + float(draw.normal()))
                sex = ["F", "M", "NA", ""][draw.choice(4, p=(0.45, 0.45, 0.05, 0.05))]
                stage = ["I", "II", "III", "?"][draw.choice(4, p=(0.3, 0.3, 0.3, 0.1))]
                seen = f"202{draw.integers(5)}-0{1 + draw.integers(9)}-1{draw.integers(9)}"
                writer.writerow([1000 + k, dose, sex, stage, seen, repr(float(draw.normal())), "sick" if y else "well"])
    return folder


def onnx_inputs(model: ModelFile, path: Path) -> dict[str, np.ndarray]:
    """Raw rows as the ONNX file takes them, by another way than fedsac's: numpy's dates, float() and the cells."""
    cells = read_raw(path, ["label"]).cells
    given = {}
    for column in model.table.columns:
        if column.type in ("category", "ordered"):
            given[column.name] = np.array(cells[column.name], dtype=object)[:, None]
        elif column.type == "date":
            given[column.name] = np.array(cells[column.name], dtype="datetime64[D]").astype(np.float64)[:, None]
        else:
            given[column.name] = np.array([float(c) if c else np.nan for c in cells[column.name]])[:, None]
    return given


@pytest.mark.parametrize("network", ["mlp", "tests.test_tables:gelu"])
def test_predict_and_onnx_agree_on_raw_rows(network, capsys):
    folder = messy(Path("own"), {"a": 60, "b": 90, "validation": 80, "test": 200}, 0)
    assert main(["schema", "propose", str(folder)]) == 0
    schema = (folder / "schema.toml").read_text()
    ordered = schema.replace('[columns.stage]\ntype = "category"', '[columns.stage]\ntype = "ordered"')
    assert ordered != schema
    (folder / "schema.toml").write_text(ordered)
    trained = ["--rounds", "10", "--hidden", "16", "--threads", "1", "--network", network]
    assert main(["run", "--data", str(folder), *trained, "--out", "run"]) == 0
    model = Path("run/rewards/b.safetensors")
    trusted = ["--network", network] if ":" in network else []
    capsys.readouterr()
    assert main(["predict", str(model), str(folder / "test.csv"), *trusted]) == 0
    out, err = capsys.readouterr()
    rows = list(csv.DictReader(io.StringIO(out)))
    assert len(rows) == 200 and "accuracy 0." in err
    predicted = np.array([[float(row["probability of sick"]), float(row["probability of well"])] for row in rows])
    assert predicted.std(0).min() > 0.1 and predicted.sum(1) == pytest.approx(1, abs=2e-6)
    assert main(["export", str(model), "--out", "b.onnx", *trusted]) == 0
    session = onnxruntime.InferenceSession("b.onnx")
    assert [i.name for i in session.get_inputs()] == ["große dose", "sex", "stage", "seen", "x"]
    loaded = ModelFile.load(model, trusted[1] if trusted else None)
    (found,) = session.run(None, onnx_inputs(loaded, folder / "test.csv"))
    assert np.abs(found - predicted).max() <= 1.5e-6  # predict prints six digits
    from fedsac.data.schema.fitting import fit

    table, _ = fit(read_raw(folder / "test.csv", ["label"]), loaded.table, new_rows=True)
    assert np.abs(found - loaded.probabilities(table.x)).max() <= 1e-6


def test_rows_without_labels_and_with_other_columns(capsys):
    folder = messy(Path("own"), {"a": 60, "b": 60, "validation": 60}, 0)
    assert main(["schema", "propose", str(folder)]) == 0
    assert main(["run", "--data", str(folder), *QUICK, "--out", "run"]) == 0
    lines = (folder / "a.csv").read_text().splitlines()
    Path("new.csv").write_text("\n".join("note;" + line.rsplit(",", 1)[0].replace(",", ";") for line in lines))
    capsys.readouterr()
    model = "run/rewards/a.safetensors"
    assert main(["predict", model, str(folder / "a.csv")]) == 0
    labelled = capsys.readouterr().out
    assert main(["predict", model, "new.csv"]) == 0
    assert capsys.readouterr().out == labelled
    Path("new.csv").write_text(lines[0] + "\n1,much,F,I,2020-01-01,0.5,well\n")
    assert main(["predict", model, "new.csv"]) == 2
    assert "line 2, column 'große dose': 'much' is not a number" in capsys.readouterr().err


def test_a_reward_corrects_its_own_silo_and_nobody_elses(capsys):
    folder = silos(Path("own"), spelled={"b": ("x", "y")}, factor={"c": 1000.0})
    assert main(["schema", "propose", str(folder)]) == 0
    assert main(["run", "--data", str(folder), *QUICK, "--rounds", "10", "--out", "run"]) == 0
    tables = {name: ModelFile.load(Path(f"run/rewards/{name}.safetensors")).table for name in "abc"}
    assert [list(table.silos) for table in tables.values()] == [[], ["b"], ["c"]]
    assert ModelFile.load(Path("run/global.safetensors")).table.silos == {}
    capsys.readouterr()
    assert main(["predict", "run/rewards/b.safetensors", str(folder / "b.csv")]) == 2
    err = capsys.readouterr().err
    assert ("label 'x'" in err or "label 'y'" in err) and "none of the model's classes, '0', '1'" in err
    assert main(["predict", "run/rewards/b.safetensors", str(folder / "b.csv"), "--silo", "b"]) == 0
    assert float(capsys.readouterr().err.split()[1].strip(",")) > 0.9
    assert main(["predict", "run/rewards/b.safetensors", str(folder / "b.csv"), "--silo", "c"]) == 2


def test_foreign_labels_are_no_accuracy_of_zero(capsys):
    """Of a model without a schema, too."""
    folder = silos(Path("own"))
    assert main(["run", "--data", str(folder), *QUICK, "--out", "run"]) == 0
    silos(Path("foreign"), spelled={"a": ("benign", "malignant")})
    capsys.readouterr()
    assert main(["predict", "run/rewards/a.safetensors", "foreign/a.csv"]) == 2
    out, err = capsys.readouterr()
    assert "40 of 40 such" in err and "none of the model's classes, '0', '1'" in err and "accuracy" not in err
    assert out.startswith("row,class,probability,")  # what was asked for is there
    assert main(["predict", "run/rewards/a.safetensors", "own/a.csv"]) == 0
    assert capsys.readouterr().out.startswith("row,class,probability,probability of 0,probability of 1\n")


def test_onnx_of_plain_numbers_names_its_features():
    folder = silos(Path("own"))
    assert main(["run", "--data", str(folder), *QUICK, "--out", "run"]) == 0
    assert main(["export", "run/rewards/a.safetensors", "--out", "a.onnx"]) == 0
    props = {prop.key: prop.value for prop in onnx.load("a.onnx").metadata_props}
    takes = "x [n, 2] float32: rows of features as they stand in the data; the file normalises them itself"
    assert props == {"classes": "0\n1", "features": "dose\nweight", "takes": takes}


def test_a_column_named_like_the_output_is_refused():
    from fedsac.models.onnx_table import front

    table = TableSchema("y", ("a", "b"), (Column("probabilities", "number"),))
    with pytest.raises(fedsac.FedsacError, match="rename the column"):
        front(table, np.zeros(1), np.ones(1), "x")


def test_a_run_with_a_schema_goes_on_and_a_changed_schema_is_other_data():
    folder = messy(Path("own"), {"a": 60, "b": 60, "validation": 60}, 0)
    assert main(["schema", "propose", str(folder)]) == 0
    assert main(["run", "--data", str(folder), *QUICK, "--out", "run"]) == 0
    before = Path("run/rewards/a.safetensors").read_bytes()
    assert main(["run", "--resume", "run", "--rounds", "3"]) == 0
    assert Path("run/rewards/a.safetensors").read_bytes() != before
    text = (folder / "schema.toml").read_text()
    (folder / "schema.toml").write_text(text.replace('fill = "F"', 'fill = "M"').replace("fill = 1000", "fill = 900"))
    assert (folder / "schema.toml").read_text() != text
    assert main(["run", "--resume", "run", "--rounds", "4"]) == 2


def test_classes_that_differ_in_case_or_spaces_alone_are_said(capsys):
    rows = [f"{i % 7},{i * 3 % 11},{('ill', 'well', 'ILL', 'very  well')[i % 4]}" for i in range(80)]
    Path("own.csv").write_text("\n".join(["a,b,outcome", *rows]) + "\n")
    assert main(["data", "check", "own.csv", "--label", "outcome"]) == 0
    said = capsys.readouterr().out
    assert "labels 'ILL', 'ill' differ in case or spaces alone: one class?" in said and "well' differ" not in said
