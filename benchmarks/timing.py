"""Interleaved repetitions: whatever disturbs the machine disturbs all candidates alike."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Timed:
    """Seconds of one candidate's repetitions."""

    seconds: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def spread(self) -> str:
        return f"{min(self.seconds) * 1e3:.1f} to {max(self.seconds) * 1e3:.1f}"


def interleaved(candidates: Mapping[str, Callable[[], object]], repetitions: int) -> dict[str, Timed]:
    """Time each candidate `repetitions` times, in turn, after one call each to warm up."""
    for candidate in candidates.values():
        candidate()
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(repetitions):
        for name, candidate in candidates.items():
            start = time.perf_counter()
            candidate()
            seconds[name].append(time.perf_counter() - start)
    return {name: Timed(values) for name, values in seconds.items()}


PEAK_SIZE = 2048


def peak() -> Callable[[], object]:
    """One large matrix product: `PEAK_OPERATIONS` over its time is what this machine can do."""
    a = torch.randn(PEAK_SIZE, PEAK_SIZE)
    out = torch.empty_like(a)
    return lambda: torch.mm(a, a, out=out)


PEAK_OPERATIONS = 2 * PEAK_SIZE**3

MEMORY_SIZE = 2**25  # numbers of 4 bytes: four times what a large cache holds


def memory() -> Callable[[], object]:
    """a = b + 2 c over arrays that no cache holds: `MEMORY_BYTES` over its time is the memory's bandwidth."""
    a, b, c = (torch.ones(MEMORY_SIZE) for _ in range(3))
    return lambda: torch.add(b, c, alpha=2, out=a)


MEMORY_BYTES = 3 * 4 * MEMORY_SIZE  # two arrays read, one written; that a cache may read the third first is not counted


def show(title: str, head: list[str], rows: list[list[str]]) -> None:
    from rich.console import Console  # here: a machine that only computes may not have it
    from rich.table import Table

    table = Table(title=title)
    for i, name in enumerate(head):
        table.add_column(name, justify="right" if i else "left")
    for row in rows:
        table.add_row(*row)
    Console(highlight=False).print(table)
