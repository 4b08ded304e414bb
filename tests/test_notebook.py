"""What a notebook needs: results that show themselves, frames, figures, data in memory, progress."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch
from sklearn.datasets import load_digits

import fedsac
from fedsac import Config, FedsacError
from fedsac.runs.notebook import Bars, in_notebook
from tests.test_store import contents

ROOT = Path(__file__).resolve().parents[1]
SMALL = Config(rounds=4, clients=4, hidden=(16,), local_steps=4, standalone_steps=12, eval_every=2)
X, Y = load_digits(return_X_y=True)
X, Y = X[:600], Y[:600]


@pytest.fixture(scope="module")
def result():
    return fedsac.run(SMALL)


def test_a_result_in_one_line(result):
    assert repr(result) == (
        f"<Result: fedsac on digits, pow: 4 clients, round 4, seed 0; gamma {result.last['gamma']:.2f}, in BCF "
        f"{result.last['bcf']:.0%}, best reward {max(result.rewards):.4f} (accuracy)>"
    )


def test_a_result_as_a_table(result):
    page = result._repr_html_()
    assert page.count("<tr>") == 1 + 4
    for client, reward in zip(result.clients, result.rewards, strict=True):
        assert f"<td>{client}</td>" in page
        assert f"<td>{reward:.4f}</td>" in page


def test_names_of_clients_are_no_markup():
    silos = {"<b>": (X[:200], Y[:200]), "two": (X[200:400], Y[200:400]), "validation": (X[400:], Y[400:])}
    page = fedsac.run(SMALL.replace(clients=None), data=silos)._repr_html_()
    assert "&lt;b&gt;" in page and "<b>" not in page


def test_a_frame_of_rounds_and_clients(result):
    frame = result.to_frame()
    assert len(frame) == 4 * 4
    for (round_, client), rows in frame.groupby(["round", "client"]):
        (row,) = rows.to_dict("records")
        record, i = result.records[round_ - 1], result.clients.index(client)
        assert row["neurons"] == record["neurons"][i]
        assert row["contribution"] == result.contributions.validation[i]
        assert row["loss"] == record["losses"][i]
        assert (row["method"], row["seed"], row["metric"]) == ("fedsac", 0, "accuracy")
        if record["rewards"] is None:
            assert np.isnan(row["reward"])
        else:
            assert row["reward"] == record["rewards"][i]
    rounds = result.to_frame(per="round")
    assert rounds["round"].tolist() == [1, 2, 3, 4]
    assert rounds["gamma"].dropna().tolist() == [r["gamma"] for r in result.records if r["gamma"] is not None]
    assert rounds["bytes_down"].tolist() == [r["bytes"]["down"] for r in result.records]


def test_a_frame_where_somebody_stayed_away():
    gone = fedsac.run_together([SMALL], absent=lambda round, name: round == 1 and name == "client-02")[0]
    frame = gone.to_frame().set_index(["round", "client"])
    away = frame[~frame["answered"]]
    assert len(away) == 1 and np.isnan(away["loss"].iloc[0])
    assert away.index[0][1] == "client-02"


def test_a_frame_needs_pandas(result, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(FedsacError, match="pip install pandas"):
        result.to_frame()


def test_a_frame_of_something_else(result):
    with pytest.raises(FedsacError, match="per must be client or round"):
        result.to_frame(per="month")


def test_figures_of_a_result_are_those_of_its_page(tmp_path):
    made = fedsac.run(SMALL, tmp_path / "run")
    shown, read = fedsac.figures(made), fedsac.figures(tmp_path / "run")
    assert set(shown) <= set(read) and {"contribution-reward", "accuracy-rounds"} <= set(shown)
    for name, picture in shown.items():
        assert picture._repr_svg_() == read[name]._repr_svg_()
    shown["bytes"].save(tmp_path / "bytes.svg")
    assert (tmp_path / "bytes.svg").read_text() == shown["bytes"]._repr_svg_()
    shown["bytes"].save(tmp_path / "bytes.pdf")
    assert (tmp_path / "bytes.pdf").read_bytes().startswith(b"%PDF")
    with pytest.raises(FedsacError, match=r"as \.svg or \.pdf"):
        shown["bytes"].save(tmp_path / "bytes.png")
    with pytest.raises(FedsacError, match="not of dict"):
        fedsac.figures({})


def test_figures_of_several_results():
    results = fedsac.run_together([SMALL.replace(beta=b, seed=s) for b in (1.0, 5.0) for s in (0, 1)])
    assert {"gamma-by-beta", "max-by-beta", "fairness-accuracy"} <= set(fedsac.figures(results))


def same(one, other):
    assert one.contributions == other.contributions
    assert one.records == other.records


def test_arrays_are_data_like_a_file_with_them(tmp_path):
    np.savez(tmp_path / "own.npz", x=X, y=Y)
    of_file = fedsac.run(SMALL.replace(data=str(tmp_path / "own.npz")))
    for x, y in ((X, Y), (X.tolist(), Y.tolist()), (torch.tensor(X), torch.tensor(Y))):
        same(fedsac.run(SMALL, data=(x, y)), of_file)
    np.savez(tmp_path / "tested.npz", x=X[:500], y=Y[:500], x_test=X[500:], y_test=Y[500:])
    tested = fedsac.run(SMALL.replace(data=str(tmp_path / "tested.npz")))
    same(fedsac.run(SMALL, data=(X[:500], Y[:500], X[500:], Y[500:])), tested)


def frame_of(rows):
    frame = pandas.DataFrame(X[rows], columns=[f"f{i}" for i in range(X.shape[1])])
    frame.insert(3, "digit", [f"class {y}" for y in Y[rows]])
    return frame


def test_frames_are_data_like_files_with_them(tmp_path):
    config = SMALL.replace(label="digit")
    frame_of(slice(None)).to_csv(tmp_path / "own.csv", index=False)
    of_file = fedsac.run(config.replace(data=str(tmp_path / "own.csv")))
    same(fedsac.run(config, data=frame_of(slice(None))), of_file)
    same(fedsac.run(config, data=[frame_of(slice(None))]), of_file)


def test_silos_in_memory_are_those_in_a_folder(tmp_path):
    parts = {"north": slice(0, 150), "south": slice(150, 400), "validation": slice(400, 500), "test": slice(500, 600)}
    silos = {name: frame_of(rows) for name, rows in parts.items()}
    (tmp_path / "silos").mkdir()
    for name, frame in silos.items():
        frame.to_csv(tmp_path / "silos" / f"{name}.csv", index=False)
    config = SMALL.replace(label="digit", clients=None)
    same(fedsac.run(config, data=silos), fedsac.run(config.replace(data=str(tmp_path / "silos"))))


def test_a_run_on_arrays_is_resumed_with_them(tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    fedsac.run(SMALL, whole, data=(X, Y))
    fedsac.run(SMALL.replace(rounds=2), cut, data=(X, Y))
    with pytest.raises(FedsacError, match=r"given in memory; go on with fedsac.resume\(FOLDER, data=...\)"):
        fedsac.resume(cut)
    with pytest.raises(FedsacError, match="the data or the settings are not what this run began with"):
        fedsac.resume(cut, data=(X[::-1], Y[::-1]))
    fedsac.resume(cut, rounds=4, data=(X, Y))
    assert contents(cut) == contents(whole)
    fedsac.run(SMALL, tmp_path / "digits")
    with pytest.raises(FedsacError, match="began with the data digits; leave data out"):
        fedsac.resume(tmp_path / "digits", data=(X, Y))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (X, "data in memory is x, y"),
        ((X,), "data in memory is x, y"),
        ("digits", "data in memory is x, y"),
        ((X, Y[:-1]), "one label for each of 600 samples"),
        ((X, Y.reshape(-1, 1)), "one label for each"),
        ((np.where(X > 15, np.nan, X), Y), "is nan; fill it in"),
        ((X, np.zeros(600)), "every label is"),
        ((X, Y + 0.5), "not a whole number"),
        ((X, Y, X[:10], Y[:10] + 100), "does not occur"),
        (({"a": 1}, Y), "numbers"),
        (frame_of(slice(0, 50)), "no column 'label'"),
        (frame_of(slice(0, 50)).rename(columns={"digit": "label"}).assign(town="x"), "column 'town' is .* not numbers"),
        (frame_of(slice(0, 50)).rename(columns={"digit": "label"}).assign(f0=np.nan), "column 'f0', row 0 .* missing"),
        ({"one": (X, Y), "validation": (X, Y)}, "two clients at least"),
        ({"one": (X, Y), "two": (X, Y)}, "and 'validation'"),
        ({"one": (X, Y), "two": X, "validation": (X, Y)}, "silo two: give x, y"),
        ({"one": (X, Y), "two": (X[:, :3], Y), "validation": (X, Y)}, "features"),
    ],
)
def test_data_that_is_none(data, says):
    with pytest.raises(FedsacError, match=says):
        fedsac.run(SMALL.replace(clients=None), data=data)


def test_bars_count_the_rounds_of_all_runs(capsys):
    bars = Bars()
    fedsac.run_together([SMALL, SMALL.replace(rounds=6, seed=1)], watcher=bars)
    shown = capsys.readouterr().err
    assert "standing alone: 100%" in shown and "12/12" in shown
    assert "rounds: 100%" in shown and "10/10" in shown


def test_nothing_is_shown_outside_of_notebooks(capfd):
    assert not in_notebook()
    fedsac.run(SMALL.replace(rounds=1))
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_the_example_notebook_runs_and_shows_what_it_has():
    """In a real kernel, where progress is shown without being asked for."""
    notebook = ROOT / "examples" / "notebook.ipynb"
    command = [sys.executable, str(ROOT / "scripts" / "run_notebook.py"), "--check", str(notebook)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_example_notebook_is_executed():
    cells = json.loads((ROOT / "examples" / "notebook.ipynb").read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert len(code) > 5 and all(cell["outputs"] for cell in code)
    assert not any(out["output_type"] == "error" for cell in code for out in cell["outputs"])
