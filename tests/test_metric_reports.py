"""Reports name the metric they were made with, and the numbers they show are that metric's: recomputed here from the
saved models, the test file and scikit-learn."""

import contextlib
import csv
import io
import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics

import fedsac
from fedsac import Config, FedsacError
from fedsac.cli import main
from fedsac.core.fairness import cgs, mcg
from fedsac.models.files import ModelFile
from fedsac.report.page import build
from fedsac.report.reading import read_run
from fedsac.report.shapes import Text
from fedsac.runs.labels import chosen, judged_again
from tests.test_report import Page

CLIENTS = ("even", "few", "healthy")
QUICK = ["--rounds", "3", "--hidden", "12,8", "--local-steps", "10", "--standalone-steps", "120", "--dtype", "float64"]
NAMES = {"accuracy": "accuracy", "macro-f1": "macro-F1", "auc": "AUC"}
ANSI = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def patients(rng, well: int, ill: int) -> tuple[np.ndarray, list[str]]:
    """Two values a patient, higher where one is ill: at best, five of six are told apart by a line."""
    x = np.concatenate([rng.normal(0, 1, (well, 2)), rng.normal(1.4, 1, (ill, 2))])
    return x, ["well"] * well + ["ill"] * ill


def write_table(path: Path, x: np.ndarray, labels: list[str]) -> None:
    rows = [f"{a!r},{b!r},{label}" for (a, b), label in zip(x.tolist(), labels, strict=True)]
    path.write_text("\n".join(["pulse,fever,label", *rows]) + "\n")


def scores(metric: str, labels: list[str], probabilities: np.ndarray, classes: tuple[str, ...]) -> float:
    """The metric's score by scikit-learn."""
    if metric == "auc":
        return float(sklearn_metrics.roc_auc_score([label == classes[1] for label in labels], probabilities[:, 1]))
    predicted = [classes[k] for k in probabilities.argmax(1)]
    if metric == "macro-f1":
        return float(sklearn_metrics.f1_score(labels, predicted, average="macro", zero_division=0))
    return float(sklearn_metrics.accuracy_score(labels, predicted))


@dataclass(frozen=True)
class Made:
    """The silos, and for each metric a run on them with what it printed; the test set to recompute scores on."""

    silos: Path
    folders: dict[str, Path]
    printed: dict[str, str]
    x: np.ndarray
    labels: list[str]

    def rewards(self, metric: str, folder: Path) -> list[float]:
        """The score of each client's saved reward model, by the other route."""
        models = [ModelFile.load(folder / "rewards" / f"{name}.safetensors") for name in CLIENTS]
        return [scores(metric, self.labels, model.probabilities(self.x), model.classes) for model in models]


def summary_of(folder: Path) -> dict:
    return json.loads((folder / "summary.json").read_text())


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Made:
    """One of ten patients is ill. `healthy` knows no ill ones and `even` as many as well ones: who always says well is
    right nine times of ten, and has found nobody."""
    folder, rng = tmp_path_factory.mktemp("metrics"), np.random.default_rng(5)
    silos = folder / "silos"
    silos.mkdir()
    sizes = {"even": (120, 120), "few": (8, 8), "healthy": (300, 0), "validation": (270, 30), "test": (540, 60)}
    tables = {name: patients(rng, *size) for name, size in sizes.items()}
    for name, table in tables.items():
        write_table(silos / f"{name}.csv", *table)
    folders, printed = {}, {}
    for metric in NAMES:
        folders[metric] = folder / metric
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("COLUMNS", "80")
            printed[metric] = run_printed(
                ["run", "--data", str(silos), "--metric", metric, *QUICK, "--out", str(folders[metric])]
            )
    return Made(silos, folders, printed, *tables["test"])


def run_printed(arguments: list[str]) -> str:
    """What a command prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(arguments) == 0
    return ANSI.sub("", out.getvalue())


def cells(printed: str, first: str) -> list[str]:
    """The cells of a terminal table's row that begins with this one."""
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in printed.splitlines() if "│" in line]
    return next(row for row in rows if row[0] == first)


def heads(printed: str, first: str) -> list[str]:
    rows = [[cell.strip() for cell in line.strip("┃").split("┃")] for line in printed.splitlines() if "┃" in line]
    return next(row for row in rows if row[0] == first)


def unwrapped(printed: str) -> str:
    return " ".join(printed.split())


