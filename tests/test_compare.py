"""Comparisons: the same runs as one by one, resumable, written as JSON, CSV and a picture."""

import csv
import json
import math
import re
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import t, ttest_rel

import fedsac
from fedsac import Config, FedsacError
from fedsac.cli import main
from fedsac.cli.significance import show_statistics
from fedsac.config import RULES
from fedsac.doors import METHODS
from fedsac.report.comparison import fairness_accuracy
from fedsac.report.drawing import svg
from fedsac.runs import running
from fedsac.runs.comparing import compare, methods_named, resume_compare
from fedsac.runs.comparison import COLUMNS, ONLY_LAST, Row, rows
from fedsac.runs.start import resume_together
from fedsac.runs.watcher import Watcher
from tests.test_store import contents

SMALL = Config(rounds=4, clients=4, hidden=(16, 12), local_steps=4, standalone_steps=12, eval_every=2)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("compare") / "out"
    compare(SMALL, ["fedavg", "cgsv", "fedsac"], 2, out)
    return out


def test_runs_are_those_of_fedsac_run(finished):
    for method, seed in (("fedsac", 1), ("cgsv", 0)):
        alone = fedsac.run(SMALL.replace(method=method, seed=seed))
        summary = json.loads((finished / f"{method}-seed{seed}" / "summary.json").read_text())
        assert summary["contributions"] == list(alone.contributions.validation)
        assert summary["rewards"] == pytest.approx(list(alone.rewards), abs=0.01)


def test_rows_are_the_numbers_of_the_runs(finished):
    whole = json.loads((finished / "results.json").read_text())
    row = next(r for r in whole["rows"] if (r["method"], r["label"]) == ("fedsac", "last"))
    for k, seed in enumerate((0, 1)):
        summary = json.loads((finished / f"fedsac-seed{seed}" / "summary.json").read_text())
        c, theta = np.array(summary["contributions_test"]), np.array(summary["rewards"])
        assert row["gamma"][k] == pytest.approx(100 * np.corrcoef(c, theta)[0, 1])
        assert row["gain"][k] == pytest.approx((theta - c).mean())
        assert row["losers"][k] == (theta <= c).sum()
        assert row["max"][k] == theta.max()
        assert row["megabytes"][k] == pytest.approx(summary["bytes_per_round"]["down"] / 1e6)


def test_every_number_follows_from_the_contributions_and_rewards(finished):
    written = json.loads((finished / "results.json").read_text())
    for row in written["rows"]:
        runs = [run for run in written["runs"] if run["method"] == row["method"]]
        assert [run["seed"] for run in runs] == written["seeds"]
        for i, run in enumerate(runs):
            c, theta = run["contributions_test"], run["rewards"][row["label"]]
            assert row["gamma"][i] == pytest.approx(fedsac.gamma(c, theta))
            assert row["bcf"][i] == pytest.approx(fedsac.bcf(c, theta).mean())
            assert row["max"][i] == max(theta) and row["min"][i] == min(theta)


def test_the_csv_has_means_and_deviations(finished):
    with (finished / "results.csv").open() as file:
        table = list(csv.DictReader(file))
    assert len(table) == 3 * 3
    raw = json.loads((finished / "results.json").read_text())["rows"]
    for line, row in zip(table, raw, strict=True):
        assert (line["method"], line["label"]) == (row["method"], row["label"])
        assert float(line["max"]) == pytest.approx(np.mean(row["max"]), rel=1e-5)
        assert float(line["max_deviation"]) == pytest.approx(np.std(row["max"], ddof=1), rel=1e-4, abs=1e-9)


def test_the_picture_has_a_point_and_a_name_for_each_method(finished):
    read = json.loads((finished / "results.json").read_text())["rows"]
    root = ElementTree.fromstring(svg(fairness_accuracy([Row(r.pop("method"), r.pop("label"), r) for r in read], "")))
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    titles = [element.text for element in root.iter("{http://www.w3.org/2000/svg}title")]
    raw = json.loads((finished / "results.json").read_text())["rows"]
    drawn = [r["method"] for r in raw if r["label"] == "last" and any(g is not None for g in r["gamma"])]
    assert drawn
    for method in drawn:
        assert method in texts
        assert any(title and title.startswith(f"{method}: best reward") for title in titles)


