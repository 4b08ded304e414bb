"""Target rewards: as close to proportional to contributions as bounded collaborative fairness (BCF) permits."""

import numpy as np

SLOPES = np.concatenate([[0], np.geomspace(0.05, 20, 40)])  # the slopes b of the lines a + b c that are tried
OFFSETS = np.linspace(0, 1, 81)  # for each, the offsets a, from the lowest (0) to the highest (1) of any use


def targets(c: np.ndarray, best: float, error: float, room: float, generous: float = 0.0) -> np.ndarray:
    """Target scores [N] for contributions `c` when the whole model reaches `best`; inf: give everything.

    A target lies between c_i and (c_i + best) / 2, `room` standard errors (`error`) away from both, or in the middle
    where there is less room than that. Inside these bounds the targets follow the line a + b c with the highest Pearson
    correlation to c; of the lines whose correlation is at most `generous` lower, the one that gives most. The best
    contributors get the whole model, and so do clients whose contribution is at least `best`: nothing that they can be
    given is inside BCF.

    >>> targets(np.array([.2, .3, .4]), best=.5, error=.0, room=1.).round(2).tolist()
    [0.2, 0.35, inf]
    """
    low, high = c, (c + best) / 2
    margin = np.minimum(room * error, np.maximum(high - low, 0) / 2)
    low, high = low + margin, np.maximum(high - margin, low + margin)
    top = c == c.max()
    theta = _best_line(c, np.where(top, best, low), np.where(top, best, high), generous)
    return np.where(top | (c >= best), np.inf, theta)


def _best_line(c: np.ndarray, low: np.ndarray, high: np.ndarray, generous: float) -> np.ndarray:
    """The line a + b c, clipped to the bounds [N], with the highest Pearson correlation to c; of those at most
    `generous` below it, the highest."""
    tilted_low, tilted_high = low - SLOPES[:, None] * c, high - SLOPES[:, None] * c
    first, last = tilted_low.min(1, keepdims=True), tilted_high.max(1, keepdims=True)
    offsets = first + OFFSETS * (last - first)  # from the line below all bounds to the one above
    lines = np.clip(offsets[:, :, None] + SLOPES[:, None, None] * c, low, high).reshape(-1, len(c))
    centred, spread = c - c.mean(), lines - lines.mean(1, keepdims=True)
    norm = np.sqrt((spread**2).sum(1) * (centred @ centred))
    scores = np.divide(spread @ centred, norm, out=np.full(len(norm), -np.inf), where=norm > 1e-12)
    near = scores >= scores.max() - generous
    chosen: np.ndarray = lines[int(np.where(near, lines.mean(1), -np.inf).argmax() if generous else scores.argmax())]
    return chosen
