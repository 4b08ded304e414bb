"""What a method is: three functions over explicit state, and a few functions that tell others about that state.

A method never talks to a client, keeps nothing outside its state and reads no clock, so it can be tested without an
engine, checkpointed after any round and run on any engine.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from fedsac import rng
from fedsac.compute import evaluation, training
from fedsac.compute.batches import balanced_weights, stacked_batches
from fedsac.compute.importance import first_order_importance, stored_importance
from fedsac.compute.modules.importance import module_importance
from fedsac.compute.modules.inputs import draw_changes
from fedsac.compute.samples import Batches, Samples
from fedsac.config import Config
from fedsac.core.metrics import Metric, accuracy
from fedsac.core.module_layout import AnyLayout, ModuleLayout
from fedsac.models.network import Network
from fedsac.recipe import rate_factor

State = dict[str, Any]
"""Tensors and JSON values by name: what a checkpoint stores of a method."""


@dataclass(frozen=True)
class Task:
    """What the server knows: the model's layout and initial weights [parameters], the clients' names, numbers of
    samples and contributions c, and the validation set V."""

    layout: AnyLayout
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
    lr_schedule: str = "constant"
    class_weights: str = "none"  # of the server's own steps, too: by the counts of what it trains on

    def rate(self, round: int) -> float:
        """The learning rate of a round."""
        return self.lr * rate_factor(self.lr_schedule, round / self.rounds)

    @cached_property
    def everything(self) -> Tensor:
        """The neuron masks of clients that all hold the whole model: boolean [N, neurons]."""
        return torch.ones(len(self.clients), self.layout.neurons, dtype=torch.bool, device=self.initial.device)

    @property
    def sizes_are_classes(self) -> bool:
        """Whether `size_shares` count classes, as in CLA, and not samples."""
        largest = max(self.samples)
        return any(abs(share - n / largest) > 1e-9 for share, n in zip(self.size_shares, self.samples, strict=False))

    def importance(self, params: Tensor, rows: Tensor | None = None, *, exact: bool = True) -> Tensor:
        """Importance [neurons] of a model [parameters] on V (Eq. 3), or on some rows of it; its first-order
        approximation where it need not be `exact`."""
        v = self.validation if rows is None else self.part(rows)
        if isinstance(self.layout, ModuleLayout):
            return module_importance(self.layout, params, v, exact=exact)
        if exact:
            return stored_importance(self.layout, params, v)
        folded = evaluation.fold_normalisation(self.layout, params.unsqueeze(0), v.scale, v.shift)[0]
        return first_order_importance(Network(self.layout, folded), v.x.to(params.dtype), v.y)

    def evaluate(self, params: Tensor, neurons: Tensor | None, samples: Samples | None = None) -> Tensor:
        """Scores by `metric` on V (or a part of it) of submodels of `params` [S or 1, parameters] with `neurons` [S,
        neurons] (None: all); float64 [S] on the CPU."""
        return evaluation.evaluate(self.layout, params, neurons, samples or self.validation, metric=self.metric)[0]

    def part(self, rows: Tensor) -> Samples:
        """Some rows of V."""
        v = self.validation
        return Samples(v.x[rows], v.y[rows], v.scale, v.shift)

    def steps(self, params: Tensor, samples: Samples, steps: int, round: int) -> Tensor:
        """A model [parameters] after SGD steps by the server on its own samples, with the clients' learning rate and
        batch size."""
        weights = balanced_weights(samples.y.cpu().numpy()) if self.class_weights == "balanced" else None
        rows, weight = stacked_batches(
            [np.arange(len(samples.y))], [steps], self.batch, [self.stream("server steps", round)], [weights]
        )
        device, dtype = params.device, params.dtype
        drawn = Batches(torch.from_numpy(rows).to(device), torch.from_numpy(weight).to(device, dtype))
        if isinstance(self.layout, ModuleLayout):
            drawn = self._drawn_for_module(self.layout, drawn, round)
        lr = torch.full((1,), self.rate(round), dtype=dtype, device=device)
        return training.train(self.layout, params.unsqueeze(0), None, samples, drawn, lr)[0][0]

    def _drawn_for_module(self, layout: ModuleLayout, drawn: Batches, round: int) -> Batches:
        """The server's batches with what is drawn for other networks than perceptrons."""
        augment = None
        if layout.recipe.augment:
            steps, _, batch = drawn.rows.shape
            changes = draw_changes(layout, steps, batch, self.stream("server augmentation", round))
            augment = torch.from_numpy(changes).unsqueeze(1).to(drawn.rows.device)
        seeds = torch.tensor([self.stream("server dropout", round).integers(2**62)])
        return replace(drawn, augment=augment, seeds=seeds)

    def batch_losses(self, params: Tensor) -> list[Tensor]:
        """Mean loss on each batch of 64 samples of V, in its order, for each of the models [S, parameters]."""
        rows = np.arange(len(self.validation.y))
        return evaluation.batch_losses(self.layout, params, self.validation, [rows] * len(params))

    def stream(self, *names: str | int) -> np.random.Generator:
        """The random stream of these names: a method's only source of randomness."""
        return rng.stream(self.seed, "method", *names)


