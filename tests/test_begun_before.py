"""Runs that earlier versions began, each after 2 of 4 rounds (3 clients, the digits, float64): begun_before/rules1
(fedsac) under rules that are no longer followed, rules2 (fedsac-plus) under today's, and what it ended with."""

import json
import shutil
from pathlib import Path

import pytest

import fedsac
from fedsac import Config
from fedsac.config import RULES, read
from fedsac.federation.members import unpacked
from fedsac.report.page import build
from fedsac.report.reading import read_run
from fedsac.runs.checkpoint import file_name, pack, peek

HERE = Path(__file__).parent / "begun_before"


def close(theirs, ours):
    """Every number there is in both, to rounding; new keys may have come."""
    if isinstance(theirs, dict):
        return all(key in ours and close(value, ours[key]) for key, value in theirs.items())
    if isinstance(theirs, list):
        return len(theirs) == len(ours) and all(map(close, theirs, ours))
    return ours == (pytest.approx(theirs, abs=1e-9) if isinstance(theirs, float) else theirs)


def test_under_the_same_rules_it_ends_as_it_would_have(tmp_path):
    folder = Path(shutil.copytree(HERE / "rules2", tmp_path / "run"))
    fedsac.resume(folder)
    theirs, ours = HERE / "rules2-summary.json", folder / "summary.json"
    assert close(json.loads(theirs.read_text()), json.loads(ours.read_text()))
    theirs, ours = HERE / "rules2-rounds.jsonl", folder / "rounds.jsonl"
    assert close(*([json.loads(line) for line in place.read_text().splitlines()] for place in (theirs, ours)))


def test_it_is_not_continued_under_other_rules(tmp_path):
    folder = Path(shutil.copytree(HERE / "rules1", tmp_path / "run"))
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    with pytest.raises(fedsac.FedsacError, match=r"begun under rules 1, .* finish it with the version that began it"):
        fedsac.resume(folder)
    assert {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()} == before


def test_it_can_be_begun_again(tmp_path):
    config = Config(**read(HERE / "rules1" / "config.toml"))
    fedsac.run(config.replace(rounds=1, standalone_steps=3), tmp_path / "again")
    assert f"rules = {RULES}" in (tmp_path / "again" / "config.toml").read_text()


def test_reports_judge_it_by_todays_rules(tmp_path):
    # Equal rewards above every contribution: all inside BCF by the old rules, nobody but the best contributor today.
    folder = Path(shutil.copytree(HERE / "rules1", tmp_path / "run"))
    (checkpoint, records), c = peek(folder), peek(folder)[0].contributions.test
    equal = [record | {"rewards": [max(c) + 0.1] * len(c), "bcf": 1.0} for record in records]
    log = "".join(json.dumps(record) + "\n" for record in equal).encode()
    (folder / "rounds.jsonl").write_bytes(log)
    (folder / file_name(checkpoint.round)).write_bytes(pack(checkpoint, log))
    assert [record["bcf"] for record in read_run(folder).records] == [pytest.approx(1 / 3)] * 2


def test_its_page_shows_its_neurons():
    page, figures = build([HERE / "rules1"])
    assert {"neurons", "importance"} <= {figure.name for figure in figures}
    assert "round 2" in page.lower() or "2 of 4" in page


def test_members_of_an_earlier_federation_are_read():
    before = {
        "samples": 3,
        "validation": 0.5,
        "test": 0.4,
        "diverged": False,
        "refused": 1,
        "aside": False,
        "rounds": [1],
    }
    member = unpacked({"a": before})["a"]
    assert (member.samples, member.validation, member.test, member.refused) == (3, 0.5, 0.4, 1)
