"""The page of units of networks that people use: written from its raw file, and with nothing in it that fails."""

import json
from pathlib import Path

import pytest

from benchmarks.zoo import page

DOCS = Path(__file__).resolve().parents[1] / "docs" / "results"
FOUND = json.loads((DOCS / "units.json").read_text())


def test_the_page_is_what_its_raw_file_says():
    assert (DOCS / "units.md").read_text() == page.text(FOUND)


@pytest.mark.parametrize("found", FOUND, ids=lambda found: found["network"])
def test_units_are_proved_and_what_stays_whole_is_named(found):
    assert found["difference"] < 1e-10 < 1e-3 < found["change"]
    assert found["units"] == sum(group["units"] for group in found["groups"])
    assert 0 < found["in_units"] < found["parameters"]
    assert all(whole["reason"] for whole in found["whole"])
