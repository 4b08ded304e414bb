"""What models say about the samples behind them, and what differential privacy costs, as one raw file. Interrupted, it
goes on: every figure is a file of its own below OUT/privacy."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.studies.raw import as_text
from fedsac.atomic import write_atomic
from fedsac.config import FORMAT_VERSION, RULES, Config
from fedsac.runs.start import run_together

ATTACKED = (None, 1.0, 4.0)  # noises that attacks are tried against
NOISES = (None, 0.5, 1.0, 2.0)  # that are priced
PRICED: dict[str, dict[str, Any]] = {  # settings of the runs that differential privacy is priced with
    "digits": {"rounds": 50, "hidden": (64, 64), "clients": 12},
    "fashion-mnist": {"rounds": 50, "hidden": (64, 64), "clients": 12, "samples_per_client": 2000},
}
Row = dict[str, Any]


def collect(out: Path, seeds: int, private_seeds: int, data: tuple[str, ...], data_dir: str | None) -> Path:
    """Measure what is missing; returns the raw file."""
    folder = out / "privacy"
    folder.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    for name, measure in _planned(seeds, private_seeds, data, data_dir):
        path = folder / f"{name}.json"
        if not path.exists():
            print(name, flush=True)
            write_atomic(path, (json.dumps(measure()) + "\n").encode())
        rows += json.loads(path.read_text())
    written = out / "privacy.json"
    head = {"format_version": FORMAT_VERSION, "rules": RULES, "label": "last", "priced": {d: PRICED[d] for d in data}}
    write_atomic(written, as_text(head, rows).encode())
    return written


def _planned(
    seeds: int, private_seeds: int, data: tuple[str, ...], data_dir: str | None
) -> Iterator[tuple[str, Callable[[], list[Row]]]]:
    for noise in ATTACKED:
        for seed in range(seeds if noise is None else private_seeds):
            for kind in ("membership", "inversion"):
                yield f"{kind}-{noise}-{seed}", partial(_attacked, kind, noise, seed)
    for named in data:
        for seed in range(private_seeds):
            for noise in NOISES:
                yield f"price-{named}-{noise}-{seed}", partial(_price, named, data_dir, noise, seed)


def _private(noise: float | None) -> dict[str, Any]:
    return {} if noise is None else {"clip": 1.0, "noise": noise}


def _attacked(kind: str, noise: float | None, seed: int) -> list[Row]:
    from benchmarks.security import inverting, membership

    measure = {"membership": membership.measured, "inversion": inverting.measured}[kind]
    return [{"kind": kind, "noise": noise, "seed": seed, **row} for row in measure(seed, **_private(noise))]


def _price(data: str, data_dir: str | None, noise: float | None, seed: int) -> list[Row]:
    """What a run of FedSAC comes to."""
    settings = PRICED[data] | {"data": data, "data_dir": data_dir, "seed": seed} | _private(noise)
    result = run_together([Config(**settings, eval_every=settings["rounds"])])[0]
    last, privacy = result.results["last"], result.privacy
    row: Row = {"kind": "price", "data": data, "noise": noise, "seed": seed, "gamma": last["gamma"]}
    row |= {"best": max(result.rewards), "mean": float(np.mean(result.rewards))}
    row |= {"best_alone": max(result.contributions.test), "samples": list(result.samples)}
    if privacy is not None:
        row |= {name: privacy[name] for name in ("epsilon", "epsilon_alone")}
    return [row]
