"""A comparison as a table: methods and seeds on one scene, each column with mean, deviation and 95 % interval, and the
methods tested against each other. Loads no torch."""

import json
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fedsac.config import Config
from fedsac.contributions.base import Contributions
from fedsac.core.fairness import cgs, mcg, spearman
from fedsac.core.metrics import display_name
from fedsac.runs.labels import LABELS, chosen
from fedsac.runs.statistics import Judgement, judge, mean_interval

LIST = "compare.json"  # in a comparison's folder: the configs of its runs

# What is reported of each label: key, heading, digits, and whether more (+1), less (-1) or neither (0) is better.
COLUMNS = (
    ("gamma", "gamma", 2, 1),
    ("gamma_limit", "gamma*", 2, 0),
    ("gamma_attainable", "attain.", 2, 0),
    ("spearman", "Spearman", 2, 1),
    ("bcf", "in BCF", 2, 1),
    ("alpha_bcf", "alpha-BCF", 2, 1),
    ("max", "best", 4, 1),
    ("mean", "mean", 4, 1),
    ("min", "min", 4, 1),
    ("gain", "MCG", 4, 1),
    ("gain_spread", "CGS", 4, 0),
    ("losers", "lose", 1, -1),
    ("global", "global", 4, 1),
    ("megabytes", "MB down", 2, -1),
)
TESTED = ("gamma", "max")  # the columns in which methods are tested against each other
ONLY_LAST = "In every run the selected and the best round are the last one, too: there is one table for all three."


@dataclass(frozen=True)
class Row:
    """One method at one label: for each column the seeds' values, None where a number does not exist. `seeds` has the
    seed and the split's seed of each value; without them, values are paired in their order. In a sweep, `method` names
    the settings that are varied, and `settings` has their values."""

    method: str
    label: str
    values: dict[str, list[float | None]]
    seeds: list[tuple[int, int]] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def repeated(self) -> bool:
        """Whether a seed occurs twice, on two devices for instance: such values are not independent of each other."""
        return len(set(self.seeds)) < len(self.seeds)

    def count(self, key: str) -> int:
        """For how many seeds the number exists."""
        return sum(value is not None for value in self.values[key])

    def interval(self, key: str) -> tuple[float, float] | None:
        """The 95 % interval of the mean."""
        return None if self.repeated else mean_interval(self.values[key])

    def by_seed(self, key: str) -> dict[Hashable, float | None]:
        if self.repeated:
            return {}
        return dict(zip(self.seeds or range(len(self.values[key])), self.values[key], strict=True))

    def mean(self, key: str) -> float | None:
        there = [value for value in self.values[key] if value is not None]
        return float(np.mean(there)) if there else None

    def deviation(self, key: str) -> float | None:
        there = [value for value in self.values[key] if value is not None]
        return float(np.std(there, ddof=1)) if len(there) > 1 else None


def settings_of(config: Config, varied: Sequence[str]) -> dict[str, Any]:
    """The values of the settings that a sweep varies; what is no setting is an option of the method."""
    known = {option.name for option in fields(Config)}
    values = {name: getattr(config, name) if name in known else config.options.get(name) for name in varied}
    return {name: "x".join(map(str, v)) if isinstance(v, tuple) else v for name, v in values.items()}


def rows(results: Sequence["Measurable"], varied: Sequence[str] = ()) -> list[Row]:
    """A row for each method, or each combination of the settings that are varied, and label, in the order of the
    results."""
    rows_by_key: dict[tuple[str, str], Row] = {}
    for result in results:
        settings = settings_of(result.config, varied)
        shown = [f"{name} {v:g}" if isinstance(v, float) else f"{name} {v}" for name, v in settings.items()]
        for label in LABELS:
            key = ", ".join(shown) or result.config.method, label
            row = rows_by_key.setdefault(key, Row(*key, {column[0]: [] for column in COLUMNS}, settings=settings))
            row.seeds.append(seeds_of(result.config))
            for name, value in measured(result, label).items():
                row.values[name].append(value)
    return list(rows_by_key.values())


def seeds_of(config: Config) -> tuple[int, int]:
    """A run's seed and its split's; own silos have one split, whatever the seed."""
    return config.seed, 0 if config.scene == "silos" else config.effective_split_seed


def subject(rows: Sequence[Row]) -> str:
    """What the rows differ in, as the heading over their names: the settings that are varied, else the method."""
    return ", ".join(rows[0].settings) or "method" if rows else "method"


def only_last(rows: Sequence[Row]) -> bool:
    """Whether `selected` and `best` are the last round everywhere, as where each run was evaluated once."""
    at_last = {row.method: row.values for row in rows if row.label == "last"}
    return all(row.values == at_last.get(row.method) for row in rows)


def judgements(rows: Sequence[Row], key: str, label: str) -> dict[str, Judgement]:
    """Each method against all others in one column, at one label."""
    better = next(direction for name, _, _, direction in COLUMNS if name == key)
    return judge({row.method: row.by_seed(key) for row in rows if row.label == label}, better)


class Measurable(Protocol):
    """What a table is made from: a `Result`, or a run that was read from its folder."""

    @property
    def config(self) -> Config: ...

    @property
    def contributions(self) -> Contributions: ...

    @property
    def records(self) -> tuple[dict[str, Any], ...]: ...


def measured(result: Measurable, label: str) -> dict[str, float | None]:
    """The columns of one run at one label."""
    record = chosen(result.records, result.contributions)[label]
    c, theta = np.array(result.contributions.test), np.array(record["rewards"])
    gain = theta - c
    return {
        "gamma": record["gamma"],
        "gamma_limit": record["gamma_limit"],
        "gamma_attainable": record.get("gamma_attainable"),  # rounds of earlier versions have none
        "spearman": spearman(c, theta),
        "bcf": record["bcf"],
        "alpha_bcf": record["alpha_bcf"],
        **record["accuracy"],
        "gain": mcg(c, theta),
        "gain_spread": cgs(c, theta),
        "losers": float((gain <= 0).sum()),
        "global": record["global_accuracy"],
        "megabytes": float(np.mean([r["bytes"]["down"] for r in result.records])) / 1e6,
    }


def about(folder: Path) -> tuple[str, str]:
    """What a comparison in this folder is of, data set and scene; and the metric, in a report's spelling."""
    written = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    return f"{written['data']}, {written['scene']}", display_name(written["metric"])
