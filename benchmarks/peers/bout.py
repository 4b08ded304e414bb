"""What each peer's script has in common: its arguments, and the line it prints in the end."""

import json
import sys
from dataclasses import dataclass
from importlib.metadata import version
from itertools import pairwise

WARM_UP, ROUNDS = 2, 4  # of one process; only the rounds after the warm-up count


@dataclass(frozen=True)
class Bout:
    """`workers` train clients at the same time, each with `threads` threads of torch."""

    features: int
    workers: int
    threads: int

    def __str__(self) -> str:
        return f"{self.workers} x {self.threads} thread{'s' if self.threads > 1 else ''}"

    @classmethod
    def asked(cls) -> "Bout":
        return cls(*map(int, sys.argv[1:4]))

    def arguments(self) -> list[str]:
        return [str(self.features), str(self.workers), str(self.threads)]


def between(moments: list[float]) -> list[float]:
    """Seconds from each moment to the next."""
    return [after - before for before, after in pairwise(moments)]


def tell(package: str, seconds: list[float], steps: int, expected: int) -> None:
    """The seconds of all rounds, as the last line of the output. A peer that took other steps is not comparable."""
    rounds = WARM_UP + ROUNDS
    if len(seconds) != rounds or steps != rounds * expected:
        sys.exit(f"{len(seconds)} rounds with {steps} steps, not {rounds} with {expected} each")
    print(json.dumps({"version": version(package), "seconds": seconds[WARM_UP:]}), flush=True)
