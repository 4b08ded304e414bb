"""IAFL (Wu et al., ICLR 2024): clients average as many of the others' updates as they have earned.

    gamma_i = c_i / max c
    theta_i <- theta_ref with probability q, before training
    S_i     = client i and ceil(gamma_i^(1 - kappa) (n - 1)) others of the n that answered, drawn anew every round
    theta_i <- theta_i + mean of D_j over S_i,  D_j = trained - received
    theta_ref <- theta_ref + mean of D_j over the best contributor's S_i, which are all when it has answered

kappa (0: in proportion to contributions, 1: everyone gets everything) trades fairness against accuracy, and q is the
probability of a reset to the reference model; both are chosen on validation data.

This is the published code, `reading = "code"`. What earlier versions had is `reading = "paper"`: resets come after the
averages, so that a client may be paid with the reference model; absent clients count in n; theta_ref moves by the mean
of all D_j. See docs/conformance.md.
"""

from dataclasses import dataclass
from math import ceil

import torch
from torch import Tensor

from fedsac.core.transfer import to_device
from fedsac.errors import FedsacError
from fedsac.methods.base import Assignment, Method, State, Task, Updates
from fedsac.methods.shared.readings import check_reading


@dataclass(frozen=True)
class IAFL(Method):
    kappa: float = 0.5
    q: float = 0.1
    reading: str = "code"

    def __post_init__(self) -> None:
        check_reading(self.reading)
        for name, value in (("kappa", self.kappa), ("q", self.q)):
            if not 0 <= value <= 1:
                raise FedsacError(f"{name} must be between 0 and 1, not {value:g}")

    def start(self, task: Task) -> State:
        n = len(task.clients)
        state: State = {"models": task.initial.expand(n, -1), "model": task.initial}
        # Who is reset before the next round. In the first one, all have the reference model anyway.
        return state | {"reset": torch.zeros(n, dtype=torch.bool)} if self.reading == "code" else state

    def assign(self, task: Task, state: State) -> Assignment:
        c = tuple(task.contributions)
        if self.reading == "paper":
            return Assignment(state["models"], task.everything, c)
        received = _reset(state["reset"], state["model"], state["models"])
        return Assignment(received, task.everything, c, reward_models=state["models"])

    def learn(self, task: Task, state: State, updates: Updates) -> State:
        if not updates.clients:
            return state
        received = updates.assignment.models
        d = updates.params - received[updates.who]
        weights, reset = self._drawn(task, updates)
        models = received + to_device(weights.to(d.dtype), d.device) @ d
        if self.reading == "paper":
            reference = state["model"] + d.mean(0)
            return {"models": _reset(reset, reference, models), "model": reference}
        if max(task.contributions) <= 0:  # nobody has earned anything: there is no best contributor
            return {"models": models, "model": state["model"] + d.mean(0), "reset": reset}
        step = to_device(weights[_best(task)].to(d.dtype), d.device) @ d
        return {"models": models, "model": state["model"] + step, "reset": reset}

    def _drawn(self, task: Task, updates: Updates) -> tuple[Tensor, Tensor]:
        """What each client averages, as weights [N, k] of the updates that were sent, and who is reset [N]."""
        c = [max(0.0, value) for value in task.contributions]  # some measures give negative contributions
        best = max(c) or 1.0
        n = len(updates.clients) if self.reading == "code" else len(task.clients)
        chosen = torch.zeros(len(task.clients), len(updates.clients), dtype=torch.float64)
        reset = []

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
            reset.append(bool(rng.random() < self.q))
        return chosen / chosen.sum(1, keepdim=True).clamp_min(1), torch.tensor(reset)


def _best(task: Task) -> int:
    """The client (by index) with the highest contribution; of several, the first by name."""
    return min(range(len(task.clients)), key=lambda i: (-task.contributions[i], task.clients[i]))


def _reset(who: Tensor, reference: Tensor, models: Tensor) -> Tensor:
    """`models` [N, parameters], and `reference` [parameters] for those `who` [N] are reset."""
    return torch.where(to_device(who, models.device).unsqueeze(1), reference, models)
