"""docs/healthcare.md, carried out: its commands, what they print, and the numbers it shows."""

import json
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from benchmarks.healthcare import TOLERATED, measured, table
from examples.healthcare import SIZES, write
from fedsac.cli import main
from fedsac.data.schema.fitting import fit
from fedsac.data.schema.raw import read_raw
from fedsac.federation.folder import Federation
from fedsac.federation.verifying import verify
from fedsac.models.files import ModelFile
from tests.flower_grid import coordinate
from tests.test_tables import onnx_inputs

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE = (DOCS / "healthcare.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^    ((?:fedsac|python|cp) .*)$", PAGE, flags=re.MULTILINE)
REFUSED = ("fedsac data check hospitals --label diagnosis",)


@pytest.fixture(scope="module")
def carried_out(tmp_path_factory):
    """The folder after all commands up to the federation, and what each printed."""
    import contextlib
    import io
    import os

    before, folder, printed = Path.cwd(), tmp_path_factory.mktemp("healthcare"), {}
    os.chdir(folder)
    try:
        for command in COMMANDS:
            if command.startswith("fedsac schema check consortium"):
                break
            out = io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
                carry_out(command)
            printed[command] = out.getvalue()
        yield folder, printed
    finally:
        os.chdir(before)


def carry_out(command):
    program, *arguments = shlex.split(command)
    if program == "python":
        assert arguments == ["examples/healthcare.py", "hospitals"]
        write(Path("hospitals"), seed=0)
    elif program == "cp":
        for file in arguments[:-1]:
            shutil.copy(file, arguments[-1])
    else:
        assert main(arguments) == (2 if command in REFUSED else 0), command


def test_the_mess_is_as_the_page_has_it(carried_out):
    _, printed = carried_out
    refused = printed[REFUSED[0]].splitlines()
    assert sum("column 'device'" in line for line in refused) == 6
    assert any("west.csv: line 1: columns are not separated by commas" in line for line in refused)
    assert len(refused) > 500 and refused[-1].startswith("fedsac: hospitals: ")


def test_what_the_proposal_says_and_writes(carried_out):
    folder, printed = carried_out
    said = printed["fedsac schema propose hospitals --label diagnosis"].splitlines()
    shown = [line for line in PAGE.splitlines() if line.startswith("look: ")]
    assert len(shown) == 5 and set(shown) <= set(said)
    assert sum(line.startswith("look: south: ") for line in said) == 4 and len(said) == len(shown) + 5
    schema = (folder / "hospitals" / "schema.toml").read_text()
    for line in re.findall(r"^```toml\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)[0].splitlines():
        assert line.split("  #")[0].strip() in schema, line
    assert main(["schema", "check", "hospitals/schema.toml", "hospitals"]) == 0


def test_nothing_is_warned_of_once_the_schema_is_there(carried_out, capsys):
    assert main(["data", "check", "hospitals"]) == 0
    assert "warning" not in capsys.readouterr().out
    assert not Path("run/warnings.json").exists()


def test_the_run_and_its_predictions(carried_out):
    folder, printed = carried_out
    summary = json.loads((folder / "run" / "summary.json").read_text())
    assert summary["metric"] == "auc" and min(summary["rewards"]) > 0.97
    accuracy = re.search(
        r"accuracy (\d\.\d+), log-loss \d\.\d+ on 40", printed[next(c for c in COMMANDS if "--silo west" in c)]
    )
    assert accuracy is not None and float(accuracy[1]) > 0.9
    assert len((folder / "classes.csv").read_text().splitlines()) == 150


def test_predict_and_the_onnx_file_agree_on_raw_rows(carried_out):
    folder, _ = carried_out
    model = ModelFile.load(folder / "run" / "rewards" / "west.safetensors")
    raw = read_raw(folder / "hospitals" / "test.csv", ["diagnosis"])
    missing = {name: ["" if cell in ("NA", "?") else cell for cell in cells] for name, cells in raw.cells.items()}
    session = onnxruntime.InferenceSession(folder / "west.onnx")
    assert [i.name for i in session.get_inputs()] == [column.name for column in model.table.columns]
    cleaned = folder / "cleaned.csv"
    lines = [",".join(missing), *(",".join(cells) for cells in zip(*missing.values(), strict=True))]
    cleaned.write_text("\n".join(lines) + "\n")
    (found,) = session.run(None, onnx_inputs(model, cleaned))
    rows, _ = fit(raw, model.table, new_rows=True)
    expected = model.probabilities(rows.x)
    assert np.abs(found - expected).max() <= 1e-6 and expected.std(0).min() > 0.3


def test_receipts(carried_out):
    """The federation, with the schema that the coordinator proposed from its own table alone."""
    folder, _ = carried_out
    place = folder / "consortium"
    text = (
        (place / "federation.toml")
        .read_text()
        .replace('test = ""', 'test = "test.csv"')
        .replace("rounds = 20", "rounds = 3")
    )
    (place / "federation.toml").write_text(text.replace("hidden = [200, 200]", 'hidden = [8]\nmetric = "auc"'))
    own = {
        "south": (
            "[silos.south.factors]",
            *(f'"{k} {n}" = 0.001' for k in ("mean", "worst") for n in ("radius", "perimeter")),
        ),
        "east": ("[silos.east.labels]", 'M = "malignant"', 'B = "benign"'),
        "west": ("[silos.west.labels]", '1 = "malignant"', '0 = "benign"'),
    }
    for name in SIZES:
        shutil.copy(folder / "hospitals" / f"{name}.csv", place / name / "data.csv")
        schema = (place / "schema.toml").read_text() + "\n".join(("", *own.get(name, ()), ""))
        (place / name / "schema.toml").write_text(schema)
    toml = place / "west" / "site.toml"
    assert "`least_samples = 40`" in PAGE
    toml.write_text(re.sub("least_samples = 50", "least_samples = 40", toml.read_text()))
    (check,) = [command for command in COMMANDS if command.startswith("fedsac schema check consortium")]
    carry_out(check)
    coordinate(place)
    assert verify(Federation.load(place))
    for name, size in SIZES.items():
        receipt = json.loads((place / name / "receipt.json").read_text())
        assert receipt["body"]["samples"] == size and receipt["body"]["metric"] == "auc"
        assert (place / name / "reward.safetensors").exists()


def test_the_pages_numbers_are_those_of_the_ten_seeds():
    found = json.loads((DOCS / "results" / "healthcare.json").read_text())
    assert found.pop("seeds") == list(range(10)) and found.pop("hospitals") == list(SIZES)
    assert list(found) == ["fedsac", "fedsac-plus", "fedavg"]
    for line in table(found).splitlines()[2:]:
        cells = line.split(" | ")
        assert " | ".join(cells[:-2]) + " |" in PAGE and cells[-2:] == ["yes", "4 of 4 |"]


@pytest.mark.slow
def test_nobody_is_worse_off_than_alone():
    """The promise, measured again: FedSAC as the paper has it, ten draws of all patients."""
    found = measured(["fedsac"], range(10), rounds=50, hidden=(64, 32), eval_every=50, threads=1)["fedsac"]
    gains = np.mean(found["reward"], 0) - np.mean(found["alone"], 0)
    assert gains.shape == (4,) and gains.min() >= -TOLERATED and (gains > 0).sum() >= 3
