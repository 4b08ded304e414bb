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

from fedsac import rng
from fedsac.compute import evaluation, training
from fedsac.compute.batches import stacked
from fedsac.compute.importance import first_order, rises
from fedsac.core.units import Layout
from fedsac.models.network import Network

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
    validation: training.Samples
    rounds: int
    seed: int
    lr: float = 0.05
    batch: int = 32
    size_shares: tuple[float, ...] = ()  # n_i / max n; in CLA the clients' shares of the classes

    @cached_property
    def everything(self) -> Tensor:
        """The neuron mask of someone who holds the whole model, for each client: [N, neurons]."""
        return torch.ones(len(self.clients), self.layout.neurons, dtype=torch.bool, device=self.initial.device)

    def importance(self, params: Tensor, rows: Tensor | None = None, *, exact: bool = True) -> Tensor:
        """Importance of each neuron of a model [parameters] on V (Eq. 3) or on some rows of it; to first order where it
        need not be `exact`."""
        v = self.validation if rows is None else self.part(rows)
        folded = evaluation.fold(self.layout, params.unsqueeze(0), v.scale, v.shift)[0]
        measure = rises if exact else first_order
        return measure(Network(self.layout, folded), v.x.to(params.dtype), v.y)

    def evaluate(self, params: Tensor, neurons: Tensor | None, samples: training.Samples | None = None) -> Tensor:
        """Accuracy on V (or a part of it) of models [S or 1, parameters], cut to `neurons`; float64 on the CPU."""
        return evaluation.evaluate(self.layout, params, neurons, samples or self.validation)[0]

    def part(self, rows: Tensor) -> training.Samples:
        """Some rows of V."""
        v = self.validation
        return training.Samples(v.x[rows], v.y[rows], v.scale, v.shift)

    def steps(self, params: Tensor, samples: training.Samples, steps: int, round: int) -> Tensor:
        """A model [parameters] after SGD steps of the server's own, on data of its own, as clients train."""
        rows, weight = stacked([np.arange(len(samples.y))], [steps], self.batch, [self.stream("server steps", round)])
        device, dtype = params.device, params.dtype
        drawn = training.Batches(torch.from_numpy(rows).to(device), torch.from_numpy(weight).to(device, dtype))
        lr = torch.full((1,), self.lr, dtype=dtype, device=device)
        return training.train(self.layout, params.unsqueeze(0), None, samples, drawn, lr)[0][0]

    def batch_losses(self, params: Tensor) -> list[Tensor]:
        """Mean loss on each batch of 64 of V, in its order, for each of the models [S, parameters]."""
        rows = np.arange(len(self.validation.y))
        return evaluation.batch_losses(self.layout, params, self.validation, [rows] * len(params))

    def stream(self, *names: str | int) -> np.random.Generator:
        return rng.stream(self.seed, "method", *names)


@dataclass(frozen=True)
class Rewards:
    """What each client is given: its model, cut to its neurons.

    `models` is [N, parameters], or [1, parameters] where all are submodels of one; `neurons` is boolean [N, neurons].
    `extra_epoch`: for reporting only, each client's reward is a copy trained one epoch more on its own data.
    `local_losses`, `batch_losses`: what clients are asked to report besides their model.
    """

    models: Tensor
    neurons: Tensor
    reputations: tuple[float, ...] | None = None
    extra_epoch: bool = False
    local_losses: bool = False
    batch_losses: bool = False


@dataclass(frozen=True)
class Updates:
    """What came back in a round: trained models [k, parameters] of the clients (by number) that answered.

    `losses` are all clients' mean training losses, for the log; `diverged` are those set aside because their training
    did not end in numbers. Where the rewards ask for them: `local_losses` [k], the loss of the model received on the
    client's own data; `batch_losses`, the losses of the trained model on its own batches of 64.
    """

    round: int
    clients: tuple[int, ...]
    params: Tensor
    rewards: Rewards
    losses: tuple[float, ...] = ()
    diverged: tuple[int, ...] = ()
    local_losses: Tensor | None = None
    batch_losses: list[Tensor] | None = None

    @property
    def who(self) -> slice | list[int]:
        """Those who answered, as an index; where that is everyone in order, one that copies nothing."""
        return slice(None) if self.clients == tuple(range(len(self.rewards.neurons))) else list(self.clients)

    @property
    def neurons(self) -> Tensor:
        """What those who answered held, [k, neurons]."""
        return self.rewards.neurons[self.who]


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
