"""What sites have earned: the paper's contribution, or that of those who took part in training.

In the paper a contribution is measured once, from a model that a client trains alone; whoever then sends back what it
was sent, or is refused in every round, is paid as if it had trained. `pay = "taking-part"` does not: who trained in
fewer than half of the rounds that it was a member for is paid for a contribution that is smaller in proportion, and for
none if it never did. Up to half of the rounds may be missed, since networks fail.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedsac.federation.folder import TAKING_PART
from fedsac.federation.session import Session
from fedsac.runs.running import Running

ENOUGH = 0.5  # of the rounds
UNCHANGED = "unchanged"  # in a round's record: who sent back what it was sent


def taking_part(records: Sequence[Mapping[str, Any]], site: str) -> float:
    """The share of its contribution that a site is paid for: 1 if it trained in half of the rounds it was a member for.

    >>> rounds = [{"clients": ["a", "b"], "answered": ["a", "b"]}] + 3 * [{"clients": ["a", "b"], "answered": ["a"]}]
    >>> taking_part(rounds, "a"), taking_part(rounds, "b")
    (1.0, 0.5)
    """
    own = [record for record in records if site in record["clients"]]
    trained = [r for r in own if site in r["answered"] and site not in r.get(UNCHANGED, ())]
    return min(1.0, len(trained) / len(own) / ENOUGH) if own else 1.0


def earned(session: Session) -> Running:
    """The run as sites are paid for it: itself, or, where somebody took part too little, with contributions that say
    so."""
    run = session.run
    if session.federation.pay != TAKING_PART or run.contributions is None or run.members is None:
        return run
    shares = [taking_part(run.records, name) for name in run.task.clients]
    if min(shares) == 1.0:
        return run
    paid, measured = copy.copy(run), run.contributions
    less = replace(
        measured,
        validation=tuple(c * share for c, share in zip(measured.validation, shares, strict=True)),
        test=tuple(c * share for c, share in zip(measured.test, shares, strict=True)),
    )
    paid.change_members(less, run.members)
    return paid
