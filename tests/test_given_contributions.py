"""Contributions given from outside, in a file: what they decide, and what they do not."""

import json
from pathlib import Path

import numpy as np
import pytest

import fedsac
from fedsac import Config, FedsacError
from fedsac.cli import main
from fedsac.contributions.base import in_unit_range, read_given
from fedsac.core.allocation import reputation
from fedsac.core.fairness import alpha_bcf, bcf, gamma
from fedsac.runs.watcher import Watcher
from tests.test_store import contents

TINY = Config(rounds=3, clients=4, hidden=(16,), local_steps=3, standalone_steps=10)
NAMES = ("client-01", "client-02", "client-03", "client-04")
GIVEN = (40.0, -2.5, 10.0, 25.0)
QUICK = ["--rounds", "3", "--clients", "4", "--hidden", "16", "--local-steps", "3", "--standalone-steps", "10"]


@pytest.fixture
def given(tmp_path) -> Path:
    path = tmp_path / "given.csv"
    path.write_text("client,contribution\n" + "".join(f"{n},{v}\n" for n, v in zip(NAMES, GIVEN, strict=True)))
    return path


@pytest.fixture
def config(given) -> Config:
    return TINY.replace(contributions=str(given))


def test_they_decide_reputations_and_gamma_and_bcf_stays_with_standing_alone(config):
    result, plain = fedsac.run(config), fedsac.run(TINY)
    assert result.contributions.deciding == GIVEN
    assert result.reputations == pytest.approx(reputation([1, 0, 0.25, 0.625], 5.0).tolist())
    assert result.reputations != pytest.approx(plain.reputations)
    # Standing alone is what it is without them.
    assert (result.contributions.validation, result.contributions.test) == (
        plain.contributions.validation,
        plain.contributions.test,
    )
    for record in result.records:
        assert record["gamma"] == gamma(GIVEN, record["rewards"])
        assert record["bcf"] == bcf(result.contributions.test, record["rewards"]).mean()
        assert record["alpha_bcf"] == alpha_bcf(result.contributions.test, record["rewards"]).mean()
    assert result.records[-1]["gamma"] != gamma(result.contributions.test, result.rewards)
    # Allocation, and so what is rewarded, follows.
    assert result.last["neurons"][0] == 16 == max(result.last["neurons"])
    assert result.last["neurons"][1] == min(result.last["neurons"])


def test_selected_and_best_rounds_are_chosen_with_them(config):
    result = fedsac.run(config.replace(rounds=6))
    best = max(range(6), key=lambda i: (result.records[i]["gamma"] or -1e9, i))
    assert result.results["best"]["round"] == best + 1
    selected = max(range(6), key=lambda i: (gamma(GIVEN, result.records[i]["rewards_validation"]) or -1e9, i))
    assert result.results["selected"]["round"] == selected + 1


def test_the_summary_and_the_table_say_so(given, tmp_path, capsys):
    command = ["run", *QUICK, "--contributions", str(given), "--out", str(tmp_path / "run")]
    assert main(command) == 0
    assert "contribution (given in given.csv)" in " ".join(capsys.readouterr().out.split())
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["contribution"] == "given" and summary["contributions_deciding"] == list(GIVEN)
    assert "contribution (given in given.csv)" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.parametrize("method", ["fedsac-plus", "iafl", "fedrac", "cffl"])
def test_methods_take_them_in_the_unit_range(method, config):
    result = fedsac.run(config.replace(method=method))
    assert result.contributions.for_method("validation") == in_unit_range(GIVEN) == (1.0, 0.0, 0.25, 0.625)
    json.dumps(result.summary(), allow_nan=False)


def test_equal_numbers_in_another_unit_are_the_same_run(config, given):
    one = fedsac.run(config)
    text = given.read_text()
    for name, value in zip(NAMES, GIVEN, strict=True):
        text = text.replace(f"{name},{value}", f"{name},{value * 1000}")
    given.write_text(text)
    other = fedsac.run(config)
    assert other.rewards == one.rewards and other.contributions.deciding[0] == 40000


# -- interruptions


class Stop(Watcher):
    def round(self, run, record):
        if record["round"] == 1:
            raise KeyboardInterrupt


