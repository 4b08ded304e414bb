"""A sweep of five betas with five seeds on digits, against five comparisons of five seeds, one for each beta: as
processes of their own, from start to end, pages included."""

import statistics
import subprocess
import sys
import tempfile
import time

from benchmarks.timing import show

BETAS, SEEDS, ROUNDS, REPETITIONS = (1, 2, 5, 10, 20), 5, 100, 3
ALLOWED = 0.8  # of the time of the comparisons


def seconds(*arguments: str) -> float:
    command = [sys.executable, "-m", "fedsac", *arguments, "--seeds", str(SEEDS), "--rounds", str(ROUNDS)]
    start = time.perf_counter()
    if subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode:
        sys.exit(f"failed: {' '.join(command)}")
    return time.perf_counter() - start


def once(number: int) -> tuple[float, float]:
    """Of the sweep, and of the comparisons, in turn."""
    with tempfile.TemporaryDirectory() as folder:
        swept = seconds("sweep", "--set", f"beta={','.join(map(str, BETAS))}", "--out", f"{folder}/sweep{number}")
        apart = [
            seconds("compare", "--methods", "fedsac", "--beta", str(beta), "--out", f"{folder}/{number}-{beta}")
            for beta in BETAS
        ]
    return swept, sum(apart)


def main() -> None:
    taken = [once(number) for number in range(REPETITIONS)]
    swept, apart = (statistics.median(own) for own in zip(*taken, strict=True))
    ratios = [one / other for one, other in taken]
    row = [f"{swept:.1f}", f"{apart:.1f}", f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"]
    title = (
        f"{len(BETAS)} betas, {SEEDS} seeds, {ROUNDS} rounds on digits: seconds, median of {REPETITIONS}; at most "
        f"{ALLOWED} is allowed"
    )
    show(title, ["sweep", "comparisons", "ratio"], [row])
