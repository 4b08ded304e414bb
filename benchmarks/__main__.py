"""Run the benchmarks named (all of them by default) and print a table each."""

import sys

from benchmarks import importance, training

BENCHMARKS = {"training": training.main, "importance": importance.main}


def main() -> None:
    names = sys.argv[1:] or list(BENCHMARKS)
    for name in names:
        if name not in BENCHMARKS:
            sys.exit(f"no benchmark {name!r}; there are {', '.join(BENCHMARKS)}")
    for name in names:
        BENCHMARKS[name]()


main()
