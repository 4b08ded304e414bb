"""Find the units of the networks named, or of all; of all, write docs/results/units.md and units.json, too."""

import sys

from benchmarks.zoo import environment, page


def main() -> None:
    environment.install()
    from benchmarks.zoo.networks import NETWORKS

    names = sys.argv[1:] or list(NETWORKS)
    for name in names:
        if name not in NETWORKS:
            sys.exit(f"no network {name!r}; there are {', '.join(NETWORKS)}")
    print(page.heading(), flush=True)
    found = []
    for name in names:
        found.append(environment.measured(name))
        print(page.line(found[-1]), flush=True)
    if not sys.argv[1:]:
        page.write(found)


main()
