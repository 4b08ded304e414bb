"""How many neurons of a settled order each client holds, where whoever keeps all that it ever held must not end with
more than it was paid.

Prefixes of one order are nested, so a client ever held as much as the longest of its prefixes. Importance says little
in the first rounds and jumps in all of them, and with it how much Eq. 7 grants. So a prefix begins at the client's
reputation as a share of all neurons, or below. Later it grows to what was granted in each of the last `LATELY` rounds.
It never shrinks, but while the client's contribution counts less than it did.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

LATELY = 3  # rounds in all of which more must have been granted
LEAST = 0.1  # of all neurons, to which no prefix is capped: of a few neurons' steps, noise looks like work


@dataclass(frozen=True)
class SlowLengths:
    """The longest prefix that each client has earned, `earned` [N], the contribution `at` which it was, float64 [N],
    and what was `granted` in the last rounds [rounds, N]."""

    earned: Tensor
    at: Tensor
    granted: Tensor

    def now(self, contributions: Tensor) -> Tensor:
        """How many neurons each client holds now [N]: what it has earned, or, while its contribution counts less, no
        more than was granted in this round. Not its reputation: that falls, too, when a better client joins."""
        return torch.where(contributions < self.at, torch.minimum(self.earned, self.granted[-1]), self.earned)

    def carried_over(
        self, before: Sequence[str], clients: Sequence[str], contributions: Tensor, granted: Tensor, most: Tensor
    ) -> "SlowLengths":
        """For other clients, by name, of whom each would be `granted` so much now [N]. Whoever stays has what it had;
        who joins begins with what is granted to it, at most `most` [N]. No round has passed: nobody's prefix grows."""
        rows = [before.index(name) if name in before else -1 for name in clients]
        new = torch.tensor([row < 0 for row in rows], device=self.earned.device)
        first = torch.minimum(granted, most)
        history = torch.where(new, first, self.granted[:, rows])
        history[-1] = torch.minimum(history[-1], granted)
        return SlowLengths(
            torch.where(new, first, self.earned[rows]),
            torch.where(new, contributions, self.at[rows]),
            history,
        )


def share_of_neurons(reputation: Tensor, neurons: int) -> Tensor:
    """A reputation [N], from 0 to 100, as a share of all neurons, or `LEAST` of them, int64 [N].

    >>> share_of_neurons(torch.tensor([1.0, 50.0, 100.0]), 30).tolist()
    [3, 15, 30]
    """
    return ((reputation / 100).clamp_min(LEAST) * neurons).long().clamp_min(1)


def slow_lengths(
    granted: Tensor, contributions: Tensor, before: SlowLengths | None, most: Tensor | None = None
) -> SlowLengths:
    """The lengths after so many neurons were granted to each client [N], int64. Nobody earns more than `most` [N].

    >>> c, most = torch.tensor([0.4, 0.8]), torch.tensor([5, 10])
    >>> first = slow_lengths(torch.tensor([9, 10]), c, None, most)
    >>> first.now(c).tolist()
    [5, 10]
    >>> second = slow_lengths(torch.tensor([7, 10]), c, first)
    >>> slow_lengths(torch.tensor([3, 10]), c, second).now(c).tolist()
    [7, 10]
    """
    if before is None:
        before = SlowLengths(torch.zeros_like(granted), contributions, granted.new_empty(0, len(granted)))
    lately = torch.cat([before.granted, granted.unsqueeze(0)])[-LATELY:]
    lasting = lately.min(0).values
    grown = torch.maximum(before.earned, lasting if most is None else torch.minimum(lasting, most))
    return SlowLengths(torch.where(contributions < before.at, before.earned, grown), before.at, lately)
