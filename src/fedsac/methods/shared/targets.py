"""Rewards to aim at: as close to proportional as bounded collaborative fairness permits."""

import numpy as np

SLOPES = np.concatenate([[0], np.geomspace(0.05, 20, 40)])
OFFSETS = np.linspace(0, 1, 81)


def targets(c: np.ndarray, best: float, error: float, room: float, *, ties: bool = True) -> np.ndarray:
    """Target scores [N] for contributions `c` when the whole model reaches `best`; inf: give everything.

    A target lies between c_i and (c_i + best) / 2, `room` standard errors (`error`) away from both, or in the middle
    where there is less room than that. Inside these bounds the targets follow the line a + b c with the highest Pearson
    correlation to c. Contributors that the model is not better than get all there is.

    `ties`: how many of the best contributors share the whole model is chosen for the highest correlation, too. Whoever
    gets the best reward is exempt from BCF's upper bound, and clients that contribute nearly alike are not set apart by
    the step which that bound forces between the best and the rest.

    >>> targets(np.array([.2, .3, .4]), best=.5, error=.0, room=1.).round(2).tolist()
    [0.2, 0.35, inf]
    """
    low, high = c, (c + best) / 2
    margin = np.minimum(room * error, np.maximum(high - low, 0) / 2)
    low, high = low + margin, np.maximum(high - margin, low + margin)
    ranked = np.sort(c)[::-1]
    found, highest = np.full(len(c), np.inf), -np.inf
    for least in dict.fromkeys(ranked[: len(c) - 1 if ties else 1]):  # equal contributors are treated alike
        top = c >= least
        theta, score = _line(c, np.where(top, best, low), np.where(top, best, high))
        if score > highest + 1e-9:
            found, highest = np.where(top, np.inf, theta), score
    return np.where(c >= best, np.inf, found)


def _line(c: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, float]:
    """The line, clipped to the bounds, with the highest correlation to c, and that correlation."""
    tilted_low, tilted_high = low - SLOPES[:, None] * c, high - SLOPES[:, None] * c
    first, last = tilted_low.min(1, keepdims=True), tilted_high.max(1, keepdims=True)
    offsets = first + OFFSETS * (last - first)  # from the line below all bounds to the one above
    lines = np.clip(offsets[:, :, None] + SLOPES[:, None, None] * c, low, high).reshape(-1, len(c))
    centred, spread = c - c.mean(), lines - lines.mean(1, keepdims=True)
    norm = np.sqrt((spread**2).sum(1) * (centred @ centred))
    scores = np.divide(spread @ centred, norm, out=np.full(len(norm), -np.inf), where=norm > 1e-12)
    k = int(scores.argmax())
    return lines[k], float(scores[k])
