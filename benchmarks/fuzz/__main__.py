"""`python -m benchmarks.fuzz`: damaged payloads for every reader of foreign bytes; only our own errors may come out.

python -m benchmarks.fuzz                   10,000 for each reader (minutes); a line on each
python -m benchmarks.fuzz --number 500 --only model ledger
"""

import argparse
import sys
import tempfile
from pathlib import Path

import torch

from benchmarks.fuzz.readers import readers
from benchmarks.fuzz.trying import MEGABYTES, Tried, tried

AT_ONCE = 500  # payloads in one process


def main() -> int:
    command = argparse.ArgumentParser(prog="python -m benchmarks.fuzz", description=__doc__.split("\n")[0])
    command.add_argument("--number", type=int, default=10_000, help="mutations of each reader's payload (10,000)")
    command.add_argument("--only", nargs="*", default=(), help="readers whose names begin so")
    chosen = command.parse_args()
    torch.set_num_threads(1)
    worst = 0
    with tempfile.TemporaryDirectory() as folder:
        for reader in readers(Path(folder)):
            if chosen.only and not reader.name.startswith(tuple(chosen.only)):
                continue
            parts = [
                tried(reader, range(at, min(at + AT_ONCE, chosen.number))) for at in range(0, chosen.number, AT_ONCE)
            ]
            total = Tried(*(sum(column) for column in list(zip(*parts, strict=True))[:2]), max(p.grown for p in parts))
            worst = max(worst, total.grown)
            print(
                f"{reader.name:26} {total.read:6} read {total.refused:6} refused {total.grown >> 10:4} MiB", flush=True
            )
            for fell in [part.fell for part in parts if part.fell][:3]:
                print(f"  FELL OVER: {fell}")
                worst = 1 << 40
    print(f"limit: {MEGABYTES} MiB beside what the process began with")
    return int(worst == 1 << 40)


if __name__ == "__main__":
    sys.exit(main())
