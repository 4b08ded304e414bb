"""The clients of a run: their names, the data of each, how they train."""

from dataclasses import dataclass

import numpy as np

from fedsac.compute.samples import Samples
from fedsac.core.module_layout import AnyLayout
from fedsac.recipe import rate_factor


@dataclass(frozen=True)
class Clients:
    """The clients of one run. `rows` are the rows of the `pool` of samples that each client owns."""

    layout: AnyLayout
    names: tuple[str, ...]
    rows: tuple[np.ndarray, ...]
    pool: Samples
    lr: float
    batch: int
    local_steps: int
    seed: int
    rounds: int = 1
    lr_schedule: str = "constant"

    def rate(self, progress: float) -> float:
        """The learning rate after this share of the training."""
        return self.lr * rate_factor(self.lr_schedule, progress)

    def steps_per_epoch(self) -> tuple[int, ...]:
        """The number of SGD steps in an epoch, for each client."""
        return tuple(max(1, len(own) // self.batch) for own in self.rows)
