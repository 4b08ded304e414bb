"""The numbers of a round's record, under the names that logs give them."""

from collections.abc import Sequence
from typing import Any

from fedsac.runs.watcher import RunInfo

Numbers = dict[str, float | None]
"""By name; None where a number does not exist: gamma without spread, or scores in a round that was not evaluated."""


def fairness(record: dict[str, Any]) -> Numbers:
    # Rounds of earlier versions have no attainable gamma.
    return {name: record.get(name) for name in ("gamma", "gamma_limit", "gamma_attainable", "bcf", "alpha_bcf")}


def scores(record: dict[str, Any]) -> Numbers:
    """Numbers in units of the run's metric: rewards over all clients, MCG, CGS, and the score of the common model."""
    over_clients = record["accuracy"] or dict.fromkeys(("max", "mean", "min"))
    return {
        **{f"{which}_reward": over_clients[which] for which in ("max", "mean", "min")},
        **{name: record.get(name) for name in ("mcg", "cgs")},  # older versions' rounds have neither
        "global_model": record["global_accuracy"],
    }


def traffic(record: dict[str, Any]) -> Numbers:
    return {f"bytes_{way}": record["bytes"][way] for way in ("down", "up")}


def clients_of(run: RunInfo, record: dict[str, Any]) -> Sequence[str]:
    """The clients whom a record's lists are about: it names them itself where they may change. None, where those of an
    earlier round are not known any more."""
    clients: Sequence[str] = record.get("clients", run.clients)
    return clients if len(clients) == len(record["neurons"]) else ()


def of_clients(run: RunInfo, record: dict[str, Any], what: str) -> Numbers:
    """What a record says of each client under this name (`rewards`, `neurons`, ...)."""
    clients, values = clients_of(run, record), record[what]
    return dict.fromkeys(clients) if values is None or not clients else dict(zip(clients, values, strict=True))


def tracked(run: RunInfo, record: dict[str, Any]) -> dict[str, float]:
    """All numbers of a round that exist, in groups as trackers draw them: `fairness/gamma`, `accuracy/max_reward`,
    `accuracy_of_reward/CLIENT`, `neurons/CLIENT`, `traffic/bytes_down`. Whatever is a score has the metric's name."""
    metric = run.config.metric.replace(":", ".")  # of one's own: module.function
    groups = {
        "fairness": fairness(record),
        metric: scores(record),
        f"{metric}_of_reward": of_clients(run, record, "rewards"),
        "neurons": of_clients(run, record, "neurons"),
        "traffic": traffic(record),
    }
    named = {f"{group}/{name}": value for group, numbers in groups.items() for name, value in numbers.items()}
    return {name: float(value) for name, value in named.items() if value is not None}