@pytest.mark.parametrize("fate", ["there", "gone", "changed", "broken"])
def test_a_resumed_run_needs_no_file(fate, config, given, tmp_path):
    fedsac.run(config, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        fedsac.run(config, tmp_path / "run", watcher=Stop())
    if fate == "gone":
        given.unlink()
    elif fate == "changed":
        given.write_text(given.read_text().replace("40.0", "1.0"))
    elif fate == "broken":
        given.write_text("not at all")
    fedsac.resume(tmp_path / "run")
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


def test_a_run_killed_before_its_first_commit_still_needs_it(config, given, tmp_path):
    fedsac.run(config, tmp_path / "run")
    for path in (tmp_path / "run" / "checkpoints").iterdir():
        path.unlink()
    given.rename(tmp_path / "elsewhere.csv")
    with pytest.raises(FedsacError, match=r"contributions .*given.csv: there is no such file"):
        fedsac.resume(tmp_path / "run")
    assert (tmp_path / "run" / "config.toml").exists()
    (tmp_path / "elsewhere.csv").rename(given)
    assert fedsac.resume(tmp_path / "run").contributions.deciding == GIVEN


def test_a_relative_path_is_kept_whole(given, tmp_path, monkeypatch):
    monkeypatch.chdir(given.parent)
    result = fedsac.run(TINY.replace(contributions="given.csv"), tmp_path / "run")
    assert result.config.contributions == str(given)


def test_runs_side_by_side_have_their_own(config, given, tmp_path):
    other = tmp_path / "other.json"
    other.write_text(json.dumps(dict(zip(NAMES, (1, 2, 3, 4), strict=True))))
    configs = [TINY, config, TINY.replace(contributions=str(other)), TINY.replace(contribution="cosine")]
    together = fedsac.run_together(configs)
    assert [r.contributions.deciding for r in together[:3]] == [None, GIVEN, (1.0, 2.0, 3.0, 4.0)]
    assert together[3].contributions.deciding not in (None, GIVEN)
    assert len({r.contributions.validation for r in together}) == 1


# -- files


def test_both_kinds_of_file_and_any_order(tmp_path):
    expected = (1.0, 0.5, -3.0, 0.0)
    for name, text in {
        "a.csv": "client,contribution\nclient-04,0\nclient-01,1\n\nclient-03,-3\nclient-02,.5\n",
        "b.csv": "\ufeffcontribution, client\n1,client-01\n5e-1, client-02\n-3,client-03\n0,client-04\n",
        "c.json": '{"client-02": 0.5, "client-01": 1, "client-04": 0, "client-03": -3.0}',
        "d.JSON": '{"client-02": "0.5", "client-01": 1, "client-04": 0, "client-03": -3.0}',
    }.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        assert read_given(tmp_path / name, NAMES) == expected, name


HEAD = "client,contribution\n"
ALL = "".join(f"{name},1\n" for name in NAMES)
BROKEN = {
    "one is missing": ("x.csv", HEAD + ALL.replace("client-03,1\n", ""), "has no contribution of client-03; it needs"),
    "one too many": ("x.csv", HEAD + ALL + "client-05,1\n", "has a contribution of client-05, who is no client; they"),
    "one twice": ("x.csv", HEAD + ALL + "client-02,1\n", "line 6: client-02 is there twice; keep one"),
    "a word": ("x.csv", HEAD + ALL.replace("client-02,1", "client-02,much"), "client-02 must be a number, not 'much'"),
    "no number": ("x.csv", HEAD + ALL.replace("client-02,1", "client-02"), "client-02 must be a number, not None"),
    "NaN": ("x.csv", HEAD + ALL.replace("client-02,1", "client-02,nan"), "client-02 must be a number, not 'nan'"),
    "three cells": ("x.csv", HEAD + ALL.replace("client-02,1", "client-02,1,5"), "line 3 has more than two cells"),
    "other columns": (
        "x.csv",
        "name,value\n" + ALL,
        "line 1 must name the columns client and contribution, not ['name",
    ),
    "a column more": (
        "x.csv",
        "client,contribution,note\n" + ALL,
        "line 1 must name the columns client and contributi",
    ),
    "nothing": ("x.csv", "", "line 1 must name the columns client and contribution, not None"),
    "an open quote": ("x.csv", HEAD + '"client-01,1\n' + ALL, "x.csv: line "),
    "no JSON": ("x.json", "{", "x.json: not JSON (Expecting property name"),
    "a list": ("x.json", "[1, 2, 3, 4]", "must be an object with a number for each client, as in {"),
    "a key twice": ("x.json", '{"client-01": 1, "client-01": 2}', "client-01 is there twice; keep one"),
    "true": ("x.json", json.dumps(dict.fromkeys(NAMES, True)), "client-01 must be a number, not True"),
    "null": ("x.json", json.dumps(dict.fromkeys(NAMES)), "client-01 must be a number, not None"),
    "infinity": ("x.json", json.dumps(dict.fromkeys(NAMES, float("inf"))), "client-01 must be a number, not inf"),
    "no text": ("x.csv", b"\xff\xfe\x00", "x.csv: cannot be read ("),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_is_one_line_before_any_work(case, tmp_path, capsys):
    name, content, says = BROKEN[case]
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    assert main(["run", *QUICK, "--contributions", str(tmp_path / name), "--out", str(tmp_path / "run")]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and err.startswith("fedsac: ")
    assert says in err
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["nowhere.csv", "."])
def test_no_file_is_one_line(name, tmp_path, capsys):
    assert main(["run", *QUICK, "--contributions", str(tmp_path / name), "--out", str(tmp_path / "run")]) == 2
    assert "there is no such file" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_comparison_takes_them_too(given, tmp_path, capsys):
    command = ["compare", *QUICK, "--methods", "fedavg,fedsac", "--seeds", "2", "--contributions", str(given)]
    assert main([*command, "--out", str(tmp_path / "both")]) == 0
    for name in ("fedavg-seed0", "fedsac-seed1"):
        summary = json.loads((tmp_path / "both" / name / "summary.json").read_text())
        assert summary["contributions_deciding"] == list(GIVEN)


def test_a_measure_beside_them_would_decide_nothing(given):
    with pytest.raises(FedsacError, match="so shapley would decide nothing; leave contribution or contributions out"):
        TINY.replace(contributions=str(given), contribution="shapley")


def test_silos_are_named_by_their_files(tmp_path):
    (tmp_path / "silos").mkdir()
    rng = np.random.default_rng(0)
    for name in ("a", "b", "c", "validation"):
        np.savez(tmp_path / "silos" / f"{name}.npz", x=rng.normal(size=(40, 5)), y=np.arange(40) % 2)
    (tmp_path / "given.json").write_text('{"b": 1, "a": 3, "c": 2}')
    config = TINY.replace(data=str(tmp_path / "silos"), clients=None, contributions=str(tmp_path / "given.json"))
    assert fedsac.run(config).contributions.deciding == (3.0, 1.0, 2.0)
