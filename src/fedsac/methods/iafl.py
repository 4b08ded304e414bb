"""IAFL (Wu et al., ICLR 2024): clients average as many of the others' updates as they have earned.

    gamma_i = c_i / max c
    S_i     = client i and ceil(gamma_i^(1 - kappa) (N - 1)) others, drawn anew every round
    theta_i <- theta_i + mean of D_j over S_i,  D_j = trained - received
    theta_i <- theta_ref with probability q;  theta_ref <- theta_ref + mean of all D_j

kappa (0: in proportion to contributions, 1: everyone gets everything) trades fairness against accuracy, and q is the
probability of a reset to the reference model; both are chosen on validation data.
"""

from dataclasses import dataclass
from math import ceil

import torch

from fedsac.errors import FedsacError
from fedsac.methods.base import Assignment, Method, State, Task, Updates
from fedsac.methods.shared.gradients import local_updates


@dataclass(frozen=True)
class IAFL(Method):
    kappa: float = 0.5
    q: float = 0.1

    def __post_init__(self) -> None:
        for name, value in (("kappa", self.kappa), ("q", self.q)):
            if not 0 <= value <= 1:
                raise FedsacError(f"{name} must be between 0 and 1, not {value:g}")

    def start(self, task: Task) -> State:
        return {"models": task.initial.expand(len(task.clients), -1), "model": task.initial}

    def assign(self, task: Task, state: State) -> Assignment:
        return Assignment(state["models"], task.everything, tuple(task.contributions))

    def learn(self, task: Task, state: State, updates: Updates) -> State:
        if not updates.clients:
            return state
        models, reference, n = state["models"], state["model"], len(task.clients)
        d = local_updates(updates, models)
        reference = reference + d.mean(0)
        c = [max(0.0, value) for value in task.contributions]  # some measures give negative contributions
        best = max(c) or 1.0
        chosen = torch.zeros(n, len(updates.clients), dtype=d.dtype)
        recovered = []

        def by_name(k: int) -> str:
            return task.clients[updates.clients[k]]

        for i, name in enumerate(task.clients):
            rng = task.stream("iafl", updates.round, name)
            # By name, so that the draw does not depend on the order of the clients.
            others = sorted((k for k, j in enumerate(updates.clients) if j != i), key=by_name)
            wanted = ceil((c[i] / best) ** (1 - self.kappa) * (n - 1) - 1e-9)
            picked = rng.permutation(len(others))[:wanted]
            chosen[i, [others[p] for p in picked]] = 1
            chosen[i, [k for k, j in enumerate(updates.clients) if j == i]] = 1
            recovered.append(bool(rng.random() < self.q))
        weights = chosen / chosen.sum(1, keepdim=True).clamp_min(1)
        new = models + weights.to(d) @ d
        reset = torch.tensor(recovered, device=new.device).unsqueeze(1)
        return {"models": torch.where(reset, reference, new), "model": reference}
