"""FedRAC (CVPR 2026): submodels by validation accuracy, rarely trained neurons first.

    order   = neurons by how often clients have trained them so far, the rarest first (ties by index)
    target_i = c_i + acc (1 - al) r_i / 100,  acc = accuracy of the whole model on V,  r as in FedSAC with beta = 80
    al      = a (1 - 1 / ln(.3 t + 3)),  a = .2 for t <= 100 (`early_rounds`), else .8
    theta_i = a prefix of the order (in steps of 8 neurons) by its accuracy on V and target_i; the best gets all

The published code, `reading = "code"`:

    - In the first round everyone holds everything; t is the number, from 1, of the round that is trained next.
    - Clients are served from the lowest contribution to the highest. s is the largest number above that of the client
      before whose prefix of 8 (s + 1) neurons has an accuracy of at most target_i, or the next above it where there is
      none; the client gets 8 s neurons, at least 8 more than the one before it, until there are no more.
    - theta <- theta + sum of updates / number of updates that are not 0, parameter by parameter.
    - The reward is the new model under the masks that were trained, not under those that will be trained next.

`reading = "paper"`, as earlier versions had it: the longest prefix with an accuracy of at most target_i, the shortest
where there is none; t rounds are over; theta is the mean over holders; the reward is what is trained next. See
docs/conformance.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import torch
from torch import Tensor

from fedsac.compute.samples import Samples
from fedsac.core.aggregation import aggregate_unchecked
from fedsac.core.allocation import reputation
from fedsac.errors import FedsacError
from fedsac.methods.base import Assignment, Method, State, Task, Updates
from fedsac.methods.shared.readings import check_reading


@dataclass(frozen=True)
class FedRAC(Method):
    beta: float = 80.0
    step: int = 8
    early_rounds: int = 100
    reading: str = "code"

    def __post_init__(self) -> None:
        check_reading(self.reading)
        if self.step < 1:
            raise FedsacError(f"step must be at least 1, not {self.step}")
        if not self.beta >= 0:
            raise FedsacError(f"beta must be at least 0, not {self.beta:g}")
        if self.early_rounds < 0:
            raise FedsacError(f"early_rounds must be at least 0, not {self.early_rounds}")

    def start(self, task: Task) -> State:
        trained = torch.zeros(task.layout.neurons, dtype=torch.int64, device=task.initial.device)
        state: State = {"model": task.initial, "trained": trained}
        if self.reading == "paper":
            return state | {"neurons": self.allocated(task, task.initial, trained, 0)}
        return state | {"neurons": task.everything, "rewards": task.everything, "round": 0}

    def assign(self, task: Task, state: State) -> Assignment:
        r = reputation(task.contributions, self.beta)
        return Assignment(
            state["model"].unsqueeze(0), state["neurons"], tuple(r.tolist()), reward_neurons=state.get("rewards")
        )

    def learn(self, task: Task, state: State, updates: Updates) -> State:
        if not updates.clients:
            return state
        model, trained = self.aggregate(task, state, updates), state["trained"] + updates.neurons.sum(0)
        new: State = {"model": model, "trained": trained}
        rounds_done = updates.round + 1
        if self.reading == "paper":
            return new | {"neurons": self.allocated(task, model, trained, rounds_done)}
        neurons = self.allocated(task, model, trained, rounds_done + 1)
        return new | {"neurons": neurons, "rewards": state["neurons"], "round": rounds_done}

    def aggregate(self, task: Task, state: State, updates: Updates) -> Tensor:
        """The new model [parameters]."""
        held = task.layout.held(updates.neurons)
        model: Tensor = state["model"]
        if self.reading == "paper":
            return aggregate_unchecked(updates.params, held, model)
        return model + mean_of_changes(torch.where(held, updates.params - model, 0))

    def measured_on(self, task: Task) -> Samples:
        """The samples on which prefixes are measured: V."""
        return task.validation

    def carry_over(self, task: Task, state: State, clients: Sequence[str]) -> State:
        """As for any method, but the neurons' counts stay, and it is not the first round again."""
        if self.reading == "paper" or state["round"] == 0:
            return super().carry_over(task, state, clients)
        neurons = self.allocated(task, state["model"], state["trained"], state["round"] + 1)
        return state | {"neurons": neurons, "rewards": neurons}

    def allocated(self, task: Task, model: Tensor, trained: Tensor, t: int) -> Tensor:
        """The neurons [N, neurons] that clients hold in round t, after neurons were `trained` [neurons] so often."""
        order, n = trained.argsort(stable=True), task.layout.neurons
        rank = torch.empty_like(order)
        rank[order] = torch.arange(n, device=order.device)
        lengths = torch.arange(self.step, n + self.step, self.step).clamp_max(n)
        prefixes = task.layout.completed(rank < lengths.to(order.device).unsqueeze(1), rank)
        accuracy = task.evaluate(model.unsqueeze(0), prefixes, self.measured_on(task)).cpu()
        al = (0.2 if t <= self.early_rounds else 0.8) * (1 - 1 / log(0.3 * t + 3))
        c = torch.tensor(task.contributions, dtype=torch.float64)
        target = c + accuracy[-1] * (1 - al) * reputation(c, self.beta) / 100
        if self.reading == "paper":
            fits = accuracy.unsqueeze(0) <= target.unsqueeze(1)
            held = lengths[torch.where(fits, torch.arange(len(lengths)), 0).max(1).values]
        else:
            # By name where contributions are equal, so that the order of the clients does not matter.
            by_contribution = sorted(range(len(c)), key=lambda i: (float(c[i]), task.clients[i]))
            steps = rising_steps(accuracy[: n // self.step].tolist(), target[by_contribution].tolist())
            held = torch.empty(len(c), dtype=torch.int64)
            held[by_contribution] = (self.step * torch.tensor(steps)).clamp_max(n)
        held[c == c.max()] = n
        return task.layout.completed(rank < held.to(order.device).unsqueeze(1), rank)


def rising_steps(accuracy: Sequence[float], targets: Sequence[float]) -> list[int]:
    """How many steps of neurons each client gets, by the published code, from the accuracies of prefixes of 1, 2, ...
    steps and the targets of the clients in the order of their contributions.

    >>> rising_steps([.1, .2, .3, .4, .5], [.05, .45, .45, .45])
    [1, 3, 4, 4]
    """
    last = max(1, len(accuracy) - 1)
    given, before = [], 0
    for target in targets:
        # accuracy[s] is that of s + 1 steps.
        fitting = (s for s in range(len(accuracy) - 1, before, -1) if accuracy[s] <= target)
        before = next(fitting, min(before + 1, last))
        given.append(before)
    return given


def mean_of_changes(updates: Tensor) -> Tensor:
    """The mean [parameters] over the updates [k, parameters] that are not 0, parameter by parameter; 0 where all are.

    >>> mean_of_changes(torch.tensor([[2., 0., 0.], [4., 3., 0.]])).tolist()
    [3.0, 3.0, 0.0]
    """
    return updates.sum(0) / (updates != 0).sum(0).clamp_min(1)
