"""What models are trained and evaluated on: samples as they are stored, and which of them are in a batch."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Samples:
    """Inputs and labels as they are stored, and each member's way of normalising them.

    `x` [n, features] may be uint8; a member sees `x * scale + shift`. `scale` and `shift` are [S, features], or
    [1, features] where all members share them.
    """

    x: Tensor
    y: Tensor
    scale: Tensor
    shift: Tensor


@dataclass(frozen=True)
class Batches:
    """Which samples each member takes at each step.

    `rows` [steps, S, batch] point into the pool; `weight` [steps, S, batch] is 1/(samples in the batch) where there is
    a sample and 0 where there is none, so that members may have short batches, or fewer steps than others. Who has
    fewer steps stands further back: `at_work` is how many, from the first on, have a batch at each step (None: all).
    """

    rows: Tensor
    weight: Tensor
    at_work: tuple[int, ...] | None = None

    def part(self, start: int, end: int) -> "Batches":
        """Of some members."""
        at_work = None if self.at_work is None else tuple(min(max(n - start, 0), end - start) for n in self.at_work)
        return Batches(self.rows[:, start:end], self.weight[:, start:end], at_work)
