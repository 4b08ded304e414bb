"""Which samples a client takes at each step: a fresh shuffle every epoch, the incomplete last batch dropped."""

from collections.abc import Sequence

import numpy as np


def draw(samples: int, steps: int, batch: int, rng: np.random.Generator) -> np.ndarray:
    """Positions [steps, batch] in a client's `samples`; fewer samples than a batch make [steps, samples]: all of them
    at every step."""
    if samples <= batch:
        return np.tile(np.arange(samples), (steps, 1))
    per_epoch = samples // batch
    epochs = -(-steps // per_epoch)
    order = np.concatenate([rng.permutation(samples)[: per_epoch * batch] for _ in range(epochs)])
    return order[: steps * batch].reshape(steps, batch)


def stacked(
    rows: Sequence[np.ndarray], steps: Sequence[int], batch: int, rngs: Sequence[np.random.Generator]
) -> tuple[np.ndarray, np.ndarray]:
    """Rows [steps, S, batch] into the pool for S clients and their weights: 1/(batch's size), or 0 where a client has
    no such sample or is done. Where nobody has a full batch, the widest there is will do."""
    longest, width = max(steps), min(batch, max(map(len, rows)))
    picked = np.zeros((longest, len(rows), width), dtype=np.int64)
    weight = np.zeros((longest, len(rows), width))
    for i, (own, count, rng) in enumerate(zip(rows, steps, rngs, strict=True)):
        picked[:, i] = own[0]  # what fills up is the client's own: even at weight 0 another's infinity would spread
        positions = draw(len(own), count, batch, rng)
        size = positions.shape[1]
        picked[:count, i, :size] = own[positions]
        weight[:count, i, :size] = 1 / size
    return picked, weight
