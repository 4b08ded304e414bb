"""RFFL (Xu and Lyu, 2020): reputation by similarity, and removal of those who have none.

    d_i = D_i, shortened to Gamma where it is longer
    g   = sum_i w_i d_i,  w = n_i/n in the first round, then r
    r_i <- .95 r_i + .05 cos(d_i, g), divided by the sum
    q_i = r_i / max r
    theta_i <- theta_i + d_i + the largest q_i of g

From the 11th round on, clients with r_i below (1/3)/|R| are removed: they get nothing more, and r is divided by its sum
once more. In the published code they go on training alone, theta_i <- theta_i + d_i; as the paper has it they take no
further part and keep their model: `reading`. As in the code, an update whose r_i is negative is subtracted until its
client is removed. With `reward_by = "contribution"`, r = c / sum c and nobody is removed.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedsac.methods.base import State, Task, Updates
from fedsac.methods.shared.gradients import RemovingMethod, cosines, local_updates, sample_shares, weighted_sum
from fedsac.methods.shared.largest import largest_entries
from fedsac.methods.shared.readings import check_reading

PATIENCE_ROUNDS = 10  # before any client is removed


@dataclass(frozen=True)
class RFFL(RemovingMethod):
    reading: str = "code"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_reading(self.reading, ("code", "paper"))

    def learn(self, task: Task, state: State, updates: Updates) -> State:
        models, r, removed = state["models"], state["r"].clone(), list(state["removed"])
        d = local_updates(updates, models)
        d = d * (self.length / d.norm(dim=1, keepdim=True).clamp_min(self.length))
        at = [k for k, i in enumerate(updates.clients) if i not in removed]
        who = [updates.clients[k] for k in at]
        new = models.clone()
        if self.reading == "paper":
            new[who] += d[at]
        else:
            new[updates.who] += d
        if not who:
            return state | {"models": new}
        total = weighted_sum(self.weights(task, updates.round, r, who, removed), d[at])
        if self.reward_by == "own":
            r[who] = 0.95 * r[who] + 0.05 * cosines(d[at], total)
            members = [i for i in range(len(r)) if i not in removed]
            r[members] = _shares(r[members])
            if updates.round >= PATIENCE_ROUNDS and (low := [i for i in who if r[i] < 1 / 3 / len(members)]):
                removed += low
                r[removed] = 0
                r = r / r.sum()
        share = r / r.max()
        share[removed] = 0
        return {"models": new + largest_entries(task.layout, total, share), "r": r, "removed": removed}

    def weights(self, task: Task, round: int, r: Tensor, who: list[int], removed: list[int]) -> Tensor:
        """What the updates of those who answered weigh, float64 [k], with sum 1."""
        weights = r[who]
        if len(who) + len(removed) < len(r):  # some are missing: with negative weights, the rest's sum may be nearly 0
            weights = weights.clamp_min(0)
        # By number of samples also in a later round, where no client that answered has a reputation yet.
        weights = weights if round and weights.sum() > 0 else sample_shares(task, tuple(who))
        return weights / weights.sum()


def _shares(r: Tensor) -> Tensor:
    """r divided by its sum. Where the sum is not positive, which would make the worst client the best, negative values
    count as 0; where no value is positive, all shares are equal."""
    if r.sum() <= 0:
        r = r.clamp_min(0) if r.max() > 0 else torch.ones_like(r)
    return r / r.sum()
