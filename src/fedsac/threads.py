"""How long OpenMP's threads, on which torch computes, keep a core busy while they wait for each other.

A thread that has nothing to do first spins, then sleeps. GNU's OpenMP, which torch's wheels for Linux bring, spins
300,000 times: some milliseconds, longer than most of our operations take. That is fast on an idle machine; but where
other processes want the cores, threads spin where the threads that they wait for could run, and a run takes ten times
as long and more. 1000 times is enough to bridge the gaps between our operations, and costs others little
(docs/decisions.md). OpenMP reads its environment once, when torch loads it.

The OpenMP of LLVM and Intel (torch for macOS, or from conda) offers its core to others again and again while it spins,
and needs no setting.
"""

import logging
import os
import sys
import time
from pathlib import Path

SPINS = "1000"
LOOKS, SECONDS_BETWEEN_LOOKS = 5, 0.01


def spin_briefly() -> None:
    """Let torch's threads sleep soon, if torch is still to be loaded and the user has not said how they should wait."""
    if "torch" not in sys.modules and "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)


def warn_if_slow(threads: int) -> None:
    """Where torch was loaded before fedsac, its threads spin for long. Say so if others want the cores, too."""
    chosen = "OMP_WAIT_POLICY" in os.environ or "GOMP_SPINCOUNT" in os.environ
    cores = os.cpu_count() or 1
    if chosen or threads == 1 or (others := _running_elsewhere()) + threads <= cores:
        return
    # Logged, which a notebook shows, and not warned of, which would fail tests that take warnings for errors.
    logging.getLogger(__name__).warning(
        f"torch was loaded before fedsac, so its {threads} threads spin while they wait; with {others} more threads at "
        f"work on {cores} cores, this run may take many times as long: import fedsac before torch, or set threads=1"
    )


def _running_elsewhere() -> int:
    """How many threads beside this one run or want to, on the whole machine; 0 where Linux does not tell."""
    path, counts = Path("/proc/loadavg"), []
    if not path.exists():
        return 0
    for _ in range(LOOKS):  # what only comes up now and then does not count
        counts.append(int(path.read_text().split()[3].partition("/")[0]) - 1)
        time.sleep(SECONDS_BETWEEN_LOOKS)
    return max(min(counts), 0)
