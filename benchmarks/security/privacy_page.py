"""The tables of privacy in docs/security.md, from docs/results/attacks/privacy.json. What stands between the marks is
written anew; the words around them are by hand."""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean, median

from benchmarks.security.marked import write_between
from benchmarks.studies.raw import Raw
from fedsac.runs.statistics import mean_interval

PRIVACY = "privacy.json"
Grouped = dict[tuple[str, ...], dict[float | None, list[Raw]]]  # by what was measured, and by noise


def write(docs: Path) -> Path:
    """Write the tables into docs/security.md."""
    raw = json.loads((docs / "results" / "attacks" / PRIVACY).read_text())
    return write_between(docs / "security.md", "privacy", privacy_tables(raw["runs"]))


def privacy_tables(rows: Sequence[Raw]) -> Iterator[str]:
    """Membership inference, gradient inversion, and the price of differential privacy."""
    yield from ("", "Membership inference: AUC, and true positives at 1 % false ones.", "")
    own = _grouped(rows, "membership", ("target", "attack"))
    yield from _head(("from", "attack"), ("AUC", "TPR"), own)
    for (target, attack), of in own.items():
        cells = [f"{mean(row[key] for row in of[noise]):.3f}" for noise in _noises(of) for key in ("auc", "tpr")]
        yield f"| {target} | {attack} | " + " | ".join(cells) + " |"
    yield from ("", "Gradient inversion: samples recovered within 1 %; the median error of the nearest guess.", "")
    own = _grouped(rows, "inversion", ("sent",))
    yield from _head(("what is sent", "public digits"), ("recovered", "error"), own)
    for (sent,), of in own.items():
        cells = [f"{mean(row['public'] for row in of[None]):.2g}"]
        for noise in _noises(of):
            cells.append(f"{mean(row['recovered'] for row in of[noise]):.2f}")
            cells.append(f"{mean(row['median'] for row in of[noise]):.2g}")
        yield f"| {sent} | " + " | ".join(cells) + " |"
    yield from (
        "",
        "The price of differential privacy: FedSAC, last round, `clip` 1; means, gamma with half of its 95 % interval.",
        "",
    )
    yield "| data | noise | seeds | epsilon: least, median, most | alone: median | gamma | best | mean | best alone |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for (data,), of in _grouped(rows, "price", ("data",)).items():
        for noise in _noises(of):
            yield f"| {data} | {_price(noise, of[noise])} |"


def _head(first: Sequence[str], columns: Sequence[str], own: Grouped) -> Iterator[str]:
    """The first lines of a table that has some columns for each noise."""
    noises = _noises(next(iter(own.values())))
    named = [column if noise is None else f"{column}, noise {noise:g}" for noise in noises for column in columns]
    yield "| " + " | ".join([*first, *named]) + " |"
    yield "|" + " --- |" * len(first) + " ---: |" * len(named)


def _noises(of: dict[float | None, list[Raw]]) -> list[float | None]:
    return sorted(of, key=lambda noise: noise or 0)


def _grouped(rows: Sequence[Raw], kind: str, keys: Sequence[str]) -> Grouped:
    found: Grouped = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row["kind"] == kind:
            found[tuple(row[key] for key in keys)][row["noise"]].append(row)
    return found


def _price(noise: float | None, own: Sequence[Raw]) -> str:
    spent = ["-", "-"]
    if noise is not None:
        every = [row["epsilon"] for row in own]
        least, middle, most = (mean(of(one) for one in every) for of in (min, median, max))
        alone = mean(median(row["epsilon_alone"]) for row in own)
        spent = [f"{least:.1f}, {middle:.1f}, {most:.1f}", f"{alone:.1f}"]
    gammas = [row["gamma"] for row in own if row["gamma"] is not None]
    scores = [f"{mean(row[key] for row in own):.3f}" for key in ("best", "mean", "best_alone")]
    gamma, interval = f"{mean(gammas):.1f}" if gammas else "-", mean_interval(gammas)
    if interval is not None:
        gamma += f" ± {(interval[1] - interval[0]) / 2:.1f}"
    return " | ".join(["none" if noise is None else f"{noise:g}", str(len(own)), *spent, gamma, *scores])
