"""Run the benchmarks named (all of them by default) and print a table each."""

import sys

from benchmarks import estimates, growth, importance, rounds, training

BENCHMARKS = {
    "training": training.main,
    "importance": importance.main,
    "rounds": rounds.main,
    "estimates": estimates.main,
    "growth": growth.main,
}


def main() -> None:
    names = sys.argv[1:] or list(BENCHMARKS)
    for name in names:
        if name not in BENCHMARKS:
            sys.exit(f"no benchmark {name!r}; there are {', '.join(BENCHMARKS)}")
    for name in names:
        BENCHMARKS[name]()


main()
