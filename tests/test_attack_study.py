"""`fedsac attack`: what the table says, by hand; and the command from the clean runs to the page."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from fedsac import FedsacError
from fedsac.cli import main
from fedsac.config import Config
from fedsac.runs.attack_table import Done, Row, against_clean, detected, measured
from fedsac.runs.attacking import Study, attacks_named, begin, begun, carry_out
from fedsac.runs.watcher import Watcher
from fedsac.runs.workers import Workers
from tests.test_store import contents

QUICK = ["--rounds", "4", "--clients", "5", "--hidden", "12", "--local-steps", "3", "--threads", "1"]
BASE = Config(rounds=4, clients=5, hidden=(12,), local_steps=3, threads=1, eval_every=4)


def summary(rewards, hostile=(), kept=None, success=None, *, one_party=False, removed=(), defended=False):
    found = {"client_names": list(rewards), "rewards": list(rewards.values())}
    attack = {"attackers": list(hostile), "kept": kept, "success": success, "one_party": one_party}
    return found | {"attack": attack | {"removed": list(removed), "defended": defended}}


CLEAN = summary({"a": 0.5, "b": 0.7, "c": 0.8, "d": 0.9})


def done(attacked, records=()):
    return Done("x", "fedsac", 0, (attacked, list(records)), (CLEAN, []))


def test_the_columns_by_hand():
    """b and c are hostile: they end with .65 and .8, after .7 and .8; d loses .1, a gains .02."""
    found = measured(done(summary({"a": 0.52, "b": 0.65, "c": 0.8, "d": 0.8}, ["b", "c"], success=[0.1, 0, 0, 0.4])))
    assert found["gain"] == pytest.approx((-0.05 + 0) / 2) and found["over_lowest"] == pytest.approx(0.8 - 0.52)
    assert found["over_best"] == pytest.approx(0)
    assert found["best_loss"] == pytest.approx(0.1) and found["mean_loss"] == pytest.approx((0.1 - 0.02) / 2)
    assert found["success"] == 0.4 and found["recall"] is None and found["false_positives"] is None
    paid, was = {"a": 0.52, "b": 0.65, "c": 0.8, "d": 0.8}, {"a": 0.5, "b": 0.7, "c": 0.8, "d": 0.9}
    outcome = {"attackers": ["b", "c"], "kept": None, "one_party": False, "success": [0.1, 0, 0, 0.4]}
    whole = against_clean(paid, was, outcome, {"a", "b"})
    assert whole["one_loss"] == pytest.approx(0.1) and whole["mean_success"] == pytest.approx(0.25)
    assert whole["recall"] == whole["false_positives"] == 0.5
    assert {
        key: whole[key] for key in ("gain", "over_lowest", "best_loss", "mean_loss", "success")
    }.items() <= found.items()


def test_what_is_kept_counts_and_a_coalition_is_one_party():
    attacked = summary({"a": 0.5, "b": 0.7, "c": 0.8, "d": 0.9}, ["b", "c"], kept=[0.6, 0.85], one_party=True)
    assert measured(done(attacked))["gain"] == pytest.approx(0.85 - 0.8)
    attacked["attack"]["one_party"] = False
    assert measured(done(attacked))["gain"] == pytest.approx((0.6 - 0.7 + 0.85 - 0.8) / 2)


def test_doubles_and_merged_parties_are_measured_against_what_they_were():
    doubled = summary({"a": 0.5, "b": 0.6, "b-as-2": 0.75, "c": 0.8, "d": 0.9}, ["b", "b-as-2"], one_party=True)
    found = measured(done(doubled))
    assert found["gain"] == pytest.approx(0.75 - 0.7) and found["mean_loss"] == 0
    merged = summary({"a": 0.5, "b": 0.85, "d": 0.7}, ["b"], one_party=True)  # c has joined as b
    found = measured(done(merged))
    assert found["gain"] == pytest.approx(0.85 - 0.8) and found["best_loss"] == pytest.approx(0.2)


def test_who_is_found_out():
    """Named in half of the rounds, or removed; a server without any means to do so is not asked."""
    rounds = [{"refused": {"b": "harm", "a": "harm"}}, {"refused": {"b": "harm"}}, {}, {}]
    attacked = summary({"a": 0.5, "b": 0.7, "c": 0.8, "d": 0.9}, ["b", "c"], defended=True)
    assert detected(attacked, rounds) == {"b"}
    found = measured(done(attacked, rounds))
    assert found["recall"] == 0.5 and found["false_positives"] == 0
    assert detected(summary(dict.fromkeys("ab", 0.5), removed=["a"], defended=True), [{}]) == {"a"}
    assert detected(summary(dict.fromkeys("ab", 0.5), defended=True), [{}]) == set()
    assert detected(summary(dict.fromkeys("ab", 0.5)), [{}]) is None


def test_a_mean_leaves_out_what_does_not_exist():
    row = Row("x", "fedsac")
    row.values["gain"] += [0.1, None, 0.3]
    assert row.mean("gain") == pytest.approx(0.2) and row.mean("success") is None


def test_names_on_the_command_line():
    assert attacks_named("zero, hoard@top", "largest:2") == ("zero@largest:2", "hoard@top")
    everything = attacks_named("all")
    assert "sign-flip@top" in everything and "sole-holder@top" in everything and "sole-holder" not in everything


def test_the_command_from_clean_runs_to_the_page(tmp_path, capsys):
    out = tmp_path / "study"
    names = "claim,hoard,sybils:3,backdoor@top"
    command = ["attack", names, "--methods", "fedsac,rffl", "--seeds", "2", "--also", "refuse=harmful", *QUICK]
    assert main([*command, "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    results = json.loads((out / "results.json").read_text())
    rows = {(row["attack"], row["method"]): row for row in results["rows"]}
    assert len(rows) == 4 * 4 and all(len(row["gain"]) == 2 for row in rows.values())
    for method in ("fedsac", "rffl", "fedsac, refuse harmful"):
        assert rows["claim", method]["gain"] == [0, 0] and rows["claim", method]["mean_loss"] == [0, 0]
    assert rows["claim", "fedsac"]["recall"] == [None, None] and rows["claim", "rffl"]["recall"] == [0, 0]
    assert '"reward_by" = "own"' in (out / "runs" / "clean-rffl-seed0" / "config.toml").read_text()
    top = [run for run in results["runs"] if run["attack"] == "backdoor@top"]
    for run in top:
        clean = dict(zip(run["clean"]["clients"], run["clean"]["contributions"], strict=True))
        assert run["attackers"] == [max(clean, key=clean.__getitem__)]
    assert "sybils:3" in shown and len((out / "results.csv").read_text().splitlines()) == 17
    page = (out / "report.html").read_text()
    assert all(name in page for name in ("hoard", "sybils:3", "backdoor@top"))
    pictures = sorted(path.name for path in (out / "figures").glob("*.svg"))
    assert pictures == ["attack-backdoor-by-top.svg", "attack-claim.svg", "attack-hoard.svg", "attack-sybils-3.svg"]
    (out / "report.html").unlink()
    assert main(["report", str(out)]) == 0 and (out / "report.html").read_text() == page


class Interrupt(Watcher):
    def __init__(self, left):
        self.left = left

    def round(self, run, record):
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("rounds", [3, 9, 17])
def test_a_study_resumed_ends_with_the_same_bytes(rounds, tmp_path):
    """Two clean runs and four attacked ones, of four rounds each: cut off in either."""
    study = Study(BASE, ("hoard", "launder"), ("fedsac", "cgsv"), 1)
    for name in ("whole", "cut"):
        begin(study, tmp_path / name)
    carry_out(tmp_path / "whole", Watcher())
    with pytest.raises(KeyboardInterrupt):
        carry_out(tmp_path / "cut", Interrupt(rounds))
    assert begun(tmp_path / "cut") == study
    carry_out(tmp_path / "cut", Watcher())
    for name in ("results.json", "results.csv"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    runs = {path.name for path in (tmp_path / "whole" / "runs").iterdir()}
    assert len(runs) == 6
    for name in runs:
        assert contents(tmp_path / "cut" / "runs" / name) == contents(tmp_path / "whole" / "runs" / name)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing"], "no attack 'nothing'"),
        (["zero,zero"], "each once"),
        (["zero@client-01,zero@client:01"], "folders of the same name"),
        (["zero@"], "say who is hostile"),
        (["zero", "--attackers", "client-77"], "client-77"),
        (["zero", "--also", "seed=3"], "not a setting"),
        (["zero", "--also", "method=cgsv"], "not a setting"),
        (["zero", "--methods", "fedsax"], "did you mean fedsac"),
        (["zero", "--seeds", "0"], "seeds must be at least 1"),
        (["zero", "--resume", "nowhere"], "leave them out"),
        (["--resume", "nowhere"], "no study of attacks"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(arguments, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    quick = [] if "--resume" in arguments else QUICK
    assert main(["attack", *arguments, *quick]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert re.search(said, error)
    assert not list(tmp_path.iterdir())


def test_the_page_s_example_runs(tmp_path, monkeypatch, capsys):
    page = (Path(__file__).parents[1] / "docs" / "attacks.md").read_text(encoding="utf-8")
    code = re.search(r"as `myattacks.py`:\n\n```python\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    command = re.search(r"fedsac (attack myattacks.*)", page)
    assert code and command
    (tmp_path / "myattacks.py").write_text(code[1])
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert main([*command[1].split(), "--hidden", "12", "--local-steps", "2", "--out", "study"]) == 0
    rows = json.loads(Path("study/results.json").read_text())["rows"]
    assert [(row["attack"], row["method"]) for row in rows] == [
        ("myattacks:HalfHearted:3", method) for method in ("fedsac", "cgsv")
    ]


def test_every_attack_is_on_the_page():
    from fedsac.doors import ATTACKS

    page = (Path(__file__).parents[1] / "docs" / "attacks.md").read_text(encoding="utf-8")
    for name, entry in ATTACKS.entries.items():
        assert f"`{name}:{entry.parameter}`" in page if entry.parameter else f"`{name}`" in page


def test_the_list_names_every_attack(capsys):
    from fedsac.doors import ATTACKS

    assert main(["attack", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0].split(":")[0] for line in lines] == list(ATTACKS)
    for line, entry in zip(lines, ATTACKS.entries.values(), strict=True):  # below each other
        assert line.index(f" {entry.what}") == lines[0].index(" sends back")


def test_a_study_of_own_data_is_resumed_from_any_folder(tmp_path, monkeypatch):
    x, y = np.random.default_rng(0).normal(size=(200, 4)), np.arange(200) % 2
    np.savez(tmp_path / "own.npz", x=x, y=y)
    monkeypatch.chdir(tmp_path)
    begin(Study(BASE.replace(data="own.npz"), ("zero",), ("fedsac",), 1), tmp_path / "study")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert len(carry_out(tmp_path / "study", Watcher())) == 1


def test_a_study_is_begun_in_an_empty_folder_only(tmp_path):
    (tmp_path / "kept.txt").write_text("kept")
    with pytest.raises(FedsacError, match="is there already"):
        begin(Study(BASE, ("zero",), ("fedsac",), 1), tmp_path)


def test_in_two_processes_it_finds_the_same(tmp_path):
    study = Study(BASE.replace(dtype="float64"), ("zero", "hoard", "label-flip@top"), ("fedsac", "cgsv"), seeds=2)
    for name, workers in (("one", None), ("two", Workers.named("2"))):
        begin(study, tmp_path / name)
        carry_out(tmp_path / name, Watcher(), workers=workers)
    one, two = (json.loads((tmp_path / name / "results.json").read_text())["runs"] for name in ("one", "two"))
    assert len(one) == len(two) == 12
    for run, other in zip(one, two, strict=True):
        assert {run[key] == other[key] for key in ("attack", "method", "seed", "attackers", "found")} == {True}
        assert run["rewards"] == pytest.approx(other["rewards"], abs=1e-9)


@pytest.mark.parametrize("workers", [None, Workers(2, ray=False)], ids=["here", "in two processes"])
def test_an_attack_that_wrecks_the_model_ends_its_own_run_alone(workers, tmp_path, capsys):
    """Steps 1e30 times as long: what FedSAC's server measures is no number any more. FedAvg measures nothing."""
    whole, without = tmp_path / "whole", tmp_path / "without"
    begin(Study(BASE, ("rescale:1e30@top", "zero"), ("fedsac", "fedavg"), 2), whole)
    begin(Study(BASE, ("zero",), ("fedsac", "fedavg"), 2), without)
    rows, others = carry_out(whole, Watcher(), workers=workers), carry_out(without, Watcher())
    assert [(row.attack, row.method, row.wrecked) for row in rows] == [
        ("rescale:1e30@top", "fedsac", 2),
        ("rescale:1e30@top", "fedavg", 0),
        ("zero", "fedsac", 0),
        ("zero", "fedavg", 0),
    ]
    assert rows[2:] == others and rows[0].mean("gain") is None and len(rows[1].values["gain"]) == 2
    before = contents(whole)
    assert carry_out(whole, Watcher(), workers=workers) == rows and contents(whole) == before  # nothing is tried again
    assert main(["report", str(whole)]) == 0
    capsys.readouterr()
    assert main(["attack", "--resume", str(whole)]) == 0
    said = "rescale:1e30@top on fedsac: in 2 of 2 seeds the model is wrecked (its loss is no number any more)."
    page = (whole / "report.html").read_text()
    assert said in capsys.readouterr().out and said in page
    assert "fedsac (wrecked)" in page and "fedsac (wrecked), " not in page and "fedavg, adv" in page, "no bar of 0"


def test_honest_clients_who_wreck_the_model_are_an_error(tmp_path):
    """Not the attack's doing: a learning rate that is too large, in the clean run."""
    begin(Study(BASE.replace(lr=1e30), ("zero",), ("fedsac",), 1), tmp_path / "study")
    with pytest.raises(FedsacError, match="lower --lr"):
        carry_out(tmp_path / "study", Watcher())
    assert not list((tmp_path / "study").rglob("wrecked.json"))
