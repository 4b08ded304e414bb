"""What a method is: three functions over explicit state, and a few questions that others ask it.

A method never talks to a client, keeps nothing outside its state and reads no clock, so it can be tested without an
engine, checkpointed after any round and run on any engine.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsac import rng
from fedsac.compute import evaluation, training
from fedsac.compute.batches import stacked_batches
from fedsac.compute.importance import exact_importance, first_order_importance
from fedsac.compute.samples import Batches, Samples
from fedsac.config import Config
from fedsac.core.metrics import Metric, accuracy
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
    validation: Samples
    rounds: int
    seed: int
    lr: float = 0.05
    batch: int = 32
    size_shares: tuple[float, ...] = ()  # n_i / max n; in CLA the clients' shares of the classes
    metric: Metric = accuracy

    @cached_property
    def everything(self) -> Tensor:
        """The neuron mask of someone who holds the whole model, for each client: [N, neurons]."""
        return torch.ones(len(self.clients), self.layout.neurons, dtype=torch.bool, device=self.initial.device)

    def importance(self, params: Tensor, rows: Tensor | None = None, *, exact: bool = True) -> Tensor:
        """Importance of each neuron of a model [parameters] on V (Eq. 3) or on some rows of it; to first order where it
        need not be `exact`."""
        v = self.validation if rows is None else self.part(rows)
        folded = evaluation.fold_normalisation(self.layout, params.unsqueeze(0), v.scale, v.shift)[0]
        measure = exact_importance if exact else first_order_importance
        return measure(Network(self.layout, folded), v.x.to(params.dtype), v.y)

    def evaluate(self, params: Tensor, neurons: Tensor | None, samples: Samples | None = None) -> Tensor:
        """Score on V (or a part of it) of models [S or 1, parameters], cut to `neurons`; float64 on the CPU."""
        return evaluation.evaluate(self.layout, params, neurons, samples or self.validation, metric=self.metric)[0]

    def part(self, rows: Tensor) -> Samples:
        """Some rows of V."""
        v = self.validation
        return Samples(v.x[rows], v.y[rows], v.scale, v.shift)

    def steps(self, params: Tensor, samples: Samples, steps: int, round: int) -> Tensor:
        """A model [parameters] after SGD steps of the server's own, on data of its own, as clients train."""
        rows, weight = stacked_batches(
            [np.arange(len(samples.y))], [steps], self.batch, [self.stream("server steps", round)]
        )
        device, dtype = params.device, params.dtype
        drawn = Batches(torch.from_numpy(rows).to(device), torch.from_numpy(weight).to(device, dtype))
        lr = torch.full((1,), self.lr, dtype=dtype, device=device)
        return training.train(self.layout, params.unsqueeze(0), None, samples, drawn, lr)[0][0]

    def batch_losses(self, params: Tensor) -> list[Tensor]:
        """Mean loss on each batch of 64 of V, in its order, for each of the models [S, parameters]."""
        rows = np.arange(len(self.validation.y))
        return evaluation.batch_losses(self.layout, params, self.validation, [rows] * len(params))

    def stream(self, *names: str | int) -> np.random.Generator:
        return rng.stream(self.seed, "method", *names)


@dataclass(frozen=True)
class Assignment:
    """What each client is given: its model, cut to its neurons. Its score is the client's reward.

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

    def model(self, client: int) -> Tensor:
        """The whole model [parameters] that a client's submodel is cut from."""
        return self.models[client if len(self.models) > 1 else 0]


@dataclass(frozen=True)
class Updates:
    """What came back in a round: trained models [k, parameters] of the clients (by number) that answered.

    `losses` are all clients' mean training losses, for the log; `diverged` are those whose training ended in NaN or
    infinity. Where the assignment asks for them: `local_losses` [k], the loss of the model received on the client's own
    data; `batch_losses`, the losses of the trained model on its own batches of 64.

    The engine's own: `traffic`, bytes `down` and `up` where they were counted on a network; `remarks`, what else the
    round's record says; `memory`, what client behaviours remember.
    """

    round: int
    clients: tuple[int, ...]
    params: Tensor
    assignment: Assignment
    losses: tuple[float, ...] = ()
    diverged: tuple[int, ...] = ()
    local_losses: Tensor | None = None
    batch_losses: list[Tensor] | None = None
    traffic: dict[str, int] | None = None
    remarks: dict[str, Any] = field(default_factory=dict)
    memory: State = field(default_factory=dict)

    @property
    def who(self) -> slice | list[int]:
        """Those who answered, as an index; where that is everyone in order, one that copies nothing."""
        return slice(None) if self.clients == tuple(range(len(self.assignment.neurons))) else list(self.clients)

    @property
    def neurons(self) -> Tensor:
        """What those who answered held, [k, neurons]."""
        return self.assignment.neurons[self.who]


class Method(ABC):
    """A frozen dataclass whose fields are its options. Three functions make a method; what others want to know of its
    state, they ask it by the other ones, whose answers here are right for most.

    `round` counts the rounds that are over: `learn` of the first round's updates gets `updates.round == 0`.
    """

    @abstractmethod
    def start(self, task: Task) -> State:
        """The state before the first round."""

    @abstractmethod
    def assign(self, task: Task, state: State) -> Assignment:
        """What each client is given now: its model for the next round, and its pay if this was the last."""

    @abstractmethod
    def learn(self, task: Task, state: State, updates: Updates) -> State:
        """The state after a round, from the updates of those who answered; nobody answering is possible."""

    @classmethod
    def defaults(cls, config: Config) -> dict[str, Any]:
        """Options that follow from a run's settings, where `--set` does not say otherwise."""
        return {}

    def common_model(self, state: State) -> Tensor | None:
        """The model [parameters] that clients have in common, reported as global; None where there is none."""
        return state.get("model")

    def importance(self, state: State) -> Tensor | None:
        """The importance [neurons] by which neurons were allocated; None where the method knows no such thing."""
        return None

    def removed(self, state: State) -> tuple[int, ...]:
        """Clients, by number, that the method has shut out for good."""
        return ()

    def carry_over(self, task: Task, state: State, clients: Sequence[str]) -> State:
        """The state for a new set of clients, `task.clients` instead of `clients`.

        The method starts again from the common model, so that all assignments follow from the new contributions. Where
        clients have models of their own (`models`), they keep them, and a newcomer begins from the public initial
        weights. What a method remembers of clients beyond that (running reputations) begins anew.
        """
        common = self.common_model(state)
        fresh = self.start(task if common is None else replace(task, initial=common))
        if "models" in fresh and "models" in state:
            own = state["models"]
            rows = [own[clients.index(n)] if n in clients else task.initial.to(own) for n in task.clients]
            fresh["models"] = torch.stack(rows)
        return fresh
