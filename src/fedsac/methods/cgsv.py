"""CGSV (Xu et al., NeurIPS 2021): gradients as rewards, by their similarity to the common direction.

    g_i = Gamma D_i / |D_i|,  D_i = trained - received (the client goes back to what it received)
    g   = sum_i w_i g_i,  w = n_i/n in the first round, then r
    r_i <- .95 r_i + .05 cos(g_i, g), at least 1e-3, then divided by the sum
    q_i = tanh(beta r_i) / max_k tanh(beta r_k)
    theta_i <- theta_i + the largest q_i of g's entries, tensor by tensor

Gamma is .5, and .15 on CIFAR-10; beta is chosen on validation data. With `reward_by = "contribution"`, as in FedSAC's
tables, r = c / sum c throughout. The published code keeps at most n - 1 of n entries, even at q = 1.
"""

from dataclasses import dataclass

import torch

from fedsac.methods.base import State, Task, Updates
from fedsac.methods.shared.gradients import (
    GradientMethod,
    cosines,
    local_updates,
    rescaled,
    sample_shares,
    weighted_sum,
)
from fedsac.methods.shared.largest import largest_entries


@dataclass(frozen=True)
class CGSV(GradientMethod):
    beta: float = 1.0

    def learn(self, task: Task, state: State, updates: Updates) -> State:
        if not updates.clients:
            return state
        who, r = updates.who, state["r"].clone()
        g = rescaled(local_updates(updates, state["models"]), self.length)
        # By number of samples also in a later round, where no client that answered has a reputation yet.
        weights = r[who] if updates.round and r[who].sum() > 0 else sample_shares(task, updates.clients)
        total = weighted_sum(weights / weights.sum(), g)
        if self.reward_by == "own":
            r[who] = 0.95 * r[who] + 0.05 * cosines(g, total)
            r = r.clamp_min(1e-3)
            r = r / r.sum()
        return {"models": state["models"] + largest_entries(task.layout, total, quota(r, self.beta)), "r": r}


def quota(r: torch.Tensor, beta: float) -> torch.Tensor:
    """tanh(beta r_i) / max_k tanh(beta r_k), [N]: the share of the update's entries that each client gets.

    >>> quota(torch.tensor([.1, .2, .3, .4], dtype=torch.float64), 2.).round(decimals=6).tolist()
    [0.297236, 0.572181, 0.808765, 1.0]
    """
    scaled = torch.tanh(beta * r)
    return scaled / scaled.max()
