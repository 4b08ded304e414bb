"""Is this tree slower than another? `python -m benchmarks.pairs BEFORE`, a commit or a folder with a checkout.

On a CPU: a whole round of FedSAC (training, aggregation, importance, evaluation) of ten clients with 2000 samples of
784 features, in 20 interleaved pairs of processes; on a GPU (`--device cuda`): 100 rounds of a comparison of all
methods, two seeds, on samples of CIFAR-10's shape, in three pairs; there each process makes the table three times and
its fastest counts, since a kernel launch waits for a host that others may be using. Shown: the ratio after / before of
every pair, its median and, from six pairs on, the median's 95 % interval (by order statistics).
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.same_numbers import ROOT, checkout

# Run by both trees, so it uses nothing but names that both have.
WORKER = """
TABLES = 3
import json, statistics, sys, tempfile, time
from pathlib import Path
import numpy as np
import torch
import fedsac
from fedsac import Config
try:
    from fedsac import Watcher
    from fedsac.runs.comparing import compare
except ImportError:
    from fedsac.federation import Watcher
    from fedsac.compare import compare

class Clock(Watcher):
    def __init__(self):
        self.times = []
    def round(self, *told):
        self.times.append(time.perf_counter())

data, device = sys.argv[1:]
if device == "cpu":
    clock = Clock()
    fedsac.run(Config(data=data, scene="iid", rounds=14, standalone_steps=1, local_steps=62), watcher=clock)
    gaps = [b - a for a, b in zip(clock.times, clock.times[1:])]
    print(json.dumps(statistics.median(gaps[2:])))
else:
    names = ["standalone", "fedavg", "qffl", "cffl", "cgsv", "fedave", "rffl", "iafl", "fedrac", "fedsac",
             "fedsac-no-allocation", "fedsac-no-aggregation", "fedsac-plus"]
    base = Config(data=data, scene="pow", rounds=100, eval_every=10, device=device, standalone_steps=200)
    with tempfile.TemporaryDirectory() as out:
        compare(base.replace(rounds=3), names, 2, Path(out) / "warm")
        took = []
        for i in range(TABLES):
            torch.cuda.synchronize()
            start = time.perf_counter()
            compare(base, names, 2, Path(out) / f"table{i}")
            torch.cuda.synchronize()
            took.append(time.perf_counter() - start)
        print(json.dumps(min(took)))
"""


def made_up(path: Path, features: int, samples: int) -> Path:
    """Images of ten classes that can be learned."""
    rng = np.random.default_rng(0)
    y = rng.integers(10, size=samples)
    centres = rng.integers(0, 256, size=(10, features))
    x = np.clip(centres[y] + rng.normal(0, 80, size=(samples, features)), 0, 255).astype(np.uint8)
    np.savez(path, x=x, y=y)
    return path


def seconds(tree: Path, data: Path, device: str) -> float:
    env = os.environ | {"PYTHONPATH": str(tree / "src")}
    command = [sys.executable, "-c", WORKER, str(data), device]
    done = subprocess.run(command, env=env, cwd=tree, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{tree}: {done.stderr[-2000:]}")
    return float(json.loads(done.stdout.splitlines()[-1]))


def median_interval(values: list[float]) -> tuple[float, float]:
    """The order statistics between which the median lies with at least 95 %."""
    n, ordered = len(values), sorted(values)
    outside = 0.0
    for k in range(n // 2):
        outside += 2 * math.comb(n, k) / 2**n
        if outside > 0.05:
            return ordered[max(k - 1, 0)], ordered[n - max(k, 1)]
    return ordered[0], ordered[-1]


def main(before: str, device: str = "cpu", pairs: int | None = None) -> int:
    count = pairs or (20 if device == "cpu" else 3)
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(before).resolve() if Path(before).is_dir() else checkout(before, Path(folder) / "before")
        shape = (784, 25000) if device == "cpu" else (3072, 30000)
        data = made_up(Path(folder) / "made-up.npz", *shape)
        ratios = []
        for i in range(count):
            trees = [tree, ROOT] if i % 2 == 0 else [ROOT, tree]
            took = {each: seconds(each, data, device) for each in trees}
            ratios.append(took[ROOT] / took[tree])
            print(
                f"pair {i + 1}: before {took[tree]:.3f} s, after {took[ROOT]:.3f} s, ratio {ratios[-1]:.3f}", flush=True
            )
    low, high = median_interval(ratios)
    interval = f", 95 % interval of the median {low:.3f} to {high:.3f}" if count >= 6 else ""
    print(f"after / before: median {np.median(ratios):.3f}{interval}, largest {max(ratios):.3f}")
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", metavar="BEFORE")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--pairs", type=int)
    chosen = parser.parse_args()
    main(chosen.before, chosen.device, chosen.pairs)
