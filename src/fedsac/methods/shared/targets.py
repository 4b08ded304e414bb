"""Target rewards: as close to proportional to contributions as bounded collaborative fairness (BCF) permits."""

import numpy as np

SLOPES = np.concatenate([[0], np.geomspace(0.05, 20, 40)])  # the slopes b of the lines a + b c that are tried
OFFSETS = np.linspace(0, 1, 81)  # for each, the offsets a, from the lowest (0) to the highest (1) of any use


def targets(c: np.ndarray, best: float, error: float, room: float, *, ties: bool) -> np.ndarray:
    """Target scores [N] for contributions `c` when the whole model reaches `best`; inf: give everything.

    A target lies between c_i and (c_i + best) / 2, `room` standard errors (`error`) away from both, or in the middle
    where there is less room than that. Inside these bounds the targets follow the line a + b c with the highest Pearson
    correlation to c. Clients whose contribution is at least `best` get the whole model.

    `ties`: how many of the best contributors get the whole model is chosen for the highest correlation, too; without
    it, only the best ones do. A client with the best reward is exempt from BCF's upper bound, so clients with nearly
    equal contributions are not separated by the gap that this bound forces between the best reward and the others.

    >>> targets(np.array([.2, .3, .4]), best=.5, error=.0, room=1., ties=True).round(2).tolist()
    [0.2, 0.35, inf]
    """
    low, high = c, (c + best) / 2
    margin = np.minimum(room * error, np.maximum(high - low, 0) / 2)
    low, high = low + margin, np.maximum(high - margin, low + margin)
    ranked = np.sort(c)[::-1]
    best_targets, highest = np.full(len(c), np.inf), -np.inf
    for least in dict.fromkeys(ranked[: len(c) - 1 if ties else 1]):  # equal contributors are treated alike
        top = c >= least
        theta, score = _best_line(c, np.where(top, best, low), np.where(top, best, high))
        if score > highest + 1e-9:
            best_targets, highest = np.where(top, np.inf, theta), score
    return np.where(c >= best, np.inf, best_targets)


def _best_line(c: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, float]:
    """The line a + b c, clipped to the bounds [N], with the highest Pearson correlation to c, and that correlation."""
    tilted_low, tilted_high = low - SLOPES[:, None] * c, high - SLOPES[:, None] * c
    first, last = tilted_low.min(1, keepdims=True), tilted_high.max(1, keepdims=True)
    offsets = first + OFFSETS * (last - first)  # from the line below all bounds to the one above
    lines = np.clip(offsets[:, :, None] + SLOPES[:, None, None] * c, low, high).reshape(-1, len(c))
    centred, spread = c - c.mean(), lines - lines.mean(1, keepdims=True)
    norm = np.sqrt((spread**2).sum(1) * (centred @ centred))
    scores = np.divide(spread @ centred, norm, out=np.full(len(norm), -np.inf), where=norm > 1e-12)
    k = int(scores.argmax())
    return lines[k], float(scores[k])
