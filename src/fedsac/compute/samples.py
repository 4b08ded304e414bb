"""Samples as they are stored, and the batches that models are trained on."""

from dataclasses import dataclass

from torch import Tensor

from fedsac.core.transfer import to_device


@dataclass(frozen=True)
class Samples:
    """Inputs and labels as they are stored, and how each member of a stack normalises them.

    `x` [n, features] may be uint8, `y` is [n]; the input of a member is `x * scale + shift`. `scale` and `shift` are
    [S, features], or [1, features] where all members share them.
    """

    x: Tensor
    y: Tensor
    scale: Tensor
    shift: Tensor


@dataclass(frozen=True)
class Batches:
    """Which samples each member of a stack trains on at each step.

    `rows` [steps, S, batch] are rows of the pool; `weight` [steps, S, batch] is 1/(samples in the batch), or by class
    weights, of sum 1, or 0 for padding: members may have shorter batches, or fewer steps, than others. Members are
    sorted by descending number of steps: at step i, the first `members_at_step[i]` of them train (None: all of them,
    at every step).

    For networks that are no perceptrons: `augment` [steps, S, batch, 3], how each image is changed (turned, moved down
    and to the right), and `seeds` [S], of what the network itself draws (dropout); None: nothing is. `sizes` [S]:
    samples in each member's batches (with differential privacy: expected ones), known on the CPU as `seeds` are.
    """

    rows: Tensor
    weight: Tensor
    members_at_step: tuple[int, ...] | None = None
    augment: Tensor | None = None
    seeds: Tensor | None = None
    sizes: Tensor | None = None

    def of_members(self, start: int, end: int) -> "Batches":
        """The batches of members start to end - 1."""
        at_step = self.members_at_step
        counts = None if at_step is None else tuple(min(max(n - start, 0), end - start) for n in at_step)
        return Batches(self.rows[:, start:end], self.weight[:, start:end], counts)

    def ordered(self, members: Tensor, members_at_step: tuple[int, ...] | None = None) -> "Batches":
        """The batches of these members, in this order: numbers [k] on the CPU, so that nobody waits for a GPU."""
        at = to_device(members, self.rows.device)
        augment = None if self.augment is None else self.augment[:, at]
        seeds, sizes = (None if of_each is None else of_each[members] for of_each in (self.seeds, self.sizes))
        return Batches(self.rows[:, at], self.weight[:, at], members_at_step, augment, seeds, sizes)
