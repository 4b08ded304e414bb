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
    """The longest prefix that each client has earned, `earned` [N], the reputation `at` which it was [N], and what was
    `granted` in the last rounds [rounds, N]."""

    earned: Tensor
    at: Tensor
    granted: Tensor

    def now(self, reputation: Tensor) -> Tensor:
        """How many neurons each client holds now [N]: what it has earned, or, while it counts less, no more than was
        granted in this round."""
        return torch.where(reputation < self.at, torch.minimum(self.earned, self.granted[-1]), self.earned)

    def carried_over(self, before: Sequence[str], clients: Sequence[str], reputation: Tensor) -> "SlowLengths":
        """For other clients, by name: whoever stays has what it had, and counts less where its reputation falls with
        the change; who joins has earned nothing."""
        rows = [before.index(name) if name in before else -1 for name in clients]
        new = torch.tensor([row < 0 for row in rows], device=self.earned.device)
        return SlowLengths(
            torch.where(new, 0, self.earned[rows]),
            torch.where(new, reputation, self.at[rows]),
            torch.where(new, torch.iinfo(torch.int64).max, self.granted[:, rows]),
        )


def slow_lengths(
    granted: Tensor, reputation: Tensor, neurons: int, before: SlowLengths | None, *, capped: bool
) -> SlowLengths:
    """The lengths after so many neurons were granted to each client [N], int64. While `capped`, nobody earns more than
    its reputation [N], from 0 to 100, as a share of all neurons, or `LEAST` of them.

    >>> r = torch.tensor([50.0, 100.0])
    >>> first = slow_lengths(torch.tensor([9, 10]), r, 10, None, capped=True)
    >>> first.now(r).tolist()
    [5, 10]
    >>> second = slow_lengths(torch.tensor([7, 10]), r, 10, first, capped=False)
    >>> slow_lengths(torch.tensor([3, 10]), r, 10, second, capped=False).now(r).tolist()
    [7, 10]
    """
    if before is None:
        before = SlowLengths(torch.zeros_like(granted), reputation, granted.new_empty(0, len(granted)))
    lately = torch.cat([before.granted, granted.unsqueeze(0)])[-LATELY:]
    lasting = lately.min(0).values
    if capped:
        share = (reputation / 100).clamp_min(LEAST)
        lasting = torch.minimum(lasting, (share * neurons).long().clamp_min(1))
    grown = torch.maximum(before.earned, lasting)
    return SlowLengths(torch.where(reputation < before.at, before.earned, grown), before.at, lately)
