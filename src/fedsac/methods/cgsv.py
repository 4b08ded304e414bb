"""CGSV (Xu et al., NeurIPS 2021): gradients as rewards, by their similarity to the common direction.

    g_i = Gamma D_i / |D_i|,  D_i = trained - received (the client goes back to what it received)
    g   = sum_i w_i g_i,  w = n_i/n in the first round, then r
    r_i <- .95 r_i + .05 cos(g_i, g), at least 1e-3, then divided by the sum
    q_i = tanh(beta r_i) / max_k tanh(beta r_k)
    theta_i <- theta_i + the largest q_i of g's entries, tensor by tensor

Gamma is .5, and .15 on CIFAR-10; beta is chosen on validation data. With `reward_by = "contribution"`, as in FedSAC's
tables, r = c / sum c throughout.

The published code takes the entries tensor by tensor, ceil(n q) of n and at most n - 1, even at q = 1; the paper takes
floor(n q) of the whole update's: `reading`.
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
from fedsac.methods.shared.largest import largest_entries, largest_of_all
from fedsac.methods.shared.readings import check_reading


@dataclass(frozen=True)
class CGSV(GradientMethod):
    beta: float = 1.0
    reading: str = "code"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_reading(self.reading, ("code", "paper"))

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
        q = quota(r, self.beta)
        kept = largest_of_all(total, q) if self.reading == "paper" else largest_entries(task.layout, total, q)
        return {"models": state["models"] + kept, "r": r}


def quota(r: torch.Tensor, beta: float) -> torch.Tensor:
    """tanh(beta r_i) / max_k tanh(beta r_k), [N]: the share of the update's entries that each client gets.

    >>> quota(torch.tensor([.1, .2, .3, .4], dtype=torch.float64), 2.).round(decimals=6).tolist()
    [0.297236, 0.572181, 0.808765, 1.0]
    """
    scaled = torch.tanh(beta * r)
    return scaled / scaled.max()
