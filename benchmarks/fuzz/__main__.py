"""`python -m benchmarks.fuzz`: damaged payloads for every reader of foreign bytes; only our own errors may come out.

python -m benchmarks.fuzz                   10,000 for each reader (minutes); a line on each
python -m benchmarks.fuzz --number 500 --only model ledger
python -m benchmarks.fuzz --page docs/results/fuzz.md
"""

import argparse
import sys
import tempfile
from pathlib import Path

import torch

from benchmarks.fuzz.readers import readers
from benchmarks.fuzz.trying import HANGS_AFTER_SECONDS, MEGABYTES, Tried, tried
from benchmarks.studies.tables import markdown
from fedsac.atomic import write_atomic

AT_ONCE = 500  # payloads in one process
INTRODUCTION = f"""\
# Damaged payloads

    python -m benchmarks.fuzz --page docs/results/fuzz.md

Every reader of bytes that come from elsewhere, and a sound payload of each damaged in many ways: bits, parts cut out,
doubled or moved, other numbers, what breaks parsers. *Read*: the damage did not matter, or what it said was as sound.
*Refused*: a `FedsacError` of one line. *Fell over*: another exception, more than {HANGS_AFTER_SECONDS} seconds for one
payload, or more than {MEGABYTES} MiB of memory beside what the process began with. *Grown by*: the most that the
resident memory of a process rose by while it read {AT_ONCE} of them, one after the other. A damaged checkpoint is
noticed and passed over, and its run goes on from the one before. "Anew": damaged by somebody who can write the hashes
and signatures, too.
"""


def main() -> int:
    command = argparse.ArgumentParser(prog="python -m benchmarks.fuzz", description=__doc__.split("\n")[0])
    command.add_argument("--number", type=int, default=10_000, help="mutations of each reader's payload (10,000)")
    command.add_argument("--only", nargs="*", default=(), help="readers whose names begin so")
    command.add_argument("--page", type=Path, help="a Markdown file for the table")
    chosen = command.parse_args()
    torch.set_num_threads(1)
    found: dict[str, list[Tried]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for reader in readers(Path(folder)):
            if chosen.only and not reader.name.startswith(tuple(chosen.only)):
                continue
            parts = [
                tried(reader, range(at, min(at + AT_ONCE, chosen.number))) for at in range(0, chosen.number, AT_ONCE)
            ]
            found[reader.name] = parts
            read, refused, grown = _counts(parts)
            print(f"{reader.name:26} {read:6} read {refused:6} refused {grown:4} MiB", flush=True)
            for fell in [part.fell for part in parts if part.fell][:3]:
                print(f"  FELL OVER: {fell}")
    print(f"limit: {MEGABYTES} MiB beside what the process began with")
    if chosen.page:
        write_atomic(chosen.page, _page(found, chosen.number).encode())
    return int(any(part.fell for parts in found.values() for part in parts))


def _counts(parts: list[Tried]) -> tuple[int, int, int]:
    """How many payloads were read and refused, and the most MiB that a process grew by."""
    return sum(p.read for p in parts), sum(p.refused for p in parts), max(p.grown for p in parts) >> 10


def _page(found: dict[str, list[Tried]], number: int) -> str:
    rows = []
    for name, parts in found.items():
        read, refused, grown = _counts(parts)
        fell = sum(bool(part.fell) for part in parts)
        rows.append([name, str(number), str(read), str(refused), str(fell), str(grown)])
    head = ("reader", "payloads", "read", "refused", "fell over", "grown by, MiB")
    return f"{INTRODUCTION}\n{markdown(head, rows)}\n"


if __name__ == "__main__":
    sys.exit(main())
