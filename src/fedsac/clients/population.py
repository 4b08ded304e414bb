"""The clients of a run: who they are, what data each owns, how they train."""

from dataclasses import dataclass

import numpy as np

from fedsac.compute.samples import Samples
from fedsac.core.units import Layout


@dataclass(frozen=True)
class Clients:
    """The clients of one run: the `rows` of the pool that each owns, and how they train."""

    layout: Layout
    names: tuple[str, ...]
    rows: tuple[np.ndarray, ...]
    pool: Samples
    lr: float
    batch: int
    local_steps: int
    seed: int

    def epoch(self) -> tuple[int, ...]:
        """Steps of one epoch, for each client."""
        return tuple(max(1, len(own) // self.batch) for own in self.rows)
