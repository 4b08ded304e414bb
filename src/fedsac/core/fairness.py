"""Measures of collaborative fairness: gamma (Pearson's correlation), bounded collaborative fairness (BCF), the highest
gamma that BCF permits, and what clients gain by collaborating.

Contributions `c` and rewards `theta` are scores by the same metric (for instance accuracies), one per client, in the
same order: lists, arrays or tensors. What is not one finite number per client is a `FedsacError`.
"""

from dataclasses import asdict, dataclass

import numpy as np

from fedsac.core.given import Values, number, numbers, pairs
from fedsac.core.ranks import average_ranks

SQUARED_BELOW, SQUARED_ABOVE = 1e-60, 1e60  # what lies outside is scaled first, or its squares would not be numbers
STEEPEST = 1e2  # how much steeper than the line through the best reward a slope is tried at most


def _scores(contributions: Values, rewards: Values) -> tuple[np.ndarray, np.ndarray]:
    """c and theta [N], float64; else an error says what is wrong with them."""
    return pairs("contributions", contributions, "rewards", rewards)


def gamma(contributions: Values, rewards: Values) -> float | None:
    """100 * Pearson(c, theta) (Definition 1); `None` where either is constant and the correlation is undefined.

    >>> round(gamma([1, 9, 11], [99, 99.2, 99.3]), 6)
    98.974332
    >>> gamma([.1, .2, .3], [.5, .5, .5]) is None
    True
    """
    c, theta = _scores(contributions, rewards)
    if len(c) < 2 or np.ptp(c) == 0 or np.ptp(theta) == 0:
        return None
    c, theta = c - c.mean(), theta - theta.mean()
    if not all(SQUARED_BELOW < np.abs(values).max() < SQUARED_ABOVE for values in (c, theta)):
        c, theta = c / np.abs(c).max(), theta / np.abs(theta).max()
    return float(100 * np.clip(c @ theta / np.sqrt((c @ c) * (theta @ theta)), -1, 1))


def spearman(contributions: Values, rewards: Values) -> float | None:
    """100 * Spearman(c, theta): Pearson's correlation of the ranks, ties averaged. `None` where either is constant.

    Ranks 1, 2, 3 and 1, 3, 2; Spearman is 1 - 6 * (0 + 1 + 1) / (3 * (9 - 1)):

    >>> round(spearman([.1, .2, .3], [.5, .8, .7]), 6)
    50.0
    >>> spearman([.1, .2, .3], [.5, .5, .5]) is None
    True
    """
    c, theta = _scores(contributions, rewards)
    if len(c) < 2 or np.ptp(c) == 0 or np.ptp(theta) == 0:
        return None
    return float(100 * np.corrcoef(average_ranks(c), average_ranks(theta))[1, 0])


def collaboration_gain(contributions: Values, rewards: Values) -> np.ndarray:
    """What each client gains by collaborating, theta_i - c_i: [N], negative where it would do better alone.

    >>> collaboration_gain([.5, .75], [.75, .5]).tolist()
    [0.25, -0.25]
    """
    c, theta = _scores(contributions, rewards)
    gains: np.ndarray = theta - c
    return gains


def mcg(contributions: Values, rewards: Values) -> float:
    """Mean collaboration gain (Tastan et al., CYCle, 2025): unlike gamma, it shows whether collaborating pays at all.

    Gains .25, .5 and 0:

    >>> mcg([.25, .25, .5], [.5, .75, .5])
    0.25
    """
    return float(collaboration_gain(contributions, rewards).mean())


def cgs(contributions: Values, rewards: Values) -> float:
    """Collaboration gain spread (Tastan et al., CYCle, 2025): the population standard deviation of the gains.

    Gains .25 and .75, each .25 from their mean:

    >>> cgs([.25, .25], [.5, 1])
    0.25
    """
    return float(collaboration_gain(contributions, rewards).std())


def bcf(contributions: Values, rewards: Values) -> np.ndarray:
    """Which clients are inside bounded collaborative fairness, c_i < theta_i < (c_i + max theta) / 2 (Definition 1):
    bool [N].

    The upper bound cannot hold for the best contributor, who is to get the best reward: clients with c_i = max c are
    exempt from it, and nobody else is. Equal models for all are therefore outside but for the best contributor.

    >>> bcf([.3, .4, .5], [.4, .55, .6]).tolist()
    [True, False, True]
    >>> bcf([.3, .4, .5], [.6, .6, .6]).tolist()
    [False, False, True]
    """
    c, theta = _scores(contributions, rewards)
    inside: np.ndarray = (c < theta) & ((theta < (c + theta.max()) / 2) | (c == c.max()))
    return inside


def alpha_bcf(contributions: Values, rewards: Values, alpha: float = 0.5) -> np.ndarray:
    """Which clients are inside FedRAC's alpha-BCF, c_i < theta_i <= ((1 - alpha) c_i / max c + alpha) max theta: bool
    [N].

    >>> alpha_bcf([.3, .4, .5], [.4, .55, .6]).tolist()
    [True, False, True]
    """
    c, theta = _scores(contributions, rewards)
    alpha = number("alpha", alpha, least=0, most=1)
    relative = c / c.max() if c.max() > 0 else np.ones_like(c)
    inside: np.ndarray = (c < theta) & (theta <= ((1 - alpha) * relative + alpha) * theta.max())
    return inside


