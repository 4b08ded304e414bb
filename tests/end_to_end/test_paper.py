"""`fedsac paper` on real data, as a process: killed and taken up again, and everything at once."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.slow

KILLS = (4.0, 9.0, 14.0)  # seconds after a start: while data is read, while clients stand alone, in the rounds


def started(real_data, out, *targets, **options):
    flags = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "fedsac", "paper", *targets, "--quick", "--device", "cpu", *flags]
    command += ["--data-dir", str(real_data), "--out", str(out)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finished(process):
    out, error = process.communicate(timeout=1200)
    assert process.returncode == 0, error
    return out


def found(out):
    """Everything that is written down, less how long it took."""
    results = json.loads((out / "results.json").read_text())
    assert results["made"].pop("seconds") > 0
    page = [line for line in (out / "README.md").read_text().splitlines() if not line.startswith("- seconds")]
    return results, page, {path.name: path.read_bytes() for path in sorted(out.glob("*.csv"))}


def test_killed_and_taken_up_it_gives_the_same_tables(real_data, tmp_path):
    whole, pieces = tmp_path / "whole", tmp_path / "pieces"
    said = finished(started(real_data, whole, "table7", rounds=5))
    for i, seconds in enumerate(KILLS):
        process = started(real_data, pieces, "table7", rounds=5)
        time.sleep(seconds)
        os.kill(process.pid, signal.SIGKILL if i else signal.SIGTERM)
        process.communicate(timeout=60)
        assert process.returncode != 0 or seconds == KILLS[-1]
    again = finished(started(real_data, pieces, "table7", rounds=5))
    assert found(pieces) == found(whole)
    assert again.replace(str(pieces), "") == said.replace(str(whole), "")


def test_everything_at_once(real_data, tmp_path):
    """All tables, figures and theorems in one small piece, and nothing is run twice."""
    said = finished(started(real_data, tmp_path, "all", rounds=1))
    for number in range(1, 10):
        assert f"Table {number} (quick)" in said
        assert (tmp_path / f"table{number}.csv").stat().st_size > 100
    assert "Theorem" in said and "Theorem" in (tmp_path / "theorems.md").read_text()
    assert json.loads((tmp_path / "theorems.json").read_text())["quick"]
    figures = {path.stem.split("-")[0].rstrip("ab") for path in (tmp_path / "figures").glob("*.svg")}
    assert figures == {f"figure{number}" for number in (1, 3, 4, 5, 6)}
    assert len(list((tmp_path / "figures").glob("*.pdf"))) == len(list((tmp_path / "figures").glob("*.svg")))
    before = time.time()
    again = finished(started(real_data, tmp_path, "table1", "table6", rounds=1))
    assert "Table 6 (quick)" in again
    assert not [path for path in (tmp_path / "runs").rglob("rounds.jsonl") if path.stat().st_mtime > before]
