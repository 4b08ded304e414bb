"""The default `fedsac run` alone, and two at once: how much two processes on one machine disturb each other.

With what fedsac sets for OpenMP (`fedsac/threads.py`), and without: torch is then loaded first, so that it comes too
late. Whatever the environment says of OpenMP is left out, so that threads are as many as by default.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time

from benchmarks.timing import show

ROUNDS, REPETITIONS = 100, 3
TOGETHER, ALONE = 2.4, 1.1  # how many times as long two at once may take, and one with the setting as one without
SCRIPTS = {
    "with": "from fedsac.cli import main; main()",
    "without": "import torch; from fedsac.cli import main; main()",
}


def seconds(script: str, copies: int) -> float:
    """From the start of so many runs until the last of them has ended."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "GOMP_", "KMP_"))}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", script, "run", "--rounds", str(ROUNDS), "--out"]
        start = time.perf_counter()
        runs = [
            subprocess.Popen(
                [*command, f"{folder}/{i}"], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            for i in range(copies)
        ]
        statuses = [run.wait() for run in runs]
        if any(statuses):
            sys.exit("a run failed; try: fedsac run")
        return time.perf_counter() - start


def main() -> None:
    taken: dict[tuple[str, int], list[float]] = {(name, copies): [] for copies in (1, 2) for name in SCRIPTS}
    for _ in range(REPETITIONS):
        for (name, copies), own in taken.items():
            own.append(seconds(SCRIPTS[name], copies))
    rows = []
    for name in SCRIPTS:
        alone, both = taken[name, 1], taken[name, 2]
        one, two = statistics.median(alone), statistics.median(both)
        rows.append(
            [
                name,
                _range(alone),
                _range(both),
                f"{two / one:.2f}x",
                f"{one / statistics.median(taken['without', 1]):.2f}x",
            ]
        )
    title = (
        f"fedsac run, {ROUNDS} rounds, {os.cpu_count()} cores: seconds, median of {REPETITIONS} (range); "
        f"at most {TOGETHER}x and {ALONE}x are allowed"
    )
    show(title, ["OpenMP's setting", "alone", "two at once", "two / one", "alone / without"], rows)


def _range(own: list[float]) -> str:
    return f"{statistics.median(own):.1f} ({min(own):.1f} to {max(own):.1f})"
