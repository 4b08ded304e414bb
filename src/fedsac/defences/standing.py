"""What counts of a contribution: the measured one, less where somebody stopped working or handed in a copy.

Two running means are kept of every client: of its work (`work.py`; over about `WORK_ROUNDS` rounds) and of whether it
answered (over about `PRESENCE_ROUNDS`). A client whose work falls below half of the median client's counts less, and
below a quarter as nothing; so does one that answers in fewer than `ENOUGH` of the rounds. In between, and below, what
counts never falls under the floor: a tenth of the lowest contribution of those in good standing. So whoever is set
aside wrongly is left with something, and nobody who is set aside counts as much as an honest client.

The way back: whoever is set aside goes on being sent its submodel, and its answers are measured as before, though they
do not enter the model. As soon as the running mean is up again, so is what counts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

WORK_ROUNDS, PRESENCE_ROUNDS = 5, 20  # of the running means
TRUSTED = 10  # rounds that a newcomer counts as having answered
ENOUGH = 0.4  # of the rounds
FULL, NONE = 0.5, 0.25  # of the median work: from here on up all counts, from here on down nothing
LEAST_ROUNDS = 3  # measured, before work is judged
LEAST_MEDIAN = 0.05  # of all clients' work: below it, nothing can be told
FLOOR = 0.1  # of the lowest contribution in good standing
SET_ASIDE = 0.9  # who counts less than this is left out of the model


@dataclass(frozen=True)
class Standing:
    """A client's running means, and from how many rounds each is."""

    work: float = 0.0
    measured: int = 0
    presence: float = 1.0
    asked: int = 0

    def after(self, work: float | None) -> "Standing":
        """After one more round, in which the client's work was measured (None: it did not answer)."""
        asked = self.asked + 1
        presence = self.presence + ((work is not None) - self.presence) / min(asked + TRUSTED, PRESENCE_ROUNDS)
        if work is None:
            return Standing(self.work, self.measured, presence, asked)
        measured = self.measured + 1
        return Standing(self.work + (work - self.work) / min(measured, WORK_ROUNDS), measured, presence, asked)


def shares(standings: Mapping[str, Standing]) -> dict[str, float]:
    """Which share of its contribution counts of each client, from 0 to 1."""
    judged = [s.work for s in standings.values() if s.measured >= LEAST_ROUNDS]
    usual = median(judged) if judged else 0.0

    def share(own: Standing) -> float:
        there = min(1.0, own.presence / ENOUGH)
        if own.measured < LEAST_ROUNDS or usual < LEAST_MEDIAN:
            return there
        return there * min(1.0, max(0.0, (own.work / usual - NONE) / (FULL - NONE)))

    return {name: share(own) for name, own in standings.items()}


def counted(contributions: Sequence[float], shares: Sequence[float]) -> tuple[float, ...]:
    """What counts of contributions: their shares, but not less than the floor.

    >>> counted([0.9, 0.5, 0.8], [1.0, 1.0, 0.0])
    (0.9, 0.5, 0.05)
    """
    good = [c for c, share in zip(contributions, shares, strict=True) if share >= 1.0]
    floor = FLOOR * max(0.0, min(good)) if good else 0.0
    return tuple(
        c if share >= 1.0 else min(c, max(floor, c * share)) for c, share in zip(contributions, shares, strict=True)
    )