def fairest_rewards(contributions: Values, best_reward: float) -> np.ndarray | None:
    """theta* [N]: of all rewards inside BCF, the best contributor getting `best_reward`, those with the highest gamma;
    or their limit, where only rewards inside come ever nearer to it.

    `None` where gamma is undefined, or where the best reward is not above every contribution, so that no rewards are
    inside BCF.

    >>> fairest_rewards([.3, .48, .5], .6).round(4).tolist()
    [0.3, 0.54, 0.6]
    """
    c, best_reward = numbers("contributions", contributions), number("best reward", best_reward)
    if len(c) < 2 or np.ptp(c) == 0 or best_reward <= c.max():
        return None
    top = c == c.max()
    low, high = np.where(top, best_reward, c), np.where(top, best_reward, (c + best_reward) / 2)

    # BCF bounds each reward, low_i <= theta_i <= high_i. The rewards with the highest correlation inside these bounds
    # are a + b c, clipped to them, with mean(theta) = a + b mean(c): the KKT conditions of
    # min |theta - mean|^2 - 2 s c.theta, whose solutions over s are the candidates. For each b, this a is the root of a
    # decreasing function, piecewise linear with a kink wherever a client reaches a bound; over b, gamma has one peak,
    # which successively finer grids locate.
    def lines(b: np.ndarray) -> np.ndarray:
        bounds = np.sort(np.concatenate([low - b[:, None] * c, high - b[:, None] * c], 1), 1)

        def excess(a: np.ndarray) -> np.ndarray:
            clipped: np.ndarray = np.clip(a[:, None] + b[:, None] * c, low, high).mean(1) - a - b * c.mean()
            return clipped

        which = np.arange(len(b))
        left, right = np.zeros(len(b), dtype=int), np.full(len(b), bounds.shape[1] - 1)
        while (right - left > 1).any():
            middle = (left + right) // 2
            rising = excess(bounds[which, middle]) > 0
            left, right = np.where(rising, middle, left), np.where(rising, right, middle)
        a_left, a_right = bounds[which, left], bounds[which, right]
        at_left, at_right = excess(a_left), excess(a_right)
        fall = at_left - at_right
        a = a_left + np.where(fall > 0, at_left / np.where(fall > 0, fall, 1), 0) * (a_right - a_left)
        clipped: np.ndarray = np.clip(a[:, None] + b[:, None] * c, low, high)
        return clipped

    with np.errstate(over="ignore"):
        # The slope of the line from the least contribution to the best reward.
        steep = (best_reward - c.min()) / np.ptp(c)
        if not np.isfinite(steep * STEEPEST):  # contributions that differ by next to nothing: as if they were equal
            return None
    slopes = np.concatenate([[0], steep * np.geomspace(1e-4, STEEPEST, 60)])
    for _ in range(6):
        thetas = lines(slopes)
        peak = int(np.argmax(_gammas(c, thetas)))
        slopes = np.linspace(slopes[max(peak - 1, 0)], slopes[min(peak + 1, len(slopes) - 1)], 21)
    fairest: np.ndarray = thetas[peak]
    return fairest


def _gammas(c: np.ndarray, thetas: np.ndarray) -> np.ndarray:
    """gamma of contributions [N] with each of several rewards [n, N], none of them constant."""
    spread, centred = thetas - thetas.mean(1, keepdims=True), c - c.mean()
    if not all(SQUARED_BELOW < np.abs(values).max() < SQUARED_ABOVE for values in (centred, spread)):
        centred, spread = centred / np.abs(centred).max(), spread / np.abs(spread).max()
    values: np.ndarray = 100 * (spread @ centred) / np.sqrt((spread**2).sum(1) * (centred @ centred))
    return values


def gamma_limit(contributions: Values, best_reward: float) -> float | None:
    """gamma*: the highest gamma (a supremum) over all rewards inside BCF, the best contributor getting `best_reward`.

    `None` where gamma is undefined, or where the best reward is not above every contribution, so that no rewards are
    inside BCF.

    >>> round(gamma_limit([.3, .48, .5], .6), 4)
    99.5082
    """
    return gamma_attainable(contributions, contributions, best_reward)


def gamma_attainable(contributions: Values, known: Values, best_reward: float) -> float | None:
    """The gamma that the best rule reaches when contributions are only known as `known`, measured on other data than
    the `contributions` that gamma is taken with: that of the rewards that would be the fairest ones inside BCF if
    `known` were true, each of them hit exactly, the best one being `best_reward`.

    The fairest rewards for (.3, .48, .5) are .3, .54 and .6; contributions (.3, .5, .48) want them the other way round:

    >>> round(gamma_attainable([.3, .5, .48], [.3, .48, .5], .6), 4)
    96.0769
    """
    c, on_other_data = pairs("contributions", contributions, "known contributions", known)
    theta = fairest_rewards(on_other_data, best_reward)
    return None if theta is None else gamma(c, theta)


@dataclass(frozen=True)
class Fairness:
    """The fairness measures of one round, None where one is undefined. `bcf` and `alpha_bcf` are shares of clients."""

    gamma: float | None
    gamma_limit: float | None
    bcf: float
    alpha_bcf: float
    accuracy: dict[str, float]
    mcg: float
    cgs: float

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def fairness(contributions: Values, rewards: Values) -> Fairness:
    """gamma, gamma*, the shares of clients inside BCF and alpha-BCF, the rewards' max, mean and min, and the mean and
    spread of the collaboration gain."""
    contributions, theta = _scores(contributions, rewards)
    return Fairness(
        gamma=gamma(contributions, theta),
        gamma_limit=gamma_limit(contributions, float(theta.max())),
        bcf=float(bcf(contributions, theta).mean()),
        alpha_bcf=float(alpha_bcf(contributions, theta).mean()),
        accuracy={"max": float(theta.max()), "mean": float(theta.mean()), "min": float(theta.min())},
        mcg=mcg(contributions, theta),
        cgs=cgs(contributions, theta),
    )
