"""A run that an earlier version began: tests/begun_before/run is its folder after 2 of 4 rounds, beside it what that
version ended with (fedsac, 3 clients, the digits, float64)."""

import json
import shutil
from pathlib import Path

import pytest

import fedsac
from fedsac import FedsacError
from fedsac.federation.members import unpacked
from fedsac.methods.fedsac import FedSAC
from fedsac.report.page import build

HERE = Path(__file__).parent / "begun_before"


def close(theirs, ours):
    """Every number there is in both, to rounding; new keys may have come."""
    if isinstance(theirs, dict):
        return all(key in ours and close(value, ours[key]) for key, value in theirs.items())
    if isinstance(theirs, list):
        return len(theirs) == len(ours) and all(map(close, theirs, ours))
    return ours == (pytest.approx(theirs, abs=1e-9) if isinstance(theirs, float) else theirs)


def test_it_resumes_and_ends_as_it_would_have(tmp_path):
    folder = Path(shutil.copytree(HERE / "run", tmp_path / "run"))
    fedsac.resume(folder)
    assert close(json.loads((HERE / "summary.json").read_text()), json.loads((folder / "summary.json").read_text()))
    theirs, ours = (place.joinpath("rounds.jsonl").read_text().splitlines() for place in (HERE, folder))
    assert close([json.loads(line) for line in theirs], [json.loads(line) for line in ours])


def test_it_is_not_resumed_under_other_rules(tmp_path, monkeypatch):
    folder = Path(shutil.copytree(HERE / "run", tmp_path / "run"))
    monkeypatch.setattr(FedSAC, "edition", FedSAC.edition + 1)
    with pytest.raises(FedsacError, match="the method has other rules now"):
        fedsac.resume(folder)


def test_its_page_shows_its_neurons():
    page, figures = build([HERE / "run"])
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