def test_an_interrupted_comparison_ends_with_the_same_bytes(finished, tmp_path, monkeypatch):
    monkeypatch.setattr(running, "COMMIT_SHARE", math.inf)  # a commit after every round: there is something to lose

    class Stop(Watcher):
        def __init__(self):
            self.rounds = 0

        def round(self, run, record):
            self.rounds += 1
            if self.rounds == 14:  # in the middle of the third round of six runs
                raise KeyboardInterrupt

    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        compare(SMALL, ["fedavg", "cgsv", "fedsac"], 2, out, Stop())
    resume_compare(out)

    def lasting(folder):  # which checkpoints there are depends on the clock
        return {name: content for name, content in contents(folder).items() if "checkpoints/" not in name}

    assert lasting(out) == lasting(finished)


def test_a_comparison_begun_under_other_rules_is_left_as_it_was(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    settings = SMALL.toml().replace(f"rules = {RULES}\n", "")
    (out / "compare.json").write_text(json.dumps({"format_version": 1, "runs": {"fedsac-seed0": settings}}))
    with pytest.raises(fedsac.FedsacError, match="out: begun under rules 1"):
        resume_compare(out)
    assert [file.name for file in out.iterdir()] == ["compare.json"]


def test_a_comparison_killed_before_its_first_run_began(finished, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "compare.json").write_bytes((finished / "compare.json").read_bytes())
    resume_compare(out)
    assert (out / "results.json").read_bytes() == (finished / "results.json").read_bytes()


@pytest.mark.parametrize(
    "content", ["[]", "{}", '{"format_version": 1, "runs": {}}', '{"format_version": 1, "runs": 3}', "x"]
)
def test_a_list_of_runs_that_is_none(content, tmp_path):
    (tmp_path / "compare.json").write_text(content)
    with pytest.raises(FedsacError, match="not a comparison that was begun"):
        resume_compare(tmp_path)


def test_commits_wait_while_they_cost_too_much(tmp_path, monkeypatch):
    """At the start and at the end there is one; in between, none; and the log is whole."""
    monkeypatch.setattr(running, "COMMIT_SHARE", 0)
    fedsac.run_together([SMALL], [tmp_path / "run"], every_round=False)
    names = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert names == ["round-000000.safetensors", "round-000004.safetensors"]
    assert len((tmp_path / "run" / "rounds.jsonl").read_text().splitlines()) == 4


def test_an_interruption_keeps_every_whole_round(tmp_path, monkeypatch):
    """Commits may be far apart: Ctrl-C in the middle of a round loses that round alone."""

    class Impatient(Watcher):
        def round(self, run, record):
            if record["round"] == 3:
                raise KeyboardInterrupt

    monkeypatch.setattr(running, "COMMIT_SHARE", 0)
    configs = [SMALL, SMALL.replace(method="cgsv")]
    places = [tmp_path / "one", tmp_path / "two"]
    with pytest.raises(KeyboardInterrupt):
        fedsac.run_together(configs, places, Impatient(), every_round=False)
    # The first run's third round was over when the key was pressed, the second run's was not.
    logs = [len((place / "rounds.jsonl").read_text().splitlines()) for place in places]
    assert logs == [3, 2]
    resumed = resume_together(places)
    for result, whole in zip(resumed, fedsac.run_together(configs), strict=True):
        assert result.summary() == whole.summary()


def test_clients_stand_alone_once_for_all_methods(tmp_path):
    from fedsac.contributions import standalone

    seen = []
    original = standalone.train

    def counting(jobs):
        seen.append(sum(len(job.clients.names) for job in jobs))
        return original(jobs)

    standalone.train = counting
    try:
        fedsac.run_together([SMALL.replace(method=m, rounds=1) for m in ("fedavg", "fedsac", "iafl")])
    finally:
        standalone.train = original
    assert set(seen) == {4}


def test_names_of_methods():
    assert methods_named("all") == list(METHODS)
    assert methods_named("fedsac, fedavg") == ["fedsac", "fedavg"]
    for text, says in (("", "at least one"), ("fedsac,fedsac", "named twice")):
        with pytest.raises(FedsacError, match=says):
            methods_named(text)


def test_rows_without_a_gamma_have_none(finished):
    result = fedsac.run(SMALL.replace(rounds=1))
    table = rows([result])
    assert {row.label for row in table} == {"last", "selected", "best"}
    assert all(set(row.values) == {column[0] for column in COLUMNS} for row in table)
    assert table[0].deviation("max") is None  # of one seed


def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    settings = ["--rounds", "4", "--clients", "3", "--hidden", "12", "--local-steps", "2", "--standalone-steps", "4"]
    named = ["--methods", "fedavg,fedsac-plus", "--seeds", "2", "--eval-every", "2"]
    assert main(["compare", *settings, *named, "--out", "here"]) == 0
    out, err = capsys.readouterr()
    assert "fedsac-plus" in out and "results.csv" in out
    assert "to go" in err
    assert main(["compare", *settings, "--out", "here"]) == 2
    assert "here is there already; go on with --resume here" in capsys.readouterr().err
    assert main(["compare", "--resume", "here", "--show", "best"]) == 0
    assert main(["compare", "--resume", "nowhere"]) == 2
    assert main(["compare", "--methods", "fedsac,nothing", "--out", "there"]) == 2
    assert "no method 'nothing'" in capsys.readouterr().err
    assert not Path("there").exists()


def test_one_evaluation_is_shown_once(finished, tmp_path, capsys):
    """Where last, selected and best are one round: one table on the page, and one sentence there and here."""
    said = compared(tmp_path / "once", capsys, "--seeds", "2")[0]
    assert said.count(ONLY_LAST) == 1
    page = (tmp_path / "once" / "report.html").read_text()
    assert page.count(ONLY_LAST) == 1
    assert "Methods, last" in page and "Methods, selected" not in page and "Methods, best" not in page
    assert ", last: which method" in page and ", best: which method" not in page
    assert main(["compare", "--resume", str(finished)]) == 0
    assert ONLY_LAST not in " ".join(capsys.readouterr().out.split())
    page = (finished / "report.html").read_text()
    assert ONLY_LAST not in page and "Methods, best" in page
    assert page.count("which method is significantly first") == 3 * 2 * 2


def compared(folder, capsys, *more):
    """A comparison by the command, three methods; what it printed, its JSON and its CSV."""
    quick = ["--rounds", "3", "--clients", "3", "--hidden", "12", "--local-steps", "4", "--standalone-steps", "12"]
    named = ["--methods", "standalone,fedavg,fedsac", "--eval-every", "3", "--out", str(folder)]
    assert main(["compare", *quick, *named, *more]) == 0
    said = " ".join(capsys.readouterr().out.split())  # wherever lines were broken
    with (folder / "results.csv").open() as file:
        return said, json.loads((folder / "results.json").read_text()), list(csv.DictReader(file))


def test_the_command_says_which_method_is_significantly_first(tmp_path, capsys):
    """Intervals and p values in the files are scipy's of the numbers beside them, and all three places agree."""
    out, whole, table = compared(tmp_path / "out", capsys, "--seeds", "4")
    assert "last round, 4 seeds: mean, 95 % interval" in out and "Every seed draws its own split" in out
    values = {(row["method"], row["label"]): row for row in whole["rows"]}
    assert len(whole["statistics"]) == 3 * 2 * 3  # labels, columns, methods
    for entry in whole["statistics"]:
        own = values[entry["method"], entry["label"]][entry["column"]]
        line = next(one for one in table if (one["method"], one["label"]) == (entry["method"], entry["label"]))
        assert line[f"{entry['column']}_verdict"] == (entry["verdict"] or "")
        for difference in entry["differences"]:
            rival = values[difference["rival"], entry["label"]][entry["column"]]
            pairs = [(a, b) for a, b in zip(own, rival, strict=True) if a is not None and b is not None]
            assert difference["seeds"] == len(pairs)
            if difference["interval"] is not None:
                assert difference["p"] == pytest.approx(ttest_rel(*zip(*pairs, strict=True)).pvalue, abs=1e-9)
        if entry["column"] == "max":
            low, high = t.interval(0.95, 3, loc=np.mean(own), scale=np.std(own, ddof=1) / 2)
            assert entry["interval"] == pytest.approx([low, high])
            assert (float(line["max_low"]), float(line["max_high"])) == pytest.approx((low, high), rel=1e-5)
            assert f"{np.mean(own):.4f} [{low:.4f}, {high:.4f}]" in out or entry["label"] != "last"
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count("which method is significantly first") == 2 * 2  # a caption and a label for each table
    beaten = next(entry for entry in whole["statistics"] if entry["verdict"] == "beaten")
    assert f"beaten by {', '.join(beaten['beaten_by'])}" in page


def test_one_split_for_all_seeds(tmp_path, capsys):
    out, whole, _ = compared(tmp_path / "out", capsys, "--seeds", "2", "--split-seed", "9")
    assert "All seeds share one split" in out
    assert (whole["seeds"], whole["split_seed"]) == ([0, 1], 9)
    samples = {tuple(json.loads(path.read_text())["samples"]) for path in (tmp_path / "out").glob("*/summary.json")}
    assert len(samples) == 1
    alone = fedsac.run(
        Config(rounds=3, clients=3, hidden=(12,), local_steps=4, standalone_steps=12, seed=1, split_seed=9)
    )
    summary = json.loads((tmp_path / "out" / "fedsac-seed1" / "summary.json").read_text())
    assert summary["contributions"] == list(alone.contributions.validation)


def test_one_seed_decides_nothing(tmp_path, capsys):
    out, whole, _ = compared(tmp_path / "out", capsys, "--seeds", "1")
    assert "One seed says nothing about chance" in out
    assert {entry["verdict"] for entry in whole["statistics"]} == {None}
    assert "significantly first" not in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize("width", ["80", "140"])
def test_the_statistics_fit_a_terminal(width, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", width)
    monkeypatch.setenv("FORCE_COLOR", "1")  # so that rich takes the output for a terminal's
    monkeypatch.setenv("NO_COLOR", "1")
    seeds = [(k, k) for k in range(5)]
    values = {"gamma": [97.5, 98.5, 99.0, None, 98.0], "max": [0.51, 0.52, 0.5, 0.515, 0.525]}
    lower = {"gamma": [50.1, 51.5, 52.0, 51.1, 51.0], "max": [0.41, 0.42, 0.4, 0.415, 0.425]}
    show_statistics(
        [Row("fedsac-no-aggregation", "last", values, seeds), Row("fedsac-no-allocation", "last", lower, seeds)], "last"
    )
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in capsys.readouterr().out.splitlines()]
    assert max(map(len, lines)) <= int(width)
    assert any("98.25 [97.22, 99.28] 4/5" in line and "first" in line for line in lines)
    assert not any("…" in line for line in lines)
    assert sum("┏" in line for line in lines) == (2 if width == "80" else 1)


def test_methods_are_listed_with_their_citations(capsys):
    assert main(["methods"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(METHODS.entries)
    assert any("KDD 2024" in line and line.startswith("fedsac ") for line in lines)
    assert main(["methods", "cgsv"]) == 0
    out = capsys.readouterr().out
    assert "NeurIPS 2021" in out and "--set beta=1.0" in out


def test_a_run_that_was_given_more_rounds_is_not_compared_with_the_others(tmp_path, capsys):
    """It would be another length of training, in a table that says one."""
    out = tmp_path / "out"
    compare(Config(rounds=2, clients=3, hidden=(8,)), ["fedsac", "fedavg"], 1, out)
    before = (out / "results.json").read_bytes()
    fedsac.resume(out / "fedsac-seed0", rounds=3)
    assert main(["compare", "--resume", str(out)]) == 2
    assert "fedsac-seed0 was given 3 rounds, and the comparison has 2: remove that folder" in capsys.readouterr().err
    assert (out / "results.json").read_bytes() == before
    shutil.rmtree(out / "fedsac-seed0")
    assert main(["compare", "--resume", str(out)]) == 0 and (out / "results.json").read_bytes() == before
    said = " ".join(capsys.readouterr().out.split())
    assert "lose: how many clients are paid less than they have alone" in said
