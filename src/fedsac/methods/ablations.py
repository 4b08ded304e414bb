"""FedSAC without one of its two modules (Tables 3 and 4).

- `fedsac-no-allocation`: all neurons count as equally important, in a seeded random order.
- `fedsac-no-aggregation`: Eq. 9 is replaced by FedAvg's weighted mean of the clients' full-size models; what a client
  does not hold counts as 0, as the paper says.
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
        masked = torch.where(task.layout.held(updates.neurons), updates.params, 0)
        return weighted_sum(sample_shares(task, updates.clients), masked)
