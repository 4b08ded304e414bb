"""RFFL (Xu and Lyu, 2020): reputation by similarity, and removal of those who have none.

    d_i = D_i, shortened to Gamma where it is longer
    g   = sum_i w_i d_i,  w = n_i/n in the first round, then r
    r_i <- .95 r_i + .05 cos(d_i, g), divided by the sum
    q_i = r_i / max r
    theta_i <- theta_i + d_i + the largest q_i of g

From the 11th round on, clients with r_i below (1/3)/|R| are removed: they keep their model and get nothing more. With
`reward_by = "contribution"`, r = c / sum c and nobody is removed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedsac.methods.base import State, Task, Updates
from fedsac.methods.shared.gradients import (
    GradientMethod,
    cosines,
    local_updates,
    sample_shares,
    weighted_sum,
)
from fedsac.methods.shared.largest import largest_entries

PATIENCE_ROUNDS = 10  # before any client is removed


@dataclass(frozen=True)
class RFFL(GradientMethod):
    def start(self, task: Task) -> State:
        return super().start(task) | {"removed": []}

    def removed(self, state: State) -> tuple[int, ...]:
        return tuple(state["removed"])

    def carry_over(self, task: Task, state: State, clients: Sequence[str]) -> State:
        gone = {clients[i] for i in state["removed"]}
        fresh = super().carry_over(task, state, clients)
        return fresh | {"removed": [i for i, name in enumerate(task.clients) if name in gone]}

    def learn(self, task: Task, state: State, updates: Updates) -> State:
        models, r, removed = state["models"], state["r"].clone(), list(state["removed"])
        at = [k for k, i in enumerate(updates.clients) if i not in removed]
        who = [updates.clients[k] for k in at]
        if not who:
            return state
        d = local_updates(updates, models)[at]
        d = d * (self.length / d.norm(dim=1, keepdim=True).clamp_min(self.length))
        weights = r[who].clamp_min(0)
        # By number of samples also in a later round, where no client that answered has a reputation yet.
        weights = weights if updates.round and weights.sum() > 0 else sample_shares(task, tuple(who))
        total = weighted_sum(weights / weights.sum(), d)
        if self.reward_by == "own":
            r[who] = 0.95 * r[who] + 0.05 * cosines(d, total)
            members = [i for i in range(len(r)) if i not in removed]
            r[members] = _shares(r[members])
            if updates.round >= PATIENCE_ROUNDS:
                removed += [i for i in members if r[i] < 1 / 3 / len(members)]
                r[removed] = 0
        new = models.clone()
        new[who] += d
        share = r / r.max()
        share[removed] = 0
        return {"models": new + largest_entries(task.layout, total, share), "r": r, "removed": removed}


def _shares(r: Tensor) -> Tensor:
    """r divided by its sum. Where the sum is not positive, which would make the worst client the best, negative values
    count as 0; where no value is positive, all shares are equal."""
    if r.sum() <= 0:
        r = r.clamp_min(0) if r.max() > 0 else torch.ones_like(r)
    return r / r.sum()
