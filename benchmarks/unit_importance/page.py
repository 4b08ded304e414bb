"""The tables of docs/any-network.md, from docs/results/unit-importance.json and network-runs.json. What stands between
their marks is written anew; the words around them are by hand."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.studies.tables import markdown
from fedsac.atomic import write_atomic
from fedsac.errors import FedsacError
from fedsac.runs.statistics import mean_interval

DOCS = Path(__file__).parents[2] / "docs"
Rows = Sequence[dict[str, Any]]
SHOWN = (("accuracy", 2), ("spearman", 1), ("same half", 2))  # and digits


def write(docs: Path = DOCS) -> Path:
    page = docs / "any-network.md"
    text = page.read_text()
    ranks, runs = (
        json.loads((docs / "results" / name).read_text())["runs"]
        for name in ("unit-importance.json", "network-runs.json")
    )
    for name, table in (("ranks", _ranks(ranks)), ("importance", _kinds(runs)), ("batch norm", _statistics(runs))):
        place = re.search(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", text, re.DOTALL)
        if place is None:
            raise FedsacError(f"{page} has no marks <!-- {name} --> and <!-- /{name} -->")
        text = f"{text[: place.end(1)]}\n{table}\n\n{text[place.start(2) :]}"
    write_atomic(page, text.encode())
    return page


def _grouped(rows: Iterable[dict[str, Any]], *keys: str) -> Iterator[tuple[tuple[Any, ...], list[dict[str, Any]]]]:
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(tuple(row[key] for key in keys), []).append(row)
    yield from found.items()


def _spread(own: Rows, of: Callable[[dict[str, Any]], float | None], digits: int) -> str:
    """The mean, and the lowest and the highest of the seeds; how many of them have a value, where not all do."""
    values = [value for row in own if (value := of(row)) is not None]
    if not values:
        return "-"
    some = f", {len(values)}/{len(own)}" if len(values) < len(own) else ""
    return f"{mean(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f}{some})"


def _ranks(rows: Rows) -> str:
    return markdown(
        ("network", "units", "steps", "accuracy on V", "Spearman", "same half"),
        [
            [
                network,
                str(own[0]["units"]),
                str(steps),
                *(_spread(own, lambda row, key=key: row[key], digits) for key, digits in SHOWN),  # type: ignore[misc]
            ]
            for (network, steps), own in _grouped(rows, "network", "steps")
        ],
    )


def _kinds(rows: Rows) -> str:
    groups = dict(_grouped((row for row in rows if row["kind"] == "importance"), "network", "option"))
    return markdown(
        ("network", "importance", "gamma", "less exact's", "best reward", "mean reward", "units", "parameters"),
        [
            [
                *(network, option, _spread(own, lambda row: row["gamma"], 1)),
                *(_difference(own, groups[network, "exact"]), *_rewards(own)),
                *(_held(own, "neurons"), _held(own, "parameters")),
            ]
            for (network, option), own in groups.items()
        ],
    )


def _statistics(rows: Rows) -> str:
    groups = dict(_grouped((row for row in rows if row["kind"] == "batch norm"), "batch_norm"))
    return markdown(
        ("`--batch-norm`", "best alone", "gamma", "less `validation`'s", "best reward", "mean reward"),
        [
            [
                *(f"`{statistics}`", f"{mean(row['best alone'] for row in own):.3f}"),
                *(_spread(own, lambda row: row["gamma"], 1), _difference(own, groups["validation",]), *_rewards(own)),
            ]
            for (statistics,), own in groups.items()
        ],
    )


def _difference(own: Rows, usual: Rows) -> str:
    """Of gamma, seed by seed: the mean, and its 95 % interval."""
    both = zip(own, usual, strict=True)
    values = [a["gamma"] - b["gamma"] for a, b in both if a["gamma"] is not None and b["gamma"] is not None]
    interval = mean_interval(values)
    return "-" if interval is None else f"{mean(values):+.1f} [{interval[0]:+.1f}, {interval[1]:+.1f}]"


def _rewards(own: Rows) -> list[str]:
    return [
        _spread(own, lambda row: max(row["rewards"]), 3),
        f"{mean(mean(row['rewards']) for row in own):.3f}",
    ]


def _held(own: Rows, what: str) -> str:
    """The share that a client holds in the mean, of what the client with most of it does."""
    return f"{mean(mean(row[what]) / max(row[what]) for row in own):.3f}"
