"""Which round a result is taken from: `last`, `selected` or `best`; and how a round is judged. Loads no torch."""

from collections.abc import Sequence
from typing import Any

from fedsac.contributions.base import Contributions
from fedsac.core.fairness import bcf, cgs, fairness, gamma, gamma_attainable, mcg

LABELS = ("last", "selected", "best")
JUDGED = ("gamma", "gamma_limit", "gamma_attainable", "bcf", "alpha_bcf", "accuracy", "mcg", "cgs")
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
        # Rounded: which of two equal ones is higher by its last bits depends on the processor.
        ranked = [(-float("inf") if s is None else round(s, 9), i) for i, s in enumerate(scores)]
        return evaluated[max(ranked)[1]]

    return {
        "last": evaluated[-1],
        "selected": highest([gamma(expected, r["rewards_validation"]) for r in evaluated]),
        "best": highest([r["gamma"] for r in evaluated]),
    }


def judged_again(
    records: Sequence[dict[str, Any]], contributions: Contributions, decided_on: str
) -> tuple[dict[str, Any], ...]:
    """Records from a file, as they would be written today: BCF by the present definition, and MCG, CGS and the
    attainable gamma, which earlier versions did not write. All four follow from the rewards. `decided_on` is the
    config's `contribution_on`."""

    def again(record: dict[str, Any]) -> dict[str, Any]:
        c, theta = contributions.test, record["rewards"]
        if theta is None or len(theta) != len(c):
            return {"gamma_attainable": None} | record
        return record | {
            "gamma_attainable": attainable(contributions, decided_on, theta),
            "bcf": float(bcf(c, theta).mean()),
            "mcg": mcg(c, theta),
            "cgs": cgs(c, theta),
        }

    return tuple(map(again, records))


def reported(record: dict[str, Any]) -> dict[str, Any]:
    """What a summary says of a round that `chosen` has picked."""
    # Rounds that an earlier version has written, in a run that was resumed, have no attainable gamma.
    judgement = {key: record.get(key) for key in JUDGED}
    return {"round": record["round"]} | judgement | {"log_loss": mean_log_loss(record)}


def mean_log_loss(record: dict[str, Any]) -> float | None:
    """The mean log-loss of the clients' rewards on the test set; None where one has none, or the round is an earlier
    version's."""
    losses = record.get("log_losses")
    return None if not losses or None in losses else sum(losses) / len(losses)


def attainable(contributions: Contributions, decided_on: str, rewards: Sequence[float]) -> float | None:
    """The gamma that the best rule reaches with this best reward, knowing contributions as well as the method does:
    those on validation or test data, as `decided_on` says; on test data it is gamma*.

    None where gamma* or what decides has no rewards inside BCF, and where another measure than standing alone decides:
    its values are not scores, and bound no rewards.
    """
    if contributions.deciding is not None:
        return None
    return gamma_attainable(contributions.test, contributions.for_method(decided_on), max(rewards))


def judged(contributions: Contributions, decided_on: str, rewards: Sequence[float] | None) -> dict[str, Any]:
    """The fairness part of a round's record; all None in a round that was not evaluated. `decided_on` is the config's
    `contribution_on`.

    Where another measure than standing alone decides, gamma is taken with its values. BCF, alpha-BCF and gamma* bound
    scores from below by scores: they are taken with the standalone ones in any case, and so are the gains.
    """
    if rewards is None:
        return dict.fromkeys(JUDGED)
    judgement = fairness(contributions.test, rewards).as_dict()
    if decided_on == "test" and contributions.deciding is None:  # not searched for again
        judgement["gamma_attainable"] = judgement["gamma_limit"]
    else:
        judgement["gamma_attainable"] = attainable(contributions, decided_on, rewards)
    if contributions.deciding is not None:
        judgement["gamma"] = gamma(contributions.deciding, rewards)
    return {key: judgement[key] for key in JUDGED}
