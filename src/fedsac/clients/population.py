"""The clients of a run: their names, the data of each, how they train."""

from dataclasses import dataclass

import numpy as np

from fedsac.compute.samples import Samples
from fedsac.core.units import Layout


@dataclass(frozen=True)
class Clients:
    """The clients of one run. `rows` are the rows of the `pool` of samples that each client owns."""

    layout: Layout
    names: tuple[str, ...]
    rows: tuple[np.ndarray, ...]
    pool: Samples
    lr: float
    batch: int
    local_steps: int
    seed: int

    def steps_per_epoch(self) -> tuple[int, ...]:
        """The number of SGD steps in an epoch, for each client."""
        return tuple(max(1, len(own) // self.batch) for own in self.rows)
