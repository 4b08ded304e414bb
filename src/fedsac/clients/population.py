"""The clients of a run: their names, the data of each, how they train."""

from dataclasses import dataclass

import numpy as np

from fedsac.compute.batches import balanced_weights
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
    labels: np.ndarray | None = None  # of the pool, on the CPU, where samples weigh by each client's own class counts

    def rate(self, progress: float) -> float:
        """The learning rate after this share of the training."""
        return self.lr * rate_factor(self.lr_schedule, progress)

    def sample_weights(self, rows: np.ndarray) -> np.ndarray | None:
        """What the samples of a client with these rows weigh [samples]; None: all alike."""
        return None if self.labels is None else balanced_weights(self.labels[rows])

    def steps_per_epoch(self) -> tuple[int, ...]:
        """The number of SGD steps in an epoch, for each client."""
        return tuple(max(1, len(own) // self.batch) for own in self.rows)