@pytest.mark.parametrize("metric", NAMES)
def test_the_terminals_tables_name_the_metric_and_have_its_numbers(made, metric):
    printed, name = made.printed[metric], NAMES[metric]
    assert f"round 3, seed 0, scored by {name} " in unwrapped(printed)
    assert f"alone: {name} of the model a client trains alone" in unwrapped(printed)
    assert f"the reward, the test {name} of the model the client was paid" in unwrapped(printed)
    assert ("accuracy" in printed) == (metric == "accuracy")
    paid = made.rewards(metric, made.folders[metric])
    place = heads(printed, "client").index("reward")
    for client, reward in zip(CLIENTS, paid, strict=True):
        assert cells(printed, client)[place] == f"{reward:.3f}"
    gains = np.array(paid) - summary_of(made.folders[metric])["contributions_test"]
    last = dict(zip(heads(printed, "")[1:], cells(printed, "last")[1:], strict=True))
    assert last["best"] == f"{max(paid):.3f}"
    assert last["MCG"] == f"{gains.mean():+.3f}" and last["CGS"] == f"{gains.std():.3f}"


def test_the_tables_fit_eighty_columns(made):
    for printed in made.printed.values():
        tables = [line for line in printed.splitlines() if line and line[0] in "┏┃┡│└"]
        assert tables and max(map(len, tables)) <= 80
        assert "…" not in printed


def before_settings(page: str) -> str:
    """The page less its last section, which lists the metrics there are."""
    page, settings = page.split("<h2>Settings</h2>")
    assert settings
    return page.lower()


def signed(value: float) -> str:
    """With its sign, unless it rounds to zero."""
    return f"{value:+.1f}" if f"{abs(value):.1f}" != "0.0" else "0.0"


@pytest.mark.parametrize("metric", NAMES)
def test_the_page_names_the_metric_and_has_its_numbers(made, metric):
    name, folder = NAMES[metric], made.folders[metric]
    text, drawn = build([folder])
    page = Page(text)
    words = "".join(page.text)
    assert f"scored by {name}" in words and f"alone: {name} of the model" in words
    assert f"reward: {name} of the model the client is paid" in words
    assert ("accuracy" in before_settings(text)) == (metric == "accuracy")
    paid, alone = made.rewards(metric, folder), summary_of(folder)["contributions_test"]
    rows, top = {row[0]: row for row in page.rows if row}, next(row for row in page.rows if row[0] == "client")
    for client, reward, c in zip(CLIENTS, paid, alone, strict=True):
        shown = dict(zip(top, rows[client], strict=True))
        assert shown["reward %"] == f"{100 * reward:.1f}" and shown["gain"] == signed(100 * (reward - c))
    gains = 100 * (np.array(paid) - alone)
    assert rows["last"][7] == f"{100 * max(paid):.1f}"
    assert rows["last"][-3:-1] == [signed(gains.mean()), f"{gains.std():.1f}"]
    assert f"{signed(gains.mean())}points of test {name}; CGS {gains.std():.1f}" in words  # the headline
    assert f"{100 * max(paid):.1f} %test {name}; best contribution {100 * max(alone):.1f} %" in words
    assert rows["metric"][1] == metric  # among the settings
    axes = {figure.name: [s.text for s in figure.drawing.shapes if isinstance(s, Text)] for figure in drawn}
    assert f"test {name} (%)" in axes["accuracy-rounds"]
    assert f"contribution c (test {name}, %)" in axes["contribution-reward"]
    assert f"reward (test {name}, %)" in axes["contribution-reward"]


def test_log_losses_are_scikit_learns_in_every_report(made):
    folder = made.folders["auc"]
    models = [ModelFile.load(folder / "rewards" / f"{name}.safetensors") for name in CLIENTS]
    expected = [sklearn_metrics.log_loss(made.labels, m.probabilities(made.x), labels=m.classes) for m in models]
    summary, log = summary_of(folder), (folder / "rounds.jsonl").read_text().splitlines()
    assert summary["log_losses"] == pytest.approx(expected, abs=1e-9)
    assert json.loads(log[-1])["log_losses"] == summary["log_losses"]
    assert summary["results"]["last"]["log_loss"] == pytest.approx(np.mean(expected), abs=1e-9)
    common = ModelFile.load(folder / "global.safetensors")
    own = sklearn_metrics.log_loss(made.labels, common.probabilities(made.x), labels=common.classes)
    assert json.loads(log[-1])["global_log_loss"] == pytest.approx(own, abs=1e-9)
    page = Page(build([folder])[0])
    rows, top = {row[0]: row for row in page.rows if row}, next(row for row in page.rows if row[0] == "client")
    place = top.index("log-loss")
    assert [rows[name][place] for name in CLIENTS] == [f"{value:.3f}" for value in expected]