@dataclass(frozen=True)
class Assignment:
    """What each client is given: the submodel of its model with its neurons. The score of that is the client's reward.

    `models` is [N, parameters], or [1, parameters] where all are submodels of one; `neurons` is boolean [N, neurons].
    `extra_epoch`: a client's reward is the score of a copy trained one epoch more on its own data; the copy is used for
    nothing else. `local_losses`, `batch_losses`: what clients are asked to report besides their model.
    `reward_models`, `reward_neurons`: what a client would keep now, where that is not what it trains next.
    """

    models: Tensor
    neurons: Tensor
    reputations: tuple[float, ...] | None = None
    extra_epoch: bool = False
    local_losses: bool = False
    batch_losses: bool | Literal["received"] = False
    reward_models: Tensor | None = None
    reward_neurons: Tensor | None = None

    def reward(self) -> "Assignment":
        """What each client would keep now: its score is the client's reward."""
        if self.reward_models is None and self.reward_neurons is None:
            return self
        models = self.models if self.reward_models is None else self.reward_models
        neurons = self.neurons if self.reward_neurons is None else self.reward_neurons
        return replace(self, models=models, neurons=neurons, reward_models=None, reward_neurons=None)

    def model(self, client: int) -> Tensor:
        """The whole model [parameters] that a client's submodel is a part of."""
        return self.models[client if len(self.models) > 1 else 0]


@dataclass(frozen=True)
class Updates:
    """What the clients sent back in a round: the trained models `params` [k, parameters] of the `clients` (by index)
    that answered.

    `losses` are all clients' mean training losses, for the log; `diverged` are the clients (by index) whose training
    ended in NaN or infinity. Where the assignment asks for them: `local_losses` [k], the loss of the model received on
    the client's own data; `batch_losses`, the losses of the trained model (or of the `received` one) on each batch of
    64 of the client's samples.

    Not for methods: `traffic`, bytes `down` and `up` where they were counted on a network; `remarks`, further keys of
    the round's record; `memory`, what client behaviours keep for the next round.
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
        """The clients that answered, to index tensors [N, ...]: a slice, which copies nothing, where all did."""
        return slice(None) if self.clients == tuple(range(len(self.assignment.neurons))) else list(self.clients)

    @property
    def neurons(self) -> Tensor:
        """The neurons that the clients that answered hold, boolean [k, neurons]."""
        return self.assignment.neurons[self.who]


class Method(ABC):
    """A frozen dataclass whose fields are its options. A method defines `start`, `assign` and `learn`; the other
    functions tell others about its state, and their defaults are right for most methods.

    Rounds are counted from 0: `learn` of the first round's updates gets `updates.round == 0`.
    """

    @abstractmethod
    def start(self, task: Task) -> State:
        """The state before the first round."""

    @abstractmethod
    def assign(self, task: Task, state: State) -> Assignment:
        """What each client is given now: the model it trains in the next round, and, after the last one, keeps."""

    @abstractmethod
    def learn(self, task: Task, state: State, updates: Updates) -> State:
        """The state after a round, from the updates of the clients that answered; there may be none."""

    @classmethod
    def defaults(cls, config: Config) -> dict[str, Any]:
        """Options that follow from a run's settings, where `--set` does not say otherwise."""
        return {}

    def common_model(self, state: State) -> Tensor | None:
        """The global model [parameters]; None where each client has a model of its own."""
        return state.get("model")

    def importance(self, state: State) -> Tensor | None:
        """The importance [neurons] by which neurons were allocated; None for methods without it."""
        return None

    def removed(self, state: State) -> tuple[int, ...]:
        """The clients (by index) that the method has removed for good."""
        return ()

    def carry_over(self, task: Task, state: State, clients: Sequence[str]) -> State:
        """The state when clients join or leave: for `task.clients`, from a state for `clients`.

        The method starts again from the common model, so that all assignments follow from the new contributions. Where
        clients have models of their own (`models`), they keep them, and a new client starts from the public initial
        weights. Whatever else a method remembers of clients (running reputations) is reset.
        """
        common = self.common_model(state)
        fresh = self.start(task if common is None else replace(task, initial=common))
        if "models" in fresh and "models" in state:
            own = state["models"]
            rows = [own[clients.index(n)] if n in clients else task.initial.to(own) for n in task.clients]
            fresh["models"] = torch.stack(rows)
        return fresh
