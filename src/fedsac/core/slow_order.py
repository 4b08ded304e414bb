"""An order of neurons that settles, so that little is gained by keeping what one was given before.

Under Eq. 7 a client gets the least important neurons, by the importance of this very round. The order jumps from round
to round, and over a run nearly every client has held nearly every neuron: whoever keeps them all ends with more than it
was paid. Here neurons are ordered by the mean of their ranks in the first rounds, and after these the order stands
still. How many of them a client gets still follows from this round's importance, slowly (`slow_lengths.py`).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

SETTLED = 5  # rounds, after which the order stands still


@dataclass(frozen=True)
class SlowOrder:
    """The mean of ranks by importance over the first `SETTLED` of `rounds` rounds, float64 [neurons]. What is measured
    before the first round says nothing, and counts as 0 rounds."""

    ranks: Tensor
    rounds: int = 0

    @property
    def settled(self) -> bool:
        return self.rounds >= SETTLED


def slowed(importance: Tensor, before: SlowOrder | None) -> SlowOrder:
    """The order after one more measurement of importance [neurons].

    >>> first = slowed(torch.tensor([0.3, 0.1]), None)
    >>> second = slowed(torch.tensor([0.2, 0.1]), first)
    >>> slowed(torch.tensor([0.0, 0.4]), second).ranks.tolist()
    [0.5, 0.5]
    """
    ranks = importance.argsort(stable=True).argsort().double()
    if before is None:
        return SlowOrder(ranks)
    rounds = before.rounds + 1
    return SlowOrder(before.ranks if before.settled else torch.lerp(before.ranks, ranks, 1 / rounds), rounds)
