"""Which samples a client trains on at each step: a new shuffle every epoch, the incomplete last batch dropped; or, for
differential privacy, each sample by itself at random."""

from collections.abc import Sequence

import numpy as np


def client_batches(samples: int, steps: int, batch: int, rng: np.random.Generator) -> np.ndarray:
    """One client's batches: positions [steps, batch] among its `samples`. With fewer samples than a batch, each step
    takes all of them: [steps, samples]."""
    if samples <= batch:
        return np.tile(np.arange(samples), (steps, 1))
    per_epoch = samples // batch
    epochs = -(-steps // per_epoch)
    order = np.concatenate([rng.permutation(samples)[: per_epoch * batch] for _ in range(epochs)])
    return order[: steps * batch].reshape(steps, batch)


def balanced_weights(labels: np.ndarray) -> np.ndarray:
    """A weight for each sample [n], by which every class that occurs counts as much as any other: n / (classes that
    occur * samples of the class), which has mean 1.

    >>> balanced_weights(np.array([0, 0, 0, 2])).round(3).tolist()
    [0.667, 0.667, 0.667, 2.0]
    """
    _, classes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    weights: np.ndarray = len(labels) / (len(counts) * counts[classes])
    return weights


def drawn_batches(
    rows: Sequence[np.ndarray], steps: Sequence[int], batch: int, rngs: Sequence[np.random.Generator]
) -> tuple[np.ndarray, np.ndarray]:
    """Batches of S clients as `stacked_batches` has them, in which every sample of a client's is by itself with
    probability min(1, batch / samples), as the accountant of differential privacy assumes. A weight is 1/(samples
    expected), or 0 for padding: a batch may be empty, or larger than `batch`."""
    picks = [
        [np.flatnonzero(rng.random(len(own)) < batch / len(own)) for _ in range(count)]
        for own, count, rng in zip(rows, steps, rngs, strict=True)
    ]
    width = max(1, max(len(one) for own in picks for one in own))
    picked = np.zeros((max(steps), len(rows), width), dtype=np.int64)
    weight = np.zeros((max(steps), len(rows), width))
    for i, own in enumerate(rows):
        for step, one in enumerate(picks[i]):
            picked[step, i, : len(one)] = own[one]
            weight[step, i, : len(one)] = 1 / min(batch, len(own))
    return picked, weight


def stacked_batches(
    rows: Sequence[np.ndarray],
    steps: Sequence[int],
    batch: int,
    rngs: Sequence[np.random.Generator],
    sample_weights: Sequence[np.ndarray | None] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The batches of S clients: rows of the pool and sample weights, [steps, S, batch] each.

    Client i owns rows `rows[i]` of the pool and takes `steps[i]` steps. A weight is 1/(size of the batch), or 0 where
    the client's batch is shorter or all its steps are taken. Where no client has a full batch, the last axis has the
    size of the largest. A client with `sample_weights` [samples] has these instead, divided by their sum in the batch,
    as torch's weighted cross-entropy does: a rare class makes a step turn, not grow.
    """
    longest, width = max(steps), min(batch, max(map(len, rows)))
    picked = np.zeros((longest, len(rows), width), dtype=np.int64)
    weight = np.zeros((longest, len(rows), width))
    for i, (own, count, rng) in enumerate(zip(rows, steps, rngs, strict=True)):
        picked[:, i] = own[
            0
        ]  # padding is the client's own: an infinity of another client would spread at weight 0, too
        positions = client_batches(len(own), count, batch, rng)
        size = positions.shape[1]
        picked[:count, i, :size] = own[positions]
        weight[:count, i, :size] = 1 / size
        own_weights = None if sample_weights is None else sample_weights[i]
        if own_weights is not None:
            picked_weights = own_weights[positions]
            weight[:count, i, :size] = picked_weights / picked_weights.sum(1, keepdims=True)
    return picked, weight
