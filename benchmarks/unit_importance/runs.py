"""What kinds of importance, and of batch norm's statistics, lead to in whole runs of FedSAC."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from torch import Tensor

import fedsac
from benchmarks.unit_importance.data import digits, text
from fedsac import Config

FACTORIES = "benchmarks.unit_importance.data"
BASE = {"scene": "pow", "clients": 5, "method": "fedsac"}


class Run(NamedTuple):
    settings: dict[str, Any]
    data: Callable[[], tuple[Tensor, Tensor]] | None = digits  # None: the embedded digits as they are
    options: dict[str, int] = {}  # noqa: RUF012  read only


OFTEN = {"importance_every": 5, "eval_every": 5}
TEXT = {"rounds": 10, "local_steps": 20, "lr": 0.05, "momentum": 0.9} | OFTEN
NETWORKS = {
    "cnn": Run({"network": "cnn", "rounds": 25, "local_steps": 20, "lr": 0.1} | OFTEN),
    "resnet18:8": Run({"network": "resnet18:8", "rounds": 15, "local_steps": 10, "lr": 0.05} | OFTEN),
    # Exact importance of a thousand units on all of V would take hours.
    "text transformer": Run(TEXT | {"network": f"{FACTORIES}:transformer"}, text, {"importance_samples": 100}),
    "LoRA": Run(TEXT | {"network": f"{FACTORIES}:adapters"}, text, {"importance_samples": 100}),
}
IMPORTANCE: dict[str, dict[str, bool]] = {
    "exact": {},
    "first_order": {"first_order": True},
    "by_cost": {"by_cost": True},
}
BATCH_NORM = {"network": "resnet18:8", "rounds": 15, "local_steps": 10, "importance_every": 3, "eval_every": 5}
STATISTICS = ("validation", "running", "frozen")
SHOWN = ("gamma", "rewards", "neurons", "parameters")


def by_importance(network: str, seed: int) -> Iterator[dict[str, Any]]:
    how = NETWORKS[network]
    for option, options in IMPORTANCE.items():
        row = _row(Config(**BASE | how.settings, options=how.options | options, seed=seed), how.data)
        yield {"kind": "importance", "network": network, "option": option, "seed": seed} | row


def by_statistics(seed: int) -> Iterator[dict[str, Any]]:
    for statistics in STATISTICS:
        row = _row(Config(**BASE | BATCH_NORM, batch_norm=statistics, seed=seed), None)
        yield {"kind": "batch norm", "batch_norm": statistics, "seed": seed} | row


def _row(config: Config, data: Callable[[], tuple[Tensor, Tensor]] | None) -> dict[str, Any]:
    given = None if data is None else tuple(part.numpy() for part in data())
    result = fedsac.run(config, data=given)
    last = result.last
    return {"best alone": max(result.contributions.test)} | {name: last[name] for name in SHOWN}
