"""FedAVE (Wang et al., 2024): gradients as rewards, by accuracy and by how much a client's data is like V.

    K_i   = 1 / KL(client i's loss per batch of 64 on its own data || on V), both divided by their sums;
            then divided by the largest
    rep_i <- .95 rep_i + .05 accuracy_i K_i^2, at least 1e-3, divided by the sum
    q_i   = tanh(beta rep_i) / max * K_i
    g     = sum_i (n_i/n) g_i,  g_i = Gamma D_i / |D_i|
    theta_i <- theta_i + the largest q_i of g; nobody is rewarded in the first round

With `reward_by = "contribution"`, rep = c / sum c and K = 1. Clients report the losses per batch; nobody checks them.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedsac.methods.base import Assignment, State, Task, Updates
from fedsac.methods.cgsv import quota
from fedsac.methods.shared.gradients import (
    GradientMethod,
    first_reputations,
    local_updates,
    rescaled,
    sample_shares,
    weighted_sum,
)
from fedsac.methods.shared.largest import largest_entries


@dataclass(frozen=True)
class FedAVE(GradientMethod):
    beta: float = 5.0

    def start(self, task: Task) -> State:
        n = len(task.clients)
        rep = first_reputations(task, self.reward_by)
        return {"models": task.initial.expand(n, -1), "rep": rep, "k": torch.ones(n, dtype=torch.float64)}

    def assign(self, task: Task, state: State) -> Assignment:
        return Assignment(
            state["models"], task.everything, tuple(state["rep"].tolist()), batch_losses=self.reward_by == "own"
        )

    def learn(self, task: Task, state: State, updates: Updates) -> State:
        if not updates.clients:
            return state
        who, rep, k = updates.who, state["rep"].clone(), state["k"].clone()
        if self.reward_by == "own":
            assert updates.batch_losses is not None
            on_v = task.batch_losses(updates.params)
            pairs = zip(updates.batch_losses, on_v, strict=True)
            likeness = torch.tensor([1 / divergence(own, v) for own, v in pairs], dtype=torch.float64)
            # Dividing by the sum before, as the authors do, changes nothing; clients that did not answer keep theirs.
            k[who] = likeness / likeness.max()
            accuracy = task.evaluate(updates.params, None).cpu()
            rep[who] = (0.95 * rep[who] + 0.05 * accuracy * k[who] ** 2).clamp_min(1e-3)
            rep = rep / rep.sum()
        new = {"models": state["models"], "rep": rep, "k": k}
        if updates.round == 0:
            return new
        g = rescaled(local_updates(updates, state["models"]), self.length)
        total = weighted_sum(sample_shares(task, updates.clients), g)
        return new | {"models": state["models"] + largest_entries(task.layout, total, quota(rep, self.beta) * k)}


def divergence(own: Tensor, v: Tensor) -> float:
    """KL(own || v) of two lists of losses, cut to equal length and divided by their sums; at least 1e-12."""
    n = min(len(own), len(v))
    p, q = (losses[:n].double().clamp_min(1e-12) for losses in (own, v))
    p, q = p / p.sum(), q / q.sum()
    return max(float((p * (p / q).log()).sum()), 1e-12)
