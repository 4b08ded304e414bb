"""What a method is: three functions over explicit state.

A method never talks to a client, keeps nothing outside its state and reads no clock, so it can be tested without an
engine, checkpointed after any round and run on any engine.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from fedsac import rng, stack
from fedsac.importance import importance
from fedsac.models.network import Network
from fedsac.models.neurons import Layout

State = dict[str, Any]
"""Tensors and JSON values by name: what a checkpoint holds."""


@dataclass(frozen=True)
class Task:
    """What a server has: the model's shape and start, the clients' names, sizes and contributions, and V."""

    layout: Layout
    initial: Tensor
    clients: tuple[str, ...]
    samples: tuple[int, ...]
    contributions: tuple[float, ...]
    validation: stack.Samples
    rounds: int
    seed: int

    @cached_property
    def everything(self) -> Tensor:
        """The neuron mask of someone who holds the whole model, for each client: [N, neurons]."""
        return torch.ones(len(self.clients), self.layout.neurons, dtype=torch.bool, device=self.initial.device)

    def importance(self, params: Tensor) -> Tensor:
        """Importance of each neuron of a model [parameters] on V (Eq. 3)."""
        v = self.validation
        folded = stack.fold(self.layout, params.unsqueeze(0), v.scale, v.shift)[0]
        return importance(Network(self.layout, folded), v.x.to(params.dtype), v.y)

    def evaluate(self, params: Tensor, neurons: Tensor | None) -> Tensor:
        """Accuracy on V of models [S or 1, parameters], cut to `neurons`."""
        return stack.evaluate(self.layout, params, neurons, self.validation)[0]

    def stream(self, *names: str | int) -> np.random.Generator:
        return rng.stream(self.seed, "method", *names)


@dataclass(frozen=True)
class Rewards:
    """What each client is given: its model, cut to its neurons.

    `models` is [N, parameters], or [1, parameters] where all are submodels of one; `neurons` is boolean [N, neurons].
    `extra_epoch`: for reporting only, each client's reward is a copy trained one epoch more on its own data.
    """

    models: Tensor
    neurons: Tensor
    reputations: tuple[float, ...] | None = None
    extra_epoch: bool = False


@dataclass(frozen=True)
class Updates:
    """What came back in a round: trained models [k, parameters] of the clients (by number) that answered.

    `losses` are all clients' mean training losses, for the log; `diverged` are those set aside because their training
    did not end in numbers.
    """

    round: int
    clients: tuple[int, ...]
    params: Tensor
    rewards: Rewards
    losses: tuple[float, ...] = ()
    diverged: tuple[int, ...] = ()

    @property
    def neurons(self) -> Tensor:
        """What those who answered held, [k, neurons]."""
        return self.rewards.neurons[list(self.clients)]


class Method(Protocol):
    """`round` counts the rounds that are over: `learn` of the first round's updates gets `updates.round == 0`."""

    def start(self, task: Task) -> State:
        """The state before the first round."""
        ...

    def rewards(self, task: Task, state: State) -> Rewards:
        """What each client holds now: its model for the next round, and its pay if this was the last."""
        ...

    def learn(self, task: Task, state: State, updates: Updates) -> State:
        """The state after a round, from the updates of those who answered; nobody answering is possible."""
        ...
