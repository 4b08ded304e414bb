"""Run the benchmarks named and print a table each; by default all but `peers`, which installs other libraries."""

import sys

from benchmarks import estimates, growth, importance, rounds, startup, training
from benchmarks.peers import compare

BENCHMARKS = {
    "training": training.main,
    "importance": importance.main,
    "rounds": rounds.main,
    "estimates": estimates.main,
    "growth": growth.main,
    "startup": startup.main,
    "peers": compare.main,
}


def main() -> None:
    names = sys.argv[1:] or [name for name in BENCHMARKS if name != "peers"]
    for name in names:
        if name not in BENCHMARKS:
            sys.exit(f"no benchmark {name!r}; there are {', '.join(BENCHMARKS)}")
    for name in names:
        BENCHMARKS[name]()


main()
