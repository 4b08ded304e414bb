"""The raw files that pages are written from: one line for each run, with what every number on a page follows from."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedsac.atomic import write_atomic
from fedsac.config import FORMAT_VERSION, RULES, Config, check_version
from fedsac.contributions.base import Contributions
from fedsac.errors import FedsacError
from fedsac.runs.labels import chosen

TRAINING = ("rounds", "eval_every", "lr", "local_steps", "batch", "beta", "contribution_on")
Raw = dict[str, Any]


def summarised(folder: Path, config: Config, *, curve: bool) -> Raw:
    """A finished run, from its folder: contributions on V and on the test set, the rewards in the round that each label
    chooses; with `curve`, fairness and accuracy of every evaluated round."""
    summary = json.loads((folder / "summary.json").read_text())
    records = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    contributions = Contributions(tuple(summary["contributions"]), tuple(summary["contributions_test"]))
    run: Raw = {
        **{name: getattr(config, name) for name in ("data", "scene", "clients", "method", "seed")},
        "contributions": summary["contributions"],
        "contributions_test": summary["contributions_test"],
        "megabytes": float(np.mean([record["bytes"]["down"] for record in records])) / 1e6,
        "labels": {
            label: {"round": record["round"], "rewards": record["rewards"], "global": record["global_accuracy"]}
            for label, record in chosen(records, contributions).items()
        },
    }
    return run | ({"curve": _curve(records)} if curve else {})


def _curve(records: Sequence[Raw]) -> Raw:
    evaluated = [record for record in records if record["rewards"] is not None]
    return {
        "round": [record["round"] for record in evaluated],
        "gamma": [record["gamma"] for record in evaluated],
        "best": [record["accuracy"]["max"] for record in evaluated],
        "mean": [record["accuracy"]["mean"] for record in evaluated],
        "bcf": [record["bcf"] for record in evaluated],
        "global": [record["global_accuracy"] for record in evaluated],
    }


def head(study: str, configs: Sequence[Config]) -> Raw:
    """What a raw file is of: the study, and the settings of each cell."""
    training = {f"{c.data} {c.scene} {c.clients}": {name: getattr(c, name) for name in TRAINING} for c in configs}
    first = {"format_version": FORMAT_VERSION, "rules": RULES, "study": study, "training": training}
    others = sorted({c.network for c in configs} - {"mlp"})
    return first | ({"networks": others} if others else {})


def write(path: Path, first: Raw, made: Raw, runs: Sequence[Raw]) -> None:
    write_atomic(path, as_text(first | {"made": made}, runs).encode())


def as_text(head: Raw, runs: Iterable[Raw]) -> str:
    """A JSON object with the `head` and the runs, one line for each, so that two files can be compared with diff."""
    text = json.dumps(_rounded(head), allow_nan=False)
    lines = ",\n".join(json.dumps(_rounded(run), allow_nan=False, separators=(",", ":")) for run in runs)
    return f'{text[:-1]}, "runs": [\n{lines}\n]}}\n'


def read(path: Path) -> Raw:
    try:
        raw: Raw = json.loads(path.read_text())
        check_version(raw["format_version"], path)
        if not {"study", "made", "training", "runs"} <= set(raw):
            raise ValueError
    except (OSError, ValueError, KeyError, TypeError):
        raise FedsacError(f"{path} holds no results of a study; see python -m benchmarks.studies --help") from None
    return raw


def is_finished(path: Path, study: str, configs: Sequence[Config]) -> bool:
    """Whether the file has these runs; an error if it has others."""
    if not path.exists():
        return False
    raw = read(path)
    wanted = {(c.data, c.scene, c.clients, c.method, c.seed) for c in configs}
    there = {(r["data"], r["scene"], r["clients"], r["method"], r["seed"]) for r in raw["runs"]}
    expected = head(study, configs)
    if wanted != there or any(raw.get(name) != value for name, value in expected.items()):
        raise FedsacError(f"{path} holds other runs than these; name another folder, or remove it")
    return True


def _rounded(value: Any) -> Any:
    """Numbers rounded to six significant digits: more than any page shows, and a third of the size."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _rounded(part) for key, part in value.items()}
    return [_rounded(part) for part in value] if isinstance(value, list | tuple) else value
