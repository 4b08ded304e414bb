"""FedAVE (Wang et al., 2024): gradients as rewards, by accuracy and by how much a client's data is like V.

    K_i   = 1 / KL(losses per batch of 64 on client i's own data || on V), both divided by their sums; then divided by
            the largest
    rep_i <- .95 rep_i + .05 accuracy_i K_i^2 (the first time: accuracy_i K_i^2), at least 1e-3, divided by the sum;
            accuracy_i is that of the trained model on V
    q_i   = tanh(beta rep_i) / max * K_i
    g     = sum_i (n_i/n) g_i,  g_i = Gamma D_i / |D_i|
    theta_i <- theta_i + the largest q_i of g; nobody is rewarded in the first round

With `reward_by = "contribution"`, rep = c / sum c and K = 1. Clients report the losses per batch; nobody checks them.

The published code, `reading = "code"`, takes the losses of the model that client i received. `reading = "paper"`, as
earlier versions had it, takes those of the model that it has trained, and .05 accuracy_i K_i^2 the first time, too. See
docs/conformance.md. In the published code all clients' models are one object until the first reward, and client i's
first reward includes those of the clients before it: `one_object` does the same, which depends on the clients' order.
"""

from dataclasses import dataclass
from typing import Literal

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
from fedsac.methods.shared.readings import check_reading


@dataclass(frozen=True)
class FedAVE(GradientMethod):
    beta: float = 5.0
    reading: str = "code"
    one_object: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_reading(self.reading)

    def start(self, task: Task) -> State:
        n = len(task.clients)
        rep = first_reputations(task, self.reward_by)
        return {"models": task.initial.expand(n, -1), "rep": rep, "k": torch.ones(n, dtype=torch.float64)}

    def assign(self, task: Task, state: State) -> Assignment:
        asked: bool | Literal["received"] = self.reward_by == "own" and ("received" if self.reading == "code" else True)
        return Assignment(state["models"], task.everything, tuple(state["rep"].tolist()), batch_losses=asked)

    def learn(self, task: Task, state: State, updates: Updates) -> State:
        if not updates.clients:
            return state
        new = state | (self._valued(task, state, updates) if self.reward_by == "own" else {})
        if updates.round == 0:
            return new
        g = rescaled(local_updates(updates, state["models"]), self.length)
        total = weighted_sum(sample_shares(task, updates.clients), g)
        rewards = largest_entries(task.layout, total, quota(new["rep"], self.beta) * new["k"])
        if self.one_object and updates.round == 1:
            rewards = rewards.cumsum(0)
        return new | {"models": state["models"] + rewards}

    def _valued(self, task: Task, state: State, updates: Updates) -> State:
        """Reputations [N] and K [N] by the clients' data. Clients that did not answer keep their K."""
        assert updates.batch_losses is not None
        who, rep, k = updates.who, state["rep"].clone(), state["k"].clone()
        on_v = task.batch_losses(state["models"][who] if self.reading == "code" else updates.params)
        pairs = zip(updates.batch_losses, on_v, strict=True)
        likeness = torch.tensor([1 / divergence(own, v) for own, v in pairs], dtype=torch.float64)
        # Dividing by the sum before, as the authors do, changes nothing.
        k[who] = likeness / likeness.max()
        worth = task.evaluate(updates.params, None).cpu() * k[who] ** 2
        running = 0.95 * rep[who] + 0.05 * worth
        if self.reading == "code":
            running = torch.where(rep[who] == 0, worth, running)  # never 0 again, once a client has answered
        rep[who] = running.clamp_min(1e-3)
        return {"rep": rep / rep.sum(), "k": k}


def divergence(own: Tensor, v: Tensor) -> float:
    """KL(own || v) of two lists of losses, cut to equal length and divided by their sums; at least 1e-12."""
    n = min(len(own), len(v))
    p, q = (losses[:n].double().clamp_min(1e-12) for losses in (own, v))
    p, q = p / p.sum(), q / q.sum()
    return max(float((p * (p / q).log()).sum()), 1e-12)
