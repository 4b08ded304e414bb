"""Which round a result is taken from: `last`, `selected` or `best`; and how a round is judged. Loads no torch."""

from collections.abc import Sequence
from typing import Any

from fedsac.contributions.base import Contributions
from fedsac.core.fairness import cgs, fairness, gamma, mcg

LABELS = ("last", "selected", "best")
JUDGED = ("gamma", "gamma_limit", "bcf", "alpha_bcf", "accuracy", "mcg", "cgs")
"""The fairness part of a round's record. `accuracy` has max, mean and min of the rewards, by whatever metric."""


def of_clients(records: Sequence[dict[str, Any]], clients: Sequence[str]) -> tuple[dict[str, Any], ...]:
    """The rounds that these clients took part in, and nobody else: rounds before somebody came or left cannot be
    compared with those after it. Records name `clients` where they may change, in a federation."""
    names = list(clients)
    return tuple(record for record in records if record.get("clients", names) == names)


def chosen(records: Sequence[dict[str, Any]], contributions: Contributions) -> dict[str, dict[str, Any]]:
    """The record of the round that each label stands for; ties go to the later round, and to the last one where gamma
    is undefined in all.

    `selected` looks at nothing but the validation set; `best` picks on the test set, as the paper does. Where another
    measure than standing alone decides, its values take the contributions' place in both.
    """
    expected = contributions.validation if contributions.deciding is None else contributions.deciding
    evaluated = [record for record in records if record["rewards"] is not None]

    def highest(scores: list[float | None]) -> dict[str, Any]:
        ranked = [(-float("inf") if s is None else s, i) for i, s in enumerate(scores)]
        return evaluated[max(ranked)[1]]

    picked = {
        "last": evaluated[-1],
        "selected": highest([gamma(expected, r["rewards_validation"]) for r in evaluated]),
        "best": highest([r["gamma"] for r in evaluated]),
    }
    return {label: _with_gains(record, contributions) for label, record in picked.items()}


def _with_gains(record: dict[str, Any], contributions: Contributions) -> dict[str, Any]:
    """An evaluated round's record. Those of earlier versions have no MCG and no CGS, which follow from what they
    have."""
    if "mcg" in record and "cgs" in record:
        return record
    c, theta = contributions.test, record["rewards"]
    return record | {"mcg": mcg(c, theta), "cgs": cgs(c, theta)}


def reported(record: dict[str, Any]) -> dict[str, Any]:
    """What a summary says of a round that `chosen` has picked."""
    return {"round": record["round"]} | {key: record[key] for key in JUDGED}


def judged(contributions: Contributions, rewards: Sequence[float] | None) -> dict[str, Any]:
    """The fairness part of a round's record; all None in a round that was not evaluated.

    Where another measure than standing alone decides, gamma is taken with its values. BCF, alpha-BCF and gamma* bound
    scores from below by scores: they are taken with the standalone ones in any case, and so are the gains.
    """
    if rewards is None:
        return dict.fromkeys(JUDGED)
    judgement = fairness(contributions.test, rewards).as_dict()
    if contributions.deciding is not None:
        judgement["gamma"] = gamma(contributions.deciding, rewards)
    return judgement
