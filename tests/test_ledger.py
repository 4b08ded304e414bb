"""The ledger: what was written stays, and whatever is done to it shows."""

import json

import pytest

from fedsac.errors import FedsacError
from fedsac.federation.ledger import Ledger, read


@pytest.fixture
def path(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    for n in range(5):
        ledger.append("round", number=n, accuracy=0.1 * n)
    return ledger.path


def test_read_as_written_and_taken_up_again(path):
    again = Ledger(path)
    again.append("reward", site="a")
    assert [entry["kind"] for entry in read(path)] == ["round"] * 5 + ["reward"]
    assert read(path)[3]["body"] == {"number": 3, "accuracy": 0.1 * 3}
    assert read(path)[-1]["hash"] == again.head
    assert len(again.of_kind("round")) == 5


@pytest.mark.parametrize("change", ["value", "removed", "moved", "added", "hash", "not json", "other fields"])
def test_tampering_is_found_with_its_line(path, change):
    lines = path.read_text().splitlines()
    if change == "value":
        lines[2] = lines[2].replace('"number":2', '"number":9')
    elif change == "removed":
        del lines[2]
    elif change == "moved":
        lines[2], lines[3] = lines[3], lines[2]
    elif change == "added":
        lines.insert(2, lines[1])
    elif change == "hash":
        entry = json.loads(lines[2])
        lines[2] = json.dumps(entry | {"hash": "0" * 64})
    elif change == "not json":
        lines[2] = "x"
    else:
        lines[2] = "{}"
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(FedsacError, match="line 3"):
        read(path)
    with pytest.raises(FedsacError, match="line 3"):
        Ledger(path)


def test_a_line_that_a_kill_cut_off_was_never_one(path):
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"seq": 5, "ki')
    assert len(read(path)) == 5
    Ledger(path).append("resumed")
    assert path.read_bytes().startswith(whole)
    assert [entry["kind"] for entry in read(path)][-1] == "resumed"


def test_a_newer_format_is_refused(path):
    lines = path.read_text().splitlines()
    lines[0] = lines[0].replace('"format_version":2', '"format_version":9')
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(FedsacError, match="update fedsac"):
        read(path)
