"""A virtual environment for each peer, below .bench: made once, with the project's own constraints, and reused."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.bout import Bout

HOME = Path(__file__).resolve().parents[2]
FOLDER = HOME / ".bench"
INSTALL_LIMIT, BOUT_LIMIT = 1200, 120  # seconds
TRIES = 3  # of a bout: torch's workers abort now and then as they start or end


class Missing(Exception):
    """Why there is nothing to measure, in one line."""


class Late(Missing):
    """A limit has passed."""


@dataclass(frozen=True)
class Peer:
    """`name` is its folder below .bench and its script in this package."""

    name: str
    title: str
    requirement: str

    def install(self) -> None:
        """torch comes with the constraint of our own environment, so that all run on the same one."""
        ready = self.folder / ".ready"
        if ready.exists():
            return
        _run([sys.executable, "-m", "venv", "--clear", str(self.folder)], INSTALL_LIMIT)
        pip = [self.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*pip, "--constraint", str(HOME / "constraints.txt"), self.requirement, "torch"], INSTALL_LIMIT)
        ready.touch()

    def rounds(self, bout: Bout) -> tuple[str, list[float]]:
        """The peer's version, and the seconds of each round of one process."""
        launched = [self.python]
        if self.name == "pfl" and bout.workers > 1:
            launched += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={bout.workers}"]
        command = [*launched, "-m", f"benchmarks.peers.{self.name}", *bout.arguments()]
        for left in reversed(range(TRIES)):
            try:
                return _told(_run(command, BOUT_LIMIT, str(bout.threads)))
            except Missing as reason:
                if not left or isinstance(reason, Late):
                    raise
        raise AssertionError("the last try returns or raises")

    @property
    def folder(self) -> Path:
        return FOLDER / self.name

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")


PEERS = (
    Peer("flower", "Flower simulation", "flwr[simulation]"),
    Peer("flgo", "FLGo", "flgo"),
    Peer("pfl", "pfl", "pfl"),
)


def _told(said: str) -> tuple[str, list[float]]:
    lines = [line for line in said.splitlines() if line.startswith("{")]
    if not lines:
        raise Missing("it printed no times")
    told = json.loads(lines[-1])
    return told["version"], told["seconds"]


def _run(command: list[str], limit: int, threads: str = "") -> str:
    """What the command printed. It runs in a folder of its own, where peers leave what they like."""
    env = os.environ | {"PYTHONPATH": str(HOME), "CUDA_VISIBLE_DEVICES": ""}
    env |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    if threads:
        env["OMP_NUM_THREADS"] = threads
    with tempfile.TemporaryDirectory() as scratch:
        process = subprocess.Popen(
            command,
            cwd=scratch,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            out, err = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            raise Late(f"not done after {limit} s") from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # with its children
                process.communicate()
    if process.returncode:
        raise Missing(_reason(err) or f"it ended with {process.returncode}")
    return out


def _reason(err: str) -> str:
    """The last line that names an error, or else the last line."""
    lines = [line.strip() for line in err.splitlines() if any(map(str.isalpha, line))]
    named = [line for line in lines if line.startswith("ERROR:") or "Error: " in line]
    return (named or lines or [""])[-1][:200]
