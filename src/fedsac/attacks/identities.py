"""Attacks on who counts as a client: one party under several names, data sets cut up or put together before joining."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from fedsac.attacks.base import Attack
from fedsac.data.split import Split
from fedsac.errors import FedsacError
from fedsac.rng import stream

Parts = Callable[[np.ndarray], Sequence[np.ndarray]]


class Sybils(Attack):
    """One party joins under several names (2, or as many as the number says), each with the same whole data set, and
    keeps the best of the rewards."""

    default, parties, one_party = 2.0, 1, True

    def deal(self, split: Split, hostile: tuple[str, ...]) -> Split:
        count = self._count()
        return under_names(split, hostile, lambda own: [own] * count)

    def _count(self) -> int:
        return whole(self.number, 2)


class CutUp(Sybils):
    """One party cuts its data set into parts (2), joins under a name for each, and keeps the best of the rewards."""

    def deal(self, split: Split, hostile: tuple[str, ...]) -> Split:
        count = self._count()

        def parts(own: np.ndarray) -> Sequence[np.ndarray]:
            if len(own) < count:
                raise FedsacError(f"attack cut-up: {len(own)} samples cannot be cut into {count} parts; take fewer")
            return np.array_split(stream(0, "cut up", len(own)).permutation(own), count)

        return under_names(split, hostile, parts)


class Merge(Attack):
    """Parties put their data sets together, join as one client under the first one's name, and share its reward."""

    one_party = True

    def deal(self, split: Split, hostile: tuple[str, ...]) -> Split:
        rows = dict(zip(split.clients, split.rows, strict=True))
        rows[hostile[0]] = np.unique(np.concatenate([rows[name] for name in hostile]))
        left = {name: own for name, own in rows.items() if name not in hostile[1:]}
        return replace(split, clients=tuple(left), rows=tuple(left.values()), hostile=hostile[:1])


def under_names(split: Split, hostile: tuple[str, ...], parts: Parts) -> Split:
    """The split in which each hostile client stands under several names, one for each of its `parts` of rows."""
    names: list[str] = []
    rows: list[np.ndarray] = []
    identities: list[str] = []
    for name, own in zip(split.clients, split.rows, strict=True):
        dealt = parts(own) if name in hostile else [own]
        for k, part in enumerate(dealt):
            names.append(name if k == 0 else f"{name}-as-{k + 1}")
            rows.append(part)
            if name in hostile:
                identities.append(names[-1])
    if len(set(names)) < len(names):
        raise FedsacError("a client's name is that of another one's double; rename it")
    return replace(split, clients=tuple(names), rows=tuple(rows), hostile=tuple(identities))


def whole(number: float | None, least: int) -> int:
    if number is None or number != int(number) or number < least:
        raise FedsacError(f"this attack takes a whole number of at least {least}, not {number:g}")
    return int(number)
