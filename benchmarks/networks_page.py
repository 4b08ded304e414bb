"""`python -m benchmarks.networks_page` writes a table of docs/any-network.md from docs/results/network-speed.json: the
lines that `python -m benchmarks.networks` printed."""

import json
from pathlib import Path

from benchmarks.security.marked import write_between
from benchmarks.studies.tables import markdown

DOCS = Path(__file__).parents[1] / "docs"
HEAD = ("network", "precision", "members", "one by one, ms", "stack, ms", "times as fast", "MB a member")
MORE = ("half of the units: time", "bytes", "of memory's limit", "of float32's limit")


def write(docs: Path = DOCS) -> Path:
    runs = json.loads((docs / "results" / "network-speed.json").read_text())["runs"]
    rows = []
    for run in runs:
        each, share = run["milliseconds a model-step"], run["share of the limit"]
        rows.append(
            [
                f"`{run['network']}`",
                run["precision"] + (" *" if run["client of MPS"] else ""),
                str(run["members"]),
                f"{each['one by one']:.2f}",
                f"{each['stack']:.3f}",
                f"{run['times as fast as one by one']:.1f}",
                f"{run['peak GPU megabytes a member']:.0f}",
                f"{run['half of the units: share of the time']:.2f}",
                f"{run['half of the units: share of the bytes']:.2f}",
                f"{share['memory']:.0%}",
                f"{share['arithmetic in float32']:.0%}",
            ]
        )
    return write_between(docs / "any-network.md", "network speed", markdown([*HEAD, *MORE], rows).splitlines())


if __name__ == "__main__":
    print(write())
