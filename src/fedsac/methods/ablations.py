"""FedSAC without one of its two modules (Tables 3 and 4), and with another reading of Eq. 9.

- `fedsac-no-allocation`: all neurons count as equally important, in a seeded random order.
- `fedsac-no-aggregation`: Eq. 9 is replaced by FedAvg's mean, weighted by samples, of the clients' full-size models.
  The paper does not say what stands where a client holds nothing: here the global value, which is what a client sends
  whose masks act in the forward pass. (Counted as 0, training collapses.)
- `fedsac-over-n`: updates are added up and divided by the number of clients, so that whoever does not hold a parameter
  counts as having left it as it was. A reading of "averages" under which more of the paper's numbers are met than under
  Eq. 9 as printed, which divides by the holders (docs/decisions.md); not the authors' code, which is not public.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedsac.methods.base import State, Task, Updates
from fedsac.methods.fedsac import FedSAC
from fedsac.methods.shared.gradients import sample_shares, weighted_sum


@dataclass(frozen=True)
class NoAllocation(FedSAC):
    def measure_importance(self, task: Task, model: Tensor, rounds_done: int) -> Tensor:
        # Equal importance, but for tiny differences that fix one random order for the whole run.
        order = task.stream("neuron order").permutation(task.layout.neurons)
        values = 1 + 1e-9 * torch.from_numpy(order).double()
        return values.to(model.device)


@dataclass(frozen=True)
class NoAggregation(FedSAC):
    def aggregate(self, task: Task, state: State, updates: Updates) -> Tensor:
        whole = torch.where(task.layout.held(updates.neurons), updates.params, state["model"])
        return weighted_sum(sample_shares(task, updates.clients), whole)


@dataclass(frozen=True)
class OverN(FedSAC):
    damping: float = 1.0
