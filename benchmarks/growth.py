"""How time and memory grow: with clients, neurons, validation samples and rounds.

Each case runs in a process of its own, so that its peak memory is its own. What was measured is written to
.bench/growth.json, from which `python -m benchmarks.chart` draws curves."""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.timing import show


def clients(number: int) -> float:
    """Seconds of a FedSAC round on the digits, dealt out evenly."""
    return _round(number, hidden=(200, 200), samples=0)


def small_clients(number: int) -> float:
    """The same for a network of 64 neurons, on made-up data of three samples a client."""
    return _round(number, hidden=(32, 32), samples=3 * number)


def neurons(number: int) -> float:
    """Seconds of exact importance on 1000 samples of 64 features, one hidden layer."""
    return _importance((64, number, 10), 1000, exact=True)


def neurons_first_order(number: int) -> float:
    return _importance((64, number, 10), 1000, exact=False)


def two_layers(number: int) -> float:
    """The same with the neurons in two hidden layers."""
    return _importance((64, number // 2, number // 2, 10), 1000, exact=True)


def validation(number: int) -> float:
    """Seconds of exact importance of 400 neurons at 784 features."""
    return _importance((784, 200, 200, 10), number, exact=True)


def rounds(number: int) -> float:
    """Seconds of a round in a run of so many."""
    return _round(10, hidden=(200, 200), samples=0, rounds=number)


def _round(number: int, hidden: tuple[int, ...], samples: int, rounds: int = 5) -> float:
    from fedsac import Config, RunInfo, Watcher, run_together
    from fedsac.data.dataset import DataSet
    from fedsac.data.split import split

    config = Config(scene="iid", clients=number, hidden=hidden, rounds=rounds, eval_every=rounds, standalone_steps=1)
    splits = None
    if samples:
        draw, y = np.random.default_rng(0), np.arange(samples * 3 // 2) % 10
        x = draw.normal(size=(10, 64))[y] + 2 * draw.normal(size=(len(y), 64))
        names = tuple(map(str, range(10)))
        splits = [split(DataSet("made up", x, y, names, np.arange(64), 1.0), "iid", number, None, 0)]
    moments: list[float] = []

    class Watching(Watcher):
        def round(self, run: RunInfo, record: dict[str, Any]) -> None:
            moments.append(time.perf_counter())

    run_together([config], splits=splits, watcher=Watching())
    return (moments[-2] - moments[0]) / (len(moments) - 2)  # the last one evaluates, too


def _importance(sizes: tuple[int, ...], samples: int, exact: bool) -> float:
    import torch

    from fedsac.compute.importance import exact_importance, first_order_importance
    from fedsac.core.units import Layout
    from fedsac.models.mlp import initial_weights
    from fedsac.models.network import Network

    layout = Layout(sizes)
    network = Network(layout, initial_weights(layout, 0, torch.float32))
    x, y = torch.randn(samples, sizes[0]), torch.randint(10, (samples,))
    measure = exact_importance if exact else first_order_importance
    measure(network, x[:100], y[:100])
    start = time.perf_counter()
    measure(network, x, y)
    return time.perf_counter() - start


WRITTEN = Path(__file__).resolve().parents[1] / ".bench" / "growth.json"

CASES: dict[str, tuple[Callable[[int], float], tuple[int, ...], str]] = {
    "clients": (clients, (10, 100, 1000), "a round, by clients"),
    "small_clients": (small_clients, (100, 1000, 10_000), "a round, by small clients"),
    "neurons": (neurons, (400, 4000, 20_000, 100_000), "exact importance, one hidden layer"),
    "two_layers": (two_layers, (400, 1000, 2000, 4000), "exact importance, two hidden layers"),
    "neurons_first_order": (neurons_first_order, (400, 4000, 20_000, 100_000), "first-order importance"),
    "validation": (validation, (1000, 5000, 20_000, 50_000), "exact importance, by samples of V"),
    "rounds": (rounds, (20, 100, 400), "a round, by rounds"),
}


def highest_memory() -> float:
    """Megabytes that this process has held at the most. Linux's own count: what getrusage says begins with what the
    parent held when it started this process."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measured(name: str, number: int) -> tuple[float, float]:
    """Seconds, and the process's peak memory in megabytes."""
    command = [sys.executable, "-m", "benchmarks.growth", name, str(number)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    return found["seconds"], found["megabytes"]


def main() -> None:
    rows, found = [], []
    for name, (_, numbers, what) in CASES.items():
        before = None
        for number in numbers:
            seconds, megabytes = measured(name, number)
            growth = "" if before is None else f"{seconds / before[1]:.1f}x for {number / before[0]:g}x"
            rows.append([what, f"{number:,}", f"{seconds * 1e3:.0f} ms", growth, f"{megabytes:.0f} MB"])
            before = number, seconds
            found.append({"what": what, "case": name, "number": number, "seconds": seconds, "megabytes": megabytes})
    WRITTEN.parent.mkdir(exist_ok=True)
    WRITTEN.write_text(json.dumps(found, indent=1) + "\n")
    show("Growth", ["what", "number", "time", "growth", "peak memory"], rows)


if __name__ == "__main__":
    case, size = sys.argv[1], int(sys.argv[2])
    took = CASES[case][0](size)
    print(json.dumps({"seconds": took, "megabytes": highest_memory()}))