def test_confusion_tables_are_scikit_learns_on_the_page_and_in_the_folder(made):
    folder = made.folders["macro-f1"]
    written, page = json.loads((folder / "confusion.json").read_text()), Page(build([folder])[0])
    assert written["classes"] == ["ill", "well"] and written["reported_on"] == "test"
    at = [k for k, row in enumerate(page.rows) if row == ["", "ill", "well", "recall %"]]
    assert len(at) == len(CLIENTS)
    for name, k in zip(CLIENTS, at, strict=True):
        model = ModelFile.load(folder / "rewards" / f"{name}.safetensors")
        predicted = [model.classes[j] for j in model.probabilities(made.x).argmax(1)]
        expected = sklearn_metrics.confusion_matrix(made.labels, predicted, labels=["ill", "well"])
        assert written["clients"][name] == expected.tolist()
        for row, counts, true in zip(page.rows[k + 1 : k + 3], expected, ("ill", "well"), strict=True):
            taken = zip(counts, ("ill", "well"), strict=True)
            shown = [str(n) if n or name_taken == true else "·" for n, name_taken in taken]
            recall = 100 * counts[("ill", "well").index(true)] / counts.sum()
            assert row == [true, *shown, f"{recall:.1f}"]


def test_who_contributes_most_is_the_metrics_to_say(made):
    """Alone, `healthy` always says well: right in 540 of 600 cases; F1 is 2 * 540 / (540 + 600) and 0."""
    found = {metric: summary_of(folder) for metric, folder in made.folders.items()}
    healthy = CLIENTS.index("healthy")
    assert found["accuracy"]["contributions_test"][healthy] == 0.9
    assert found["macro-f1"]["contributions_test"][healthy] == pytest.approx(540 / 1140)
    for metric, best in (("accuracy", "healthy"), ("macro-f1", "even"), ("auc", "even")):
        c, summary = found[metric]["contributions"], found[metric]
        assert CLIENTS[int(np.argmax(c))] == best
        # Reputation, and with it the submodel, follows the metric's order; the best contributor holds everything.
        assert list(np.argsort(summary["reputations"])) == list(np.argsort(c))
        assert CLIENTS[int(np.argmax(summary["neurons"]))] == best and max(summary["neurons"]) == 20


def compared(made: Made, folder: Path, metric: str, methods: str) -> str:
    arguments = ["--data", str(made.silos), "--metric", metric, *QUICK, "--methods", methods, "--seeds", "1"]
    return run_printed(["compare", *arguments, "--out", str(folder)])


@pytest.mark.parametrize("metric", ["macro-f1", "auc"])
def test_a_comparison_names_the_metric_and_has_its_numbers(made, tmp_path, metric):
    name, out = NAMES[metric], tmp_path / "both"
    printed = compared(made, out, metric, "fedsac,fedavg")
    assert f"last round, scored by {name}: mean" in printed
    assert "accuracy" not in printed.replace("fairness-accuracy.svg", "")
    whole = json.loads((out / "results.json").read_text())
    assert whole["metric"] == metric
    with (out / "results.csv").open() as file:
        assert {line["metric"] for line in csv.DictReader(file)} == {metric}
    text, drawn = build([out])
    assert "accuracy" not in text.lower() and f"scored by {name}" in text
    picture = (out / "fairness-accuracy.svg").read_text()
    assert f"fairness against {name} (last)" in picture and "accuracy" not in picture
    axes = [s.text for figure in drawn for s in figure.drawing.shapes if isinstance(s, Text)]
    assert f"best reward, {name} (%)" in axes and f"test {name} (%)" in axes
    page = Page(text)
    top = next(row for row in page.rows if row[0] == "method")
    for method in ("fedsac", "fedavg"):
        paid = made.rewards(metric, out / f"{method}-seed0")
        gains = np.array(paid) - summary_of(out / f"{method}-seed0")["contributions_test"]
        row = next(r for r in whole["rows"] if (r["method"], r["label"]) == (method, "last"))
        assert [row[key][0] for key in ("max", "mean", "min", "gain", "gain_spread")] == pytest.approx(
            [max(paid), np.mean(paid), min(paid), gains.mean(), gains.std()], abs=1e-12
        )
        shown = dict(zip(top, next(r for r in page.rows if r[0] == method), strict=True))
        assert shown["best %"] == f"{100 * max(paid):.2f}"
        assert [shown["MCG"], shown["CGS"]] == [f"{100 * gains.mean():.1f}", f"{100 * gains.std():.1f}"]
        assert [cells(printed, method)[heads(printed, "method").index(key)] for key in ("best", "MCG", "CGS")] == [
            f"{value:.4f}" for value in (max(paid), gains.mean(), gains.std())
        ]


