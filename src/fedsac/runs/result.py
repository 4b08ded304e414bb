"""What a run found: everything that is printed, written and returned."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fedsac.config import FORMAT_VERSION, Config
from fedsac.contributions.standalone import Contributions
from fedsac.core.fairness import bcf, fairness, gamma
from fedsac.core.units import Layout
from fedsac.models.network import Network

LABELS = ("last", "selected", "best")


@dataclass(frozen=True)
class Result:
    """A finished run. `records` has one entry per round; models are the final ones."""

    config: Config
    clients: tuple[str, ...]
    samples: tuple[int, ...]
    contributions: Contributions
    records: tuple[dict[str, Any], ...]
    reputations: tuple[float, ...] | None
    layout: Layout
    global_model: Network | None  # None where each client has a model of its own
    reward_models: tuple[Network, ...]  # none where models are not kept
    reward_bytes: dict[str, int]  # of all rewards of the last round: `counted` by parameters, `serialised` as files
    seconds: float
    folder: Path | None = None
    reported_on: str = "test"  # or "validation", where own silos bring no test file

    @property
    def last(self) -> dict[str, Any]:
        return self.records[-1]

    @property
    def rewards(self) -> tuple[float, ...]:
        return tuple(self.last["rewards"])

    @property
    def inside_bcf(self) -> tuple[bool, ...]:
        return tuple(bcf(self.contributions.test, self.rewards).tolist())

    @property
    def full_bytes(self) -> int:
        """Bytes of a whole model."""
        return self.layout.parameters * getattr(torch, self.config.dtype).itemsize

    @property
    def results(self) -> dict[str, dict[str, Any]]:
        """`last`, `selected` and `best`: each the numbers of one round, chosen as its label says."""
        return {label: reported(record) for label, record in chosen(self.records, self.contributions).items()}

    def summary(self) -> dict[str, Any]:
        """The object behind `--json`, less what depends on the clock."""
        c, deciding = self.config, self.contributions.deciding
        return {
            "format_version": FORMAT_VERSION,
            "data": c.data,
            "scene": c.scene,
            "method": c.method,
            "clients": len(self.clients),
            "client_names": list(self.clients),
            "rounds": c.rounds,
            "seed": c.seed,
            "reported_on": self.reported_on,
            "samples": list(self.samples),
            "contribution": c.contribution,
            "contributions": list(self.contributions.validation),
            "contributions_test": list(self.contributions.test),
            "contributions_deciding": None if deciding is None else list(deciding),
            "diverged_alone": list(self.contributions.diverged),
            "reputations": None if self.reputations is None else list(self.reputations),
            "rewards": list(self.rewards),
            "neurons": self.last["neurons"],
            "parameters": self.last["parameters"],
            "inside_bcf": list(self.inside_bcf),
            "bytes_per_round": {
                way: sum(record["bytes"][way] for record in self.records) / len(self.records) for way in ("down", "up")
            },
            "reward_bytes": self.reward_bytes,
            "results": self.results,
        }


def chosen(records: Sequence[dict[str, Any]], contributions: Contributions) -> dict[str, dict[str, Any]]:
    """The round behind each label (protocol 13); ties go to the later one, and to the last where gamma never exists.

    `selected` looks at nothing but the validation set; `best` picks on the test set, as the paper does. Where another
    measure than standing alone decides, its values take the contributions' place in both.
    """
    expected = contributions.validation if contributions.deciding is None else contributions.deciding
    evaluated = [record for record in records if record["rewards"] is not None]

    def highest(scores: list[float | None]) -> dict[str, Any]:
        ranked = [(-float("inf") if s is None else s, i) for i, s in enumerate(scores)]
        return evaluated[max(ranked)[1]]

    return {
        "last": evaluated[-1],
        "selected": highest([gamma(expected, r["rewards_validation"]) for r in evaluated]),
        "best": highest([r["gamma"] for r in evaluated]),
    }


def reported(record: dict[str, Any]) -> dict[str, Any]:
    return {key: record[key] for key in ("round", "gamma", "gamma_limit", "bcf", "alpha_bcf", "accuracy")}


def judged(contributions: Contributions, rewards: Sequence[float] | None) -> dict[str, Any]:
    """The fairness part of a round's record; all None in a round that was not evaluated.

    Where another measure than standing alone decides, gamma is taken with its values. BCF, alpha-BCF and gamma* bound
    accuracies from below by accuracies: they are taken with the standalone ones in any case.
    """
    if rewards is None:
        return dict.fromkeys(("gamma", "gamma_limit", "bcf", "alpha_bcf", "accuracy"))
    found = fairness(contributions.test, rewards).as_dict()
    if contributions.deciding is not None:
        found["gamma"] = gamma(contributions.deciding, rewards)
    return found
