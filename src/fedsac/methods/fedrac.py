"""FedRAC (CVPR 2026): submodels by validation accuracy, rarely trained neurons first.

    order   = neurons by how often clients have trained them so far, the rarest first (ties by index)
    target_i = c_i + acc (1 - al) r_i / 100,  acc = accuracy of the whole model on V,  r as in FedSAC with beta = 80
    al      = a (1 - 1 / ln(.3 t + 3)),  a = .2 for t <= 100, else .8
    theta_i = the longest prefix (in steps of 8 neurons) with an accuracy on V of at most target_i; the best gets all
    theta   = mean over holders, parameter by parameter

The paper does not say how prefixes between two steps are measured, nor what happens when none qualifies: here, only
every `step`-th length is measured, and the shortest is given.
"""

from dataclasses import dataclass
from math import log

import torch
from torch import Tensor

from fedsac.core.aggregation import aggregate
from fedsac.core.allocation import reputation
from fedsac.errors import FedsacError
from fedsac.methods.base import Assignment, Method, State, Task, Updates


@dataclass(frozen=True)
class FedRAC(Method):
    beta: float = 80.0
    step: int = 8

    def __post_init__(self) -> None:
        if self.step < 1:
            raise FedsacError(f"step must be at least 1, not {self.step}")

    def start(self, task: Task) -> State:
        counts = torch.zeros(task.layout.neurons, dtype=torch.int64, device=task.initial.device)
        return self._allocated(task, task.initial, counts, 0)

    def assign(self, task: Task, state: State) -> Assignment:
        r = reputation(task.contributions, self.beta)
        return Assignment(state["model"].unsqueeze(0), state["neurons"], tuple(r.tolist()))

    def learn(self, task: Task, state: State, updates: Updates) -> State:
        if not updates.clients:
            return state
        model = aggregate(updates.params, task.layout.held(updates.neurons), state["model"])
        return self._allocated(task, model, state["trained"] + updates.neurons.sum(0), updates.round + 1)

    def _allocated(self, task: Task, model: Tensor, trained: Tensor, t: int) -> State:
        order = trained.argsort(stable=True)
        lengths = torch.arange(self.step, task.layout.neurons + self.step, self.step).clamp_max(task.layout.neurons)
        rank = torch.empty_like(order)
        rank[order] = torch.arange(len(order), device=order.device)
        prefixes = rank < lengths.to(order.device).unsqueeze(1)
        accuracy = task.evaluate(model.unsqueeze(0), prefixes).cpu()

        al = (0.2 if t <= 100 else 0.8) * (1 - 1 / log(0.3 * t + 3))
        c = torch.tensor(task.contributions, dtype=torch.float64)
        target = c + accuracy[-1] * (1 - al) * reputation(c, self.beta) / 100
        fits = accuracy.unsqueeze(0) <= target.unsqueeze(1)
        longest = torch.where(fits, torch.arange(len(lengths)), 0).max(1).values
        longest[c == c.max()] = len(lengths) - 1
        return {"model": model, "trained": trained, "neurons": prefixes[longest.to(order.device)]}
