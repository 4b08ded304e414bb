"""kill -9 at any instant, then --resume: the same bytes as a run that nobody touched."""

import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tests.test_store import contents

pytestmark = pytest.mark.slow

SETTINGS = ["--rounds", "60", "--hidden", "64,64", "--standalone-steps", "300"]


def command(folder: Path) -> list[str]:
    return [sys.executable, "-m", "fedsac", "run", *SETTINGS, "--out", str(folder), "--json"]


def resume(folder: Path) -> None:
    again = [sys.executable, "-m", "fedsac", "run", "--resume", str(folder), "--json"]
    if not (folder / "config.toml").exists():  # killed before there was a run: the same command begins it
        again = command(folder)
    subprocess.run(again, check=True, capture_output=True)


@pytest.fixture(scope="module")
def untouched(tmp_path_factory):
    """A run from start to end, what it left, and how long it took."""
    folder = tmp_path_factory.mktemp("kills") / "untouched"
    start = time.monotonic()
    subprocess.run(command(folder), check=True, capture_output=True)
    return contents(folder), time.monotonic() - start


@pytest.mark.parametrize("number", range(15))
def test_killed_at_a_random_instant(number, untouched, tmp_path):
    expected, duration = untouched
    folder = tmp_path / "run"
    process = subprocess.Popen(command(folder), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    # The first run paid for cold caches, so stay within what it took.
    time.sleep(random.Random(number).uniform(0.05, 0.95) * duration)
    process.send_signal(signal.SIGKILL)
    process.wait()
    resume(folder)
    assert contents(folder) == expected


@pytest.mark.parametrize(
    "instant",
    [
        "before the log is synced",
        "before the checkpoint is synced",
        "before the checkpoint is renamed",
        "after the checkpoint is renamed",
        "before an old checkpoint is removed",
    ],
)
def test_killed_inside_a_commit(instant, untouched, tmp_path):
    folder = tmp_path / "run"
    script = textwrap.dedent(
        f"""
        import os, signal, sys
        from pathlib import Path
        from fedsac.cli import main
        from fedsac.runs.folder import Folder

        instant, inside, synced = {instant!r}, [], []
        commit, fsync, replace, unlink = Folder.commit, os.fsync, Path.replace, Path.unlink

        def die():
            os.kill(os.getpid(), signal.SIGKILL)

        def committing(self, checkpoint, record, seconds):
            if checkpoint.round == 23:
                inside.append(1)
            commit(self, checkpoint, record, seconds)

        def syncing(file):
            synced.append(1) if inside else None
            if (instant, len(synced)) in (("before the log is synced", 1), ("before the checkpoint is synced", 2)):
                die()
            fsync(file)

        def replacing(self, target):
            if inside and "round-000023" in str(target):
                if instant == "before the checkpoint is renamed":
                    die()
                replace(self, target)
                if instant == "after the checkpoint is renamed":
                    die()
                return
            replace(self, target)

        def unlinking(self, missing_ok=False):
            if inside and instant == "before an old checkpoint is removed" and "round-" in self.name:
                die()
            unlink(self, missing_ok)

        Folder.commit, os.fsync, Path.replace, Path.unlink = committing, syncing, replacing, unlinking
        sys.exit(main({command(folder)[3:]!r}))
        """
    )
    killed = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True)
    assert killed.returncode == -signal.SIGKILL
    newest = max(path.name for path in (folder / "checkpoints").glob("round-*.safetensors"))
    after = instant in ("after the checkpoint is renamed", "before an old checkpoint is removed")
    assert newest == f"round-0000{23 if after else 22}.safetensors"
    resume(folder)
    assert contents(folder) == untouched[0]
