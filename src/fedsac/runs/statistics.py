"""Statistics over seeds: 95 % intervals of means, and which method is significantly above which.

Methods that ran with the same seeds had the same splits, initial models and batches, so they are compared by their
differences, seed by seed: a paired t test for each pair of methods, and for each method Holm's correction over all its
rivals. docs/decisions.md gives the reasons. Loads neither torch nor scipy, so that a report starts at once.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

LEVEL = 0.05  # of the tests; 1 - LEVEL is the coverage of the intervals
NO_SPREAD = 1e-9  # numbers that differ by less than this share of the largest are equal but for rounding

FIRST, BEATEN, UNDECIDED = "significantly first", "beaten", "undecided"
VERDICTS = (FIRST, BEATEN, UNDECIDED)

BySeed = Mapping[Hashable, float | None]
"""A method's number for each seed; None where the number does not exist."""


@dataclass(frozen=True)
class Difference:
    """A method's number less a rival's, over the seeds that have both. The interval and `p` are of this pair by itself;
    `p_holm` is corrected for the number of rivals. None: too few seeds, or no spread to take an interval from."""

    rival: str
    seeds: int
    mean: float | None
    interval: tuple[float, float] | None
    p: float | None
    p_holm: float | None = None

    @property
    def significant(self) -> bool:
        return self.p_holm is not None and self.p_holm <= LEVEL


@dataclass(frozen=True)
class Judgement:
    """A method against its rivals; `better` says whether more (+1) or less (-1) is better."""

    differences: tuple[Difference, ...]
    better: int = 1

    @property
    def beaten_by(self) -> tuple[str, ...]:
        """The rivals that are significantly better."""
        return tuple(d.rival for d in self.differences if d.significant and self._gain(d) < 0)

    @property
    def verdict(self) -> str | None:
        """`FIRST`: significantly better than every rival; `BEATEN`: significantly worse than one; else `UNDECIDED`.
        None where nothing could be tested: fewer than two seeds, or no rival that has the number."""
        if all(d.p is None for d in self.differences):
            return None
        if self.beaten_by:
            return BEATEN
        return FIRST if all(d.significant for d in self.differences) else UNDECIDED

    @property
    def best_rival(self) -> Difference | None:
        """The difference to the rival that is best against this method."""
        known = [d for d in self.differences if d.mean is not None]
        return min(known, key=self._gain, default=None)

    def _gain(self, difference: Difference) -> float:
        assert difference.mean is not None
        return self.better * difference.mean


def judge(numbers: Mapping[str, BySeed], better: int = 1) -> dict[str, Judgement]:
    """Each method against all others, in the column of one number. Rivals that never have the number are left out.

    >>> ours, theirs = {0: 0.50, 1: 0.52, 2: 0.49}, {0: 0.40, 1: 0.43, 2: 0.38}
    >>> found = judge({"ours": ours, "theirs": theirs})
    >>> found["ours"].verdict, found["theirs"].verdict
    ('significantly first', 'beaten')
    """
    there = {name: {seed: v for seed, v in values.items() if v is not None} for name, values in numbers.items()}
    judged = {}
    for name, own in there.items():
        pairs = [_difference(rival, own, other) for rival, other in there.items() if rival != name and other]
        corrected = holm([1.0 if d.p is None else d.p for d in pairs])
        judged[name] = Judgement(
            tuple(
                d if d.p is None else Difference(d.rival, d.seeds, d.mean, d.interval, d.p, p)
                for d, p in zip(pairs, corrected, strict=True)
            ),
            better,
        )
    return judged


def _difference(rival: str, own: Mapping[Hashable, float], other: Mapping[Hashable, float]) -> Difference:
    shared = [seed for seed in own if seed in other]
    if not shared:
        return Difference(rival, 0, None, None, None)
    a, b = (np.array([values[seed] for seed in shared]) for values in (own, other))
    differences, scale = a - b, float(np.abs([a, b]).max())
    p = None if len(shared) < 2 else paired_p(differences, scale)
    return Difference(rival, len(shared), float(differences.mean()), _interval(differences, scale), p)


def paired_p(differences: np.ndarray, scale: float) -> float:
    """The two-sided p value of the paired t test: how likely is a mean difference this far from 0 by chance.

    Where all differences are equal, the t test would call any of them certain, be it of two seeds. There the exact sign
    test takes its place: n differences of one sign have p = 2^(1 - n).
    """
    n, mean = len(differences), float(differences.mean())
    if _without_spread(differences, scale):
        return 1.0 if abs(mean) <= NO_SPREAD * scale else 2.0 ** (1 - n)
    t = mean / (float(differences.std(ddof=1)) / math.sqrt(n))
    return t_two_sided(t, n - 1)


def mean_interval(values: Sequence[float | None]) -> tuple[float, float] | None:
    """The 95 % interval of the mean (t distribution); None of fewer than two values, or where all are equal.

    >>> low, high = mean_interval([1.0, 2.0, 3.0])
    >>> round(low, 3), round(high, 3)  # 2 -+ 4.303 / sqrt(3)
    (-0.484, 4.484)
    """
    there = np.array([value for value in values if value is not None])
    return _interval(there, float(np.abs(there).max())) if len(there) else None


def _interval(values: np.ndarray, scale: float) -> tuple[float, float] | None:
    if len(values) < 2 or _without_spread(values, scale):
        return None
    mean = float(values.mean())
    reach = t_critical(len(values) - 1) * float(values.std(ddof=1)) / math.sqrt(len(values))
    return mean - reach, mean + reach


def _without_spread(values: np.ndarray, scale: float) -> bool:
    return float(np.ptp(values)) <= NO_SPREAD * scale


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction: the smallest p times their number, the next times one less, ..., none below the one before.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    corrected, lowest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        lowest = max(lowest, min(1.0, (len(p_values) - rank) * p_values[i]))
        corrected[i] = lowest
    return corrected


def t_two_sided(t: float, freedom: int) -> float:
    """P(|T| >= |t|) of Student's t with a whole number of degrees of freedom, to 1e-12: the finite series of Abramowitz
    and Stegun, 26.7.3 and 26.7.4."""
    angle = math.atan(abs(t) / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term = cosine if odd else 1.0
    total = term if freedom > 1 else 0.0
    for k in range(2 + odd, freedom - 1, 2):
        term *= cosine**2 * (k - 1) / k
        total += term
    inside = 2 / math.pi * (angle + sine * total) if odd else sine * total
    return min(1.0, max(0.0, 1 - inside))


@lru_cache(maxsize=256)
def t_critical(freedom: int) -> float:
    """The t that |T| exceeds with probability `LEVEL`, by bisection.

    >>> round(t_critical(1), 3), round(t_critical(4), 3), round(t_critical(9), 3)
    (12.706, 2.776, 2.262)
    """
    low, high = 0.0, 16.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if t_two_sided(middle, freedom) > LEVEL else (low, middle)
    return (low + high) / 2
