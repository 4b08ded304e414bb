"""Sweeps: the runs one would do one by one, clients standing alone once, resumed to the same bytes, drawn."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest

import fedsac
from fedsac import Config, FedsacError
from fedsac.cli import main
from fedsac.report import sweep as figures
from fedsac.report.page import build
from fedsac.report.shapes import Line
from fedsac.runs.comparing import compare, resume_compare
from fedsac.runs.sweeping import parsed, planned, sweep
from fedsac.runs.watcher import Watcher
from tests.test_store import contents

SMALL = Config(rounds=4, clients=4, hidden=(16, 12), local_steps=4, standalone_steps=12, eval_every=2)
BETAS = {"beta": [1.0, 2.0, 5.0]}


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("sweep") / "out"
    sweep(SMALL, BETAS, 2, out)
    return out


def lasting(folder):  # which checkpoints there are depends on the clock
    return {name: content for name, content in contents(folder).items() if "checkpoints/" not in name}


def test_runs_are_those_of_fedsac_run(finished):
    for beta, seed in ((1.0, 1), (5.0, 0)):
        alone = fedsac.run(SMALL.replace(beta=beta, seed=seed))
        summary = json.loads((finished / f"beta{beta:g}-seed{seed}" / "summary.json").read_text())
        assert summary["contributions"] == list(alone.contributions.validation)
        assert summary["rewards"] == pytest.approx(list(alone.rewards), abs=0.01)


def test_rows_have_the_values_that_were_swept(finished):
    whole = json.loads((finished / "results.json").read_text())
    assert whole["varied"] == ["beta"]
    for row in whole["rows"]:
        for seed, gamma in zip((0, 1), row["gamma"], strict=True):
            run = json.loads((finished / f"beta{row['beta']:g}-seed{seed}" / "summary.json").read_text())
            assert gamma == run["results"][row["label"]]["gamma"]
    lines = list(csv.DictReader((finished / "results.csv").read_text().splitlines()))
    assert [(line["method"], line["beta"], line["label"]) for line in lines] == [
        (f"beta {beta:g}", str(beta), label) for beta in BETAS["beta"] for label in ("last", "selected", "best")
    ]


def test_clients_stand_alone_once_for_all_values(tmp_path, monkeypatch):
    from fedsac.contributions import standalone

    seen, original = [], standalone.train
    monkeypatch.setattr(standalone, "train", lambda jobs: seen.append(len(jobs)) or original(jobs))
    sweep(SMALL, BETAS, 2, tmp_path / "out")
    assert seen == [2] * 3  # two seeds; 12 steps, 4 at a time


@pytest.mark.parametrize("stop", [1, 8, 15])
def test_interrupted_and_resumed_to_the_same_bytes(finished, tmp_path, stop):
    class Stop(Watcher):
        rounds = 0

        def round(self, run, record):
            self.rounds += 1
            if self.rounds == stop:
                raise KeyboardInterrupt

    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        sweep(SMALL, BETAS, 2, out, Stop())
    resume_compare(out)
    assert lasting(out) == lasting(finished)


def test_the_page_draws_means_and_intervals(finished):
    page, drawn = build([finished])
    assert {"gamma-by-beta", "max-by-beta"} <= {figure.name for figure in drawn}
    assert "95 % intervals" in page
    whole = json.loads((finished / "results.json").read_text())
    entry = next(
        e for e in whole["statistics"] if (e["method"], e["label"], e["column"]) == ("beta 2", "last", "gamma")
    )
    low, high = entry["interval"]
    chart = next(figure for figure in drawn if figure.name == "gamma-by-beta").drawing
    assert f"beta 2: gamma {entry['mean']:.2f}, 95 % {low:.2f} to {high:.2f}" in chart.description


def test_page_and_terminal_name_what_is_swept(finished, capsys):
    """Not `method`, of which there is one: the page says once which."""
    page, drawn = build([finished])
    heads = set(re.findall(r'<th scope="col">(.*?)</th>', page))
    assert "beta" in heads and "method" not in heads
    assert '<th scope="row">beta 2</th>' in page and "fedsac, beta" not in page
    assert "<h2>By beta, at the last round</h2>" in page and "Which beta is significantly first" in page
    assert "<p>fedsac, 6 runs, seeds 0, 1, scored by accuracy</p>" in page
    assert "Reward of each client by beta" in [figure.drawing.title for figure in drawn]
    assert main(["sweep", "--resume", str(finished)]) == 0
    shown = capsys.readouterr().out
    assert "method" not in shown.partition("In brackets")[0] and shown.count("\u2503 beta ") == 2


def test_contributions_are_drawn_for_each_setting_that_changes_them(finished, tmp_path):
    """Beta leaves them alone: one stroke for each client. With fewer steps alone, each setting has its own."""
    sweep(SMALL.replace(rounds=1), {"standalone_steps": [1, 12]}, 2, tmp_path / "out")

    def strokes(folder):
        drawing = next(figure.drawing for figure in build([folder])[1] if figure.name == "clients")
        return [shape.tip for shape in drawing.shapes if isinstance(shape, Line) and "alone" in shape.tip]

    assert len(strokes(finished)) == 4 and all(tip.startswith("client-0") for tip in strokes(finished))
    expected = set()
    for steps in (1, 12):
        each = [tmp_path / "out" / f"standalone_steps{steps}-seed{seed}" / "summary.json" for seed in (0, 1)]
        alone = 100 * np.mean([json.loads(path.read_text())["contributions_test"] for path in each], axis=0)
        expected |= {f"client-0{i + 1}, standalone_steps {steps}, alone: {alone[i]:.2f}" for i in range(4)}
    assert set(strokes(tmp_path / "out")) == expected


def test_what_is_drawn_against_a_number():
    assert figures.varied_number([SMALL.replace(beta=b) for b in (1.0, 2.0)]) == "beta"
    assert figures.varied_number([SMALL.replace(options={"step": s}) for s in ("1", "2")]) == "step"
    assert figures.varied_number([SMALL, SMALL.replace(method="fedavg")]) is None
    assert figures.varied_number([SMALL, SMALL.replace(beta=1.0, lr=1.0)]) is None
    assert figures.varied_number([SMALL, SMALL.replace(hidden=(4,))]) is None
    assert figures.varied_number([SMALL, SMALL.replace(seed=3)]) is None


def test_every_combination():
    values = parsed(["beta=1,2", "hidden=8,4x4", "method=fedsac,fedavg"])
    assert values == {"beta": [1.0, 2.0], "hidden": [(8,), (4, 4)], "method": ["fedsac", "fedavg"]}
    plan = planned(SMALL, values, 2)
    assert len(plan.configs) == 2 * 2 * 2 * 2
    assert plan.configs["beta2-hidden4x4-methodfedavg-seed1"] == SMALL.replace(
        beta=2.0, hidden=(4, 4), method="fedavg", seed=1
    )


def test_options_of_a_method_are_swept_too():
    plan = planned(SMALL.replace(method="cgsv"), parsed(["reading=code,paper"]), 1)
    assert [config.options for config in plan.configs.values()] == [{"reading": "code"}, {"reading": "paper"}]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "--set beta=1,2,5"),
        (["--set", "beta"], "NAME=VALUE,VALUE"),
        (["--set", "beta=1,x"], "each value must be a number, not 'x'"),
        (["--set", "beta=1,-2"], "beta must be a number of at least 0"),
        (["--set", "rounds=1.5"], "a whole number"),
        (["--set", "hidden=4,4,0"], "each once"),
        (["--set", "beta=1,1"], "each once"),
        (["--set", "beta=1", "--set", "beta=2"], "names beta twice"),
        (["--set", "seed=1,2"], "--seeds has them"),
        (["--set", "betta=1,2"], "has no option 'betta'"),
        (["--set", "beta=1,2", "--seeds", "0"], "seeds must be at least 1"),
        (["--set", "beta=1,2", "--resume", "x"], "--resume takes every setting"),
    ],
)
def test_what_cannot_be_swept(arguments, says, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["sweep", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line
    assert not list(tmp_path.iterdir())


def test_the_command(tmp_path, capsys):
    out = tmp_path / "out"
    small = ["--rounds", "2", "--clients", "3", "--hidden", "8", "--local-steps", "2", "--standalone-steps", "4"]
    assert main(["sweep", *small, "--set", "beta=1,9", "--seeds", "2", "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "beta 1" in shown and "beta 9" in shown and "verdict" in shown
    assert (out / "report.html").exists()
    assert main(["sweep", "--resume", str(out)]) == 0
    assert main(["sweep", *small, "--set", "beta=1,9", "--out", str(out)]) == 2
    assert "go on with --resume" in capsys.readouterr().err


def test_compare_with_options_of_methods(tmp_path):
    options = {"fedsac.beta": "3", "reading": "paper"}
    compare(SMALL, ["cgsv", "fedsac", "fedavg"], 1, tmp_path / "out", options=options)
    for method, own in (("cgsv", {"reading": "paper"}), ("fedsac", {"beta": "3"}), ("fedavg", {})):
        alone = fedsac.run(SMALL.replace(method=method, options=own))
        summary = json.loads((tmp_path / "out" / f"{method}-seed0" / "summary.json").read_text())
        assert summary["rewards"] == pytest.approx(list(alone.rewards), abs=0.01)
    for wrong, says in (
        ({"nothing": 1}, "none of cgsv, fedavg has it"),
        ({"fedsac.beta": 1}, "fedsac is not among the methods"),
        ({"fedavg.reading": "paper"}, "option reading: fedavg has none"),
    ):
        with pytest.raises(FedsacError, match=says):
            compare(SMALL, ["cgsv", "fedavg"], 1, tmp_path / "none", options=wrong)
    assert not (tmp_path / "none").exists()


def test_compare_takes_options_on_the_command_line(tmp_path):
    small = ["--rounds", "1", "--clients", "3", "--hidden", "8", "--local-steps", "2", "--standalone-steps", "4"]
    out = tmp_path / "out"
    arguments = ["--methods", "cgsv,fedavg", "--set", "reading=paper", "--seeds", "1", "--out", str(out)]
    assert main(["compare", *small, *arguments]) == 0
    assert 'reading" = "paper"' in (out / "cgsv-seed0" / "config.toml").read_text()
    assert "reading" not in (out / "fedavg-seed0" / "config.toml").read_text()
