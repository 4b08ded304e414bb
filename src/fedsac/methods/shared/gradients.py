"""What CGSV, CFFL, FedAVE and RFFL share: clients' updates, rescaled to a set length (L2 norm), and their weighted sum,
of which each client gets a part. The papers call the updates gradients."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedsac.config import Config
from fedsac.core.transfer import to_device
from fedsac.errors import FedsacError
from fedsac.methods.base import Assignment, Method, State, Task, Updates

REWARD_BY = ("contribution", "own")
LENGTH = 0.5  # Gamma, the L2 norm that updates are rescaled to, as in CGSV's paper
LENGTH_BY_DATA = {"cifar10": 0.15}  # data sets for which it has another value there


@dataclass(frozen=True)
class GradientMethod(Method):
    """Clients have models of their own (`models`) and reputations (`r`), by which they get a part of the common update.

    `reward_by`: what reputations come from, contributions (as in FedSAC's tables) or the method's own rule.
    """

    length: float = LENGTH
    reward_by: str = "contribution"

    def __post_init__(self) -> None:
        if self.reward_by not in REWARD_BY:
            raise FedsacError(f"reward_by must be {' or '.join(REWARD_BY)}, not {self.reward_by!r}")
        # Of those that the method has; at 0 or below, quotas would be 0 / 0 or turn the order round.
        for name in ("length", "beta", "sharpness"):
            if not getattr(self, name, 1.0) > 0:
                raise FedsacError(f"option {name} must be above 0, not {getattr(self, name):g}")

    @classmethod
    def defaults(cls, config: Config) -> dict[str, Any]:
        return {"length": LENGTH_BY_DATA.get(config.data, LENGTH)}

    def start(self, task: Task) -> State:
        return {
            "models": task.initial.expand(len(task.clients), -1),
            "r": first_reputations(task, self.reward_by),
        }

    def assign(self, task: Task, state: State) -> Assignment:
        return Assignment(state["models"], task.everything, tuple(state["r"].tolist()))


@dataclass(frozen=True)
class RemovingMethod(GradientMethod):
    """A method that removes clients with too low a reputation, for good (`removed`, by index)."""

    def start(self, task: Task) -> State:
        return super().start(task) | {"removed": []}

    def removed(self, state: State) -> tuple[int, ...]:
        return tuple(state["removed"])

    def carry_over(self, task: Task, state: State, clients: Sequence[str]) -> State:
        gone = {clients[i] for i in state["removed"]}
        fresh = super().carry_over(task, state, clients)
        return fresh | {"removed": [i for i, name in enumerate(task.clients) if name in gone]}


def contribution_shares(task: Task) -> Tensor:
    """c_i / sum c, float64 [N]: with `reward_by = "contribution"`, this replaces a method's own reputations.

    A negative contribution, which some measures give, counts as 0: shares must not be negative, nor their sum near 0.
    """
    c = torch.tensor(task.contributions, dtype=torch.float64).clamp_min(0)
    return c / c.sum() if c.sum() > 0 else torch.full_like(c, 1 / len(c))


def first_reputations(task: Task, reward_by: str) -> Tensor:
    """Reputations before the first round, float64 [N]: the contributions' shares, or 0 with `reward_by = "own"`."""
    return contribution_shares(task) if reward_by == "contribution" else torch.zeros(len(task.clients)).double()


def sample_shares(task: Task, clients: tuple[int, ...]) -> Tensor:
    """n_i / n over these clients (by index), float64 [k]."""
    n = torch.tensor([task.samples[i] for i in clients], dtype=torch.float64)
    return n / n.sum()


def local_updates(updates: Updates, models: Tensor) -> Tensor:
    """The update D_i = trained - received of each client that answered, [k, parameters]; `models` [N, parameters] are
    those received."""
    return updates.params - models[updates.who]


def rescaled(update: Tensor, length: float) -> Tensor:
    """Each row of `update` [k, parameters] rescaled to the L2 norm `length`; a row of zeros stays 0."""
    norms = update.norm(dim=1, keepdim=True)
    return torch.where(norms > 0, update * (length / norms.clamp_min(torch.finfo(update.dtype).tiny)), 0)


def weighted_sum(weights: Tensor, update: Tensor) -> Tensor:
    """sum_i w_i g_i, [parameters], from weights [k] and updates [k, parameters]."""
    return to_device(weights.to(update.dtype), update.device) @ update


def cosines(update: Tensor, total: Tensor) -> Tensor:
    """cos(g_i, total), float64 [k] on the CPU, from updates [k, parameters] and their sum; 0 where either is 0."""
    return torch.nn.functional.cosine_similarity(update, total.unsqueeze(0), dim=1).double().cpu()
