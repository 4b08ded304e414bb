"""A sweep: one method, or several, with every combination of some settings' values and several seeds, all their clients
in one stack. What standing alone does not depend on, as beta, costs it once."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from itertools import product
from pathlib import Path
from typing import Any

from fedsac.config import Config
from fedsac.errors import FedsacError
from fedsac.methods import make
from fedsac.runs.comparing import Plan, carry_out
from fedsac.runs.comparison import Row
from fedsac.runs.limits import check_number_of_runs
from fedsac.runs.watcher import Watcher
from fedsac.runs.workers import Workers

SETTINGS = {option.name: option for option in fields(Config)}
NOT_SWEPT = {  # each with the reason
    "seed": "--seeds has them",
    "options": "name the option itself",
    "device": "runs side by side share one device",
    "threads": "runs side by side share them",
    "precision": "runs side by side share one precision",
    "data_dir": "it is no setting that numbers depend on",
}


def sweep(
    base: Config,
    values: Mapping[str, Sequence[Any]],
    seeds: int,
    out: Path,
    watcher: Watcher | None = None,
    workers: Workers | None = None,
) -> list[Row]:
    """Run `base` with every combination of these values, of settings or of the method's options, and with seeds
    base.seed, base.seed + 1, ..., in folders below `out`; with `workers`, spread over these."""
    return carry_out(planned(base, values, seeds), out, watcher, workers)


def planned(base: Config, values: Mapping[str, Sequence[Any]], seeds: int) -> Plan:
    """The runs of a sweep by the names of their folders."""
    if seeds < 1:
        raise FedsacError(f"seeds must be at least 1, not {seeds}")
    if not values:
        raise FedsacError("a sweep needs a setting and its values: --set beta=1,2,5")
    count = seeds
    for name, own in values.items():
        if name in NOT_SWEPT:
            raise FedsacError(f"{name} cannot be swept: {NOT_SWEPT[name]}")
        if not len(own) or len(set(map(str, own))) < len(own):
            raise FedsacError(f"{name}: give some values, each once, not {', '.join(map(str, own)) or 'none'}")
        count *= len(own)
    check_number_of_runs(count)
    configs: dict[str, Config] = {}
    for combination in product(*values.values()):
        config = with_values(base, dict(zip(values, combination, strict=True)))
        make(config)  # an unknown method or option is an error before anything is written
        stem = "-".join(f"{name}{value}" for name, value in zip(values, map(_shown, combination), strict=True))
        stem = re.sub(r"[^\w.-]+", "-", stem, flags=re.ASCII)[:100]
        for k in range(seeds):
            name = f"{stem}-seed{base.seed + k}"
            while name in configs:  # values that are alike but for signs that a file name cannot have
                name = f"{name}-again"
            configs[name] = config.replace(seed=base.seed + k)
    return Plan(configs, tuple(values))


def with_values(base: Config, values: Mapping[str, Any]) -> Config:
    """The config with these settings; what is no setting is an option of the method."""
    settings = {name: value for name, value in values.items() if name in SETTINGS}
    options = {name: value for name, value in values.items() if name not in SETTINGS}
    return base.replace(**settings, options={**base.options, **options})


def parsed(texts: Sequence[str]) -> dict[str, list[Any]]:
    """Settings and their values from the command line: `beta=1,2,5`, `hidden=64,100x100`, `method=fedsac,fedavg`."""
    values: dict[str, list[Any]] = {}
    for text in texts:
        name, equals, listed = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not name:
            raise FedsacError(f"--set takes NAME=VALUE,VALUE,..., not {text!r}")
        if name in values:
            raise FedsacError(f"--set names {name} twice; write all its values with commas between them")
        values[name] = [_value(name, part.strip()) for part in listed.split(",")]
    return values


def _value(name: str, text: str) -> Any:
    """A value as its setting's type has it; that of an option is converted with the method's others."""
    kind = str(SETTINGS[name].type) if name in SETTINGS else "str"
    try:
        if name == "hidden":
            return tuple(int(part) for part in text.split("x"))
        if "int" in kind:
            return int(text)
        return float(text) if "float" in kind else text
    except ValueError:
        wanted = "whole numbers, as 64x64" if name == "hidden" else "a whole number" if "int" in kind else "a number"
        raise FedsacError(f"--set {name}: each value must be {wanted}, not {text!r}") from None


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return "x".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
