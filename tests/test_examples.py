"""The programs in examples/ run, at a small size."""

import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


@pytest.mark.parametrize(("name", "rounds", "clients"), [("images", "2", 4), ("text_lora", "1", 3)])
def test_an_example(name, rounds, clients, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", [name, rounds])
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("client"))
    rows = [line.split() for line in lines[head + 1 : head + 1 + clients]]
    assert [row[0] for row in rows] == [str(i) for i in range(clients)]
    units, rewards = [int(row[4]) for row in rows], [float(row[3]) for row in rows]
    whole = 252 if name == "images" else 32
    assert max(units) == whole and min(units) >= 4  # one of each of four groups
    assert all(0 <= reward <= 1 for reward in rewards)


def test_every_example_is_run():
    """healthcare by tests/test_healthcare.py."""
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {"images", "text_lora", "healthcare"}
