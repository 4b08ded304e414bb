"""`python -m benchmarks.unit_importance OUT`: how well first-order importance ranks the units of a network against
exact importance (OUT/unit-importance.json), and what kinds of importance and of batch norm's statistics lead to in
whole runs (OUT/network-runs.json).

`python -m benchmarks.unit_importance page` writes the tables of docs/any-network.md from docs/results/*.json.
"""

import argparse
import json
import multiprocessing
import platform
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from benchmarks.studies.raw import as_text
from fedsac.atomic import write_atomic

Job = tuple[Callable[..., Iterable[dict[str, Any]]], tuple[Any, ...]]


def main() -> None:
    command = argparse.ArgumentParser(prog="python -m benchmarks.unit_importance", description=__doc__.split("\n\n")[0])
    command.add_argument("out", type=Path, metavar="OUT|page")
    command.add_argument("--seeds", type=int, default=3)
    command.add_argument("--workers", type=int, default=1, help="processes (then times are those of busy cores)")
    chosen = command.parse_args()
    if str(chosen.out) == "page":
        from benchmarks.unit_importance.page import write

        print(write())
        return
    from benchmarks.unit_importance import ranks, runs

    seeds = range(chosen.seeds)
    studies: dict[str, list[Job]] = {
        "unit-importance": [(ranks.measured, (name, seed)) for name in ranks.NETWORKS for seed in seeds],
        "network-runs": [
            *((runs.by_importance, (name, seed)) for name in runs.NETWORKS for seed in seeds),
            *((runs.by_statistics, (seed,)) for seed in seeds),
        ],
    }
    chosen.out.mkdir(parents=True, exist_ok=True)
    for study, jobs in studies.items():
        rows = list(_rows(jobs, chosen.workers))
        head = {"format_version": 1, "python": platform.python_version()}  # whose documentation the text is
        write_atomic(chosen.out / f"{study}.json", as_text(head, rows).encode())
        print(chosen.out / f"{study}.json", flush=True)


def _rows(jobs: list[Job], workers: int) -> Iterator[dict[str, Any]]:
    """What the jobs yield, in their order; told as it comes."""
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        futures = [pool.submit(_listed, *job) for job in jobs]
        for future in as_completed(futures):
            for row in future.result():
                print(json.dumps(row), file=sys.stderr, flush=True)
    for future in futures:
        yield from future.result()


def _listed(function: Callable[..., Iterable[dict[str, Any]]], arguments: tuple[Any, ...]) -> list[dict[str, Any]]:
    return list(function(*arguments))


if __name__ == "__main__":
    main()