def test_a_narrow_terminal_gets_whole_numbers_of_fewer_columns(made, tmp_path, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes it for a terminal
    monkeypatch.setenv("COLUMNS", "80")
    printed = compared(made, tmp_path / "both", "macro-f1", "fedsac,fedsac-no-aggregation")
    table = [line for line in printed.splitlines() if line and line[0] in "┏┃┡│└"]
    assert max(map(len, table)) <= 80 and "…" not in printed
    assert heads(printed, "method")[:2] == ["method", "gamma"] and heads(printed, "method")[-2:] == ["MCG", "CGS"]
    assert "results.csv has the deviations and all columns" in unwrapped(printed)


def test_runs_of_two_metrics_are_not_put_on_one_page(made, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folders = [str(made.folders[metric]) for metric in ("accuracy", "macro-f1")]
    assert main(["report", *folders]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and not Path("report.html").exists()
    assert "accuracy is scored by accuracy and macro-f1 by macro-F1, which cannot be compared" in err
    with pytest.raises(FedsacError, match="make a page of the runs of each metric"):
        build([made.folders["auc"], made.folders["auc"], made.folders["accuracy"]])
    build([made.folders["auc"], made.folders["auc"]])


def test_a_metric_of_ones_own_is_named_as_it_was_given(made, tmp_path, monkeypatch):
    (tmp_path / "wardmetrics.py").write_text("def ill_found(labels, p):\n    return p[labels == 0, 0].mean()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    config = Config(data=str(made.silos), metric="wardmetrics:ill_found", rounds=1, hidden=(4,), standalone_steps=2)
    fedsac.run(config, tmp_path / "run")
    assert "are scored by wardmetrics:ill_found." in (tmp_path / "run" / "README.md").read_text()
    page = build([tmp_path / "run"])[0]
    assert "test wardmetrics:ill_found (%)" in page and "accuracy" not in before_settings(page)


def strip(folder: Path) -> None:
    """Take out of a finished run what earlier versions did not write."""
    config = (folder / "config.toml").read_text().splitlines()
    assert 'metric = "accuracy"' in config
    (folder / "config.toml").write_text("\n".join(line for line in config if not line.startswith("metric")) + "\n")
    summary = summary_of(folder)
    del summary["metric"]
    for numbers in summary["results"].values():
        del numbers["mcg"], numbers["cgs"]
    (folder / "summary.json").write_text(json.dumps(summary))
    records = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    for record in records:
        del record["mcg"], record["cgs"]
    (folder / "rounds.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))


def test_a_folder_of_before_has_the_same_page(made, tmp_path):
    """Nothing was known of metrics, MCG and CGS: accuracy is meant, and the others follow from the rest."""
    whole, old = (Path(shutil.copytree(made.folders["accuracy"], tmp_path / at / "run")) for at in ("now", "then"))
    strip(old)
    for folder in (whole, old):
        shutil.rmtree(folder / "checkpoints")
    assert build([old])[0] == build([whole])[0]
    assert build([old, made.folders["accuracy"]])


def test_rounds_of_before_get_their_gains(made):
    run = read_run(made.folders["accuracy"])
    later = ("mcg", "cgs", "gamma_attainable")
    old = [{key: value for key, value in record.items() if key not in later} for record in run.records]
    found = chosen(judged_again(old, run.contributions, "validation"), run.contributions)
    for label, record in chosen(run.records, run.contributions).items():
        assert found[label] == record
        given = run.contributions.test, record["rewards"]
        assert (record["mcg"], record["cgs"]) == (mcg(*given), cgs(*given))
