"""Run the benchmarks named and print a table each; by default all but `peers`, which installs other libraries, and
`together` and `sweep`, which take a quarter of an hour each and a machine with nothing else to do."""

import sys

from benchmarks import estimates, growth, importance, nested, rounds, startup, sweep, together, training
from benchmarks.peers import compare

BENCHMARKS = {
    "training": training.main,
    "importance": importance.main,
    "nested": nested.main,
    "rounds": rounds.main,
    "estimates": estimates.main,
    "growth": growth.main,
    "startup": startup.main,
    "sweep": sweep.main,
    "together": together.main,
    "peers": compare.main,
}
ONLY_BY_NAME = ("sweep", "together", "peers")


def main() -> None:
    names = sys.argv[1:] or [name for name in BENCHMARKS if name not in ONLY_BY_NAME]
    for name in names:
        if name not in BENCHMARKS:
            sys.exit(f"no benchmark {name!r}; there are {', '.join(BENCHMARKS)}")
    for name in names:
        BENCHMARKS[name]()


main()
