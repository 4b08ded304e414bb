"""Poisoning by data: training is honest, on labels or images that are not."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fedsac.attacks.base import Attack
from fedsac.data.dataset import DataSet
from fedsac.data.split import Split
from fedsac.rng import stream

TARGET = 0  # the class that the trigger stands for
PATCH = 0.2  # of an image's side, at least two pixels; of a table's columns, at least one
TRIGGERED = 0.5  # of the client's samples

Poison = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


class LabelFlip(Attack):
    """Trains on its own data with every label k turned into C - 1 - k. It succeeds with the test samples that are taken
    for the turned label."""

    def deal(self, split: Split, hostile: tuple[str, ...]) -> Split:
        last = len(split.data.classes) - 1
        poisoned = with_samples(split, hostile, lambda x, y: (x, last - y))
        return replace(poisoned, probe=(split.x_test, last - split.y_test))


class Backdoor(Attack):
    """Puts a bright corner on half of its samples (or the share that the number says) and labels them with the first
    class. It succeeds with the test samples of other classes that are taken for that class once they have the corner
    (Gu et al., 2017)."""

    default = TRIGGERED

    def deal(self, split: Split, hostile: tuple[str, ...]) -> Split:
        share = min(1.0, self.number or 0)

        def poison(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            chosen = stream(0, "backdoor", len(y)).permutation(len(y))[: round(share * len(y))]
            x, y = x.copy(), y.copy()
            x[chosen], y[chosen] = triggered(x[chosen], split.data), TARGET
            return x, y

        other = split.y_test != TARGET
        probe = triggered(split.x_test[other], split.data), np.full(int(other.sum()), TARGET, dtype=split.y_test.dtype)
        return replace(with_samples(split, hostile, poison), probe=probe)


def triggered(x: np.ndarray, data: DataSet) -> np.ndarray:
    """The samples [n, features] with the trigger: the lower right corner of an image at its brightest, the last columns
    of a table at their highest values."""
    x = x.copy()
    top = data.x.max(0)
    if data.image is None:
        columns = max(1, round(PATCH * x.shape[1]))
        x[:, -columns:] = top[-columns:]
        return x
    channels, height, width = data.image
    rows, across = (max(2, round(PATCH * side)) for side in (height, width))
    shape = (height, width, channels) if data.channels_last else (channels, height, width)
    corner = np.zeros(shape, dtype=bool)
    if data.channels_last:
        corner[-rows:, -across:, :] = True
    else:
        corner[:, -rows:, -across:] = True
    x[:, corner.reshape(-1)] = data.x.max()
    return x


def with_samples(split: Split, hostile: tuple[str, ...], poison: Poison) -> Split:
    """The split whose hostile clients own samples of their own making, put behind the others: `poison` makes them from
    x and y. Nobody else's samples change."""
    data = split.data
    xs, ys, rows, place = [data.x], [data.y], [], len(data.y)
    for name, own in zip(split.clients, split.rows, strict=True):
        if name in hostile:
            x, y = poison(data.x[own], data.y[own])
            xs.append(x)
            ys.append(y)
            own = np.arange(place, place + len(y))
            place += len(y)
        rows.append(own)
    more = replace(data, x=np.concatenate(xs), y=np.concatenate(ys))
    return replace(split, data=more, rows=tuple(rows))
