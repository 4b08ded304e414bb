"""Several methods and seeds on one scene, all their clients in one stack: the numbers, with mean and deviation."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fedsac.config import FORMAT_VERSION, Config, check_version, settings_in
from fedsac.contributions.standalone import Contributions
from fedsac.errors import FedsacError
from fedsac.methods import METHODS, make
from fedsac.runs.folder import write_atomic
from fedsac.runs.loop import Watcher, resume_together, run_together
from fedsac.runs.result import LABELS, Result, chosen

LIST = "compare.json"

# What is reported of each label: key, heading, digits, and whether more (+1), less (-1) or neither (0) is better.
COLUMNS = (
    ("gamma", "gamma", 2, 1),
    ("gamma_limit", "gamma*", 2, 0),
    ("spearman", "Spearman", 2, 1),
    ("bcf", "in BCF", 2, 1),
    ("alpha_bcf", "alpha-BCF", 2, 1),
    ("max", "best", 4, 1),
    ("mean", "mean", 4, 1),
    ("min", "min", 4, 1),
    ("gain", "gain", 4, 1),
    ("gain_spread", "gain sd", 4, 0),
    ("losers", "lose", 1, -1),
    ("global", "global", 4, 1),
    ("megabytes", "MB down", 2, -1),
)


@dataclass(frozen=True)
class Row:
    """One method at one label: for each column the seeds' values, None where a number does not exist."""

    method: str
    label: str
    values: dict[str, list[float | None]]

    def mean(self, key: str) -> float | None:
        there = [value for value in self.values[key] if value is not None]
        return float(np.mean(there)) if there else None

    def deviation(self, key: str) -> float | None:
        there = [value for value in self.values[key] if value is not None]
        return float(np.std(there, ddof=1)) if len(there) > 1 else None


def methods_named(text: str) -> list[str]:
    """A list of methods from the command line: names with commas between them, or `all`."""
    names = list(METHODS) if text == "all" else [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise FedsacError("name at least one method, or all")
    if len(set(names)) < len(names):
        raise FedsacError(f"a method is named twice in {text}")
    return names


def compare(base: Config, methods: Sequence[str], seeds: int, out: Path, watcher: Watcher | None = None) -> list[Row]:
    """Run every method with seeds base.seed, base.seed + 1, ... side by side, in folders below `out`."""
    if seeds < 1:
        raise FedsacError(f"seeds must be at least 1, not {seeds}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise FedsacError(f"{out} is there already; go on with --resume {out}, or name another folder")
    configs = [base.replace(method=method, seed=base.seed + k) for method in methods for k in range(seeds)]
    for config in configs:
        make(config)  # an unknown method is an error before anything is written
    folders = {f"{config.method.replace(':', '-')}-seed{config.seed}": config.toml() for config in configs}
    listed = json.dumps({"format_version": FORMAT_VERSION, "runs": folders}, indent=2) + "\n"
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_atomic(out / LIST, listed.encode())
    except OSError as error:
        raise FedsacError(f"{out}: cannot be written ({error.strerror}); name another folder") from None
    return _written(run_together(configs, [out / name for name in folders], watcher, every_round=False), out)


def resume_compare(out: Path, watcher: Watcher | None = None) -> list[Row]:
    """Go on with an interrupted comparison."""
    try:
        listed = json.loads((out / LIST).read_text())
        version, runs = listed["format_version"], dict(listed["runs"])
        if not runs:
            raise ValueError
    except (OSError, ValueError, KeyError, TypeError):
        raise FedsacError(f"{out} is not a comparison that was begun (it has no sound {LIST})") from None
    check_version(version, out / LIST)
    for name, settings in runs.items():
        if not (out / name / "config.toml").exists():  # killed before this run had its folder
            config = Config(**settings_in(settings, out / LIST))
            (out / name).mkdir(exist_ok=True)
            write_atomic(out / name / "config.toml", config.toml().encode())
    return _written(resume_together([out / name for name in runs], watcher, every_round=False), out)


def rows(results: Sequence[Result]) -> list[Row]:
    """A row for each method and label, in the order of the results."""
    found: dict[tuple[str, str], Row] = {}
    for result in results:
        for label in LABELS:
            key = result.config.method, label
            row = found.setdefault(key, Row(*key, {column[0]: [] for column in COLUMNS}))
            for name, value in measured(result, label).items():
                row.values[name].append(value)
    return list(found.values())


class Measurable(Protocol):
    """What a result has, and a run that was read from its folder, too."""

    @property
    def contributions(self) -> Contributions: ...

    @property
    def records(self) -> tuple[dict[str, Any], ...]: ...


def measured(result: Measurable, label: str) -> dict[str, float | None]:
    """The columns of one run at one label."""
    from scipy.stats import spearmanr

    record = chosen(result.records, result.contributions)[label]
    c, theta = np.array(result.contributions.test), np.array(record["rewards"])
    gain = theta - c
    defined = np.ptp(c) > 0 and np.ptp(theta) > 0
    return {
        "gamma": record["gamma"],
        "gamma_limit": record["gamma_limit"],
        "spearman": float(100 * spearmanr(c, theta).statistic) if defined else None,
        "bcf": record["bcf"],
        "alpha_bcf": record["alpha_bcf"],
        **record["accuracy"],
        "gain": float(gain.mean()),
        "gain_spread": float(gain.std()),
        "losers": float((gain <= 0).sum()),
        "global": record["global_accuracy"],
        "megabytes": float(np.mean([r["bytes"]["down"] for r in result.records])) / 1e6,
    }


def _written(results: list[Result], out: Path) -> list[Row]:
    """The comparison as JSON, CSV and a picture, beside the runs."""
    from fedsac.report.comparison import fairness_accuracy
    from fedsac.report.drawing import svg

    table = rows(results)
    config = results[0].config
    whole = {
        "format_version": FORMAT_VERSION,
        "data": config.data,
        "scene": config.scene,
        "clients": config.clients,
        "rounds": config.rounds,
        "seeds": sorted({result.config.seed for result in results}),
        "rows": [{"method": row.method, "label": row.label, **row.values} for row in table],
    }
    write_atomic(out / "results.json", (json.dumps(whole, allow_nan=False) + "\n").encode())
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [name for name, *_ in COLUMNS]
    writer.writerow(["method", "label", *(f"{name}{part}" for name in names for part in ("", "_deviation"))])
    for row in table:
        numbers = [number for name in names for number in (row.mean(name), row.deviation(name))]
        writer.writerow([row.method, row.label, *("" if n is None else f"{n:.6g}" for n in numbers)])
    write_atomic(out / "results.csv", text.getvalue().encode())
    picture = fairness_accuracy(table, f"{config.data}, {config.scene}")
    write_atomic(out / "fairness-accuracy.svg", svg(picture).encode())
    return table
