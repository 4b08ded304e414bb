"""`--workers ray:2`: two processes that Ray starts here. The same numbers, and nothing is lost by an interrupt or a
kill."""

import json
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.test_begun_before import close

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install 'fedsac[ray]'"),
]

SWEEP = ["sweep", "--set", "beta=1,5", "--seeds", "2", "--clients", "4", "--hidden", "32", "--dtype", "float64"]
ROUNDS = ["--rounds", "500", "--eval-every", "50", "--standalone-steps", "100"]
SECONDS = 180


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "fedsac", *map(str, arguments)]


def done(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), capture_output=True, text=True, timeout=SECONDS)


@pytest.fixture(scope="module")
def here(tmp_path_factory) -> Path:
    """The sweep in one process."""
    folder = tmp_path_factory.mktemp("workers") / "here"
    assert done(*SWEEP, *ROUNDS, "--out", folder).returncode == 0
    return folder


def same(one: Path, other: Path) -> None:
    """The same files; every number to 1e-9, for the stacks are others."""
    names = [
        sorted(str(p.relative_to(at)) for p in at.rglob("*") if p.is_file() and "checkpoints" not in p.parts)
        for at in (one, other)
    ]
    assert names[0] == names[1]
    for path in one.rglob("*.json"):
        if path.name != "timing.json":
            assert close(json.loads(path.read_text()), json.loads((other / path.relative_to(one)).read_text())), path
    for path in one.rglob("rounds.jsonl"):
        ours, theirs = (
            [json.loads(line) for line in (at / path.relative_to(one)).read_text().splitlines()] for at in (one, other)
        )
        assert close(ours, theirs)


def begun(folder: Path, process: subprocess.Popen[str]) -> None:
    """Wait until the rounds of every run have begun, and a little longer."""
    end = time.monotonic() + SECONDS
    while process.poll() is None and time.monotonic() < end:
        if len({path.parent for path in folder.glob("*/checkpoints/*")}) == 4:
            time.sleep(0.5)
            return
        time.sleep(0.02)
    pytest.fail(f"it never began: {process.communicate()}")


def workers_of(pid: int) -> list[int]:
    """The processes in which Ray trains, below this one."""
    parents, names = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                own = int(entry.name)
                parents[own] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                names[own] = (entry / "cmdline").read_text()
            except OSError:
                continue

    def below(own: int) -> bool:
        while own in parents:
            own = parents[own]
            if own == pid:
                return True
        return False

    return [own for own, name in names.items() if name.startswith("ray::_work") and below(own)]


def test_the_same_numbers(here, tmp_path):
    found = done(*SWEEP, *ROUNDS, "--out", tmp_path / "spread", "--workers", "ray:2")
    assert found.returncode == 0 and "2 workers by Ray, of 2 and 2 runs" in found.stderr
    same(here, tmp_path / "spread")


def test_interrupted_and_resumed(here, tmp_path):
    """By SIGTERM, for which Ray has a handler of its own; Ctrl-C goes the same way."""
    folder = tmp_path / "cut"
    process = subprocess.Popen(
        command(*SWEEP, *ROUNDS, "--out", folder, "--workers", "ray:2"), stderr=subprocess.PIPE, text=True
    )
    begun(folder, process)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=SECONDS)
    assert process.returncode == 130 and f"go on with: fedsac sweep --resume {folder}" in said, said
    assert "Traceback" not in said
    rounds = [len(log.read_text().splitlines()) for log in folder.glob("*/rounds.jsonl")]
    assert len(rounds) == 4 and min(rounds) > 0 and not list(folder.glob("*/summary.json"))
    assert done("sweep", "--resume", folder, "--workers", "ray:2").returncode == 0
    same(here, folder)


def test_a_worker_that_is_killed_is_started_again(here, tmp_path):
    folder = tmp_path / "killed"
    process = subprocess.Popen(
        command(*SWEEP, *ROUNDS, "--out", folder, "--workers", "ray:2"), stderr=subprocess.PIPE, text=True
    )
    begun(folder, process)
    workers = workers_of(process.pid)
    assert len(workers) == 2
    os.kill(workers[0], signal.SIGKILL)
    _, said = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, said
    same(here, folder)


def test_an_error_in_a_worker_is_one_line(tmp_path):
    """What only a worker finds out, since it reads the data."""
    found = done(*SWEEP, "--data", tmp_path / "none.csv", "--out", tmp_path / "out", "--workers", "ray:2")
    assert found.returncode == 2 and "none.csv" in found.stderr and "Traceback" not in found.stderr
    assert not (tmp_path / "out").exists()
