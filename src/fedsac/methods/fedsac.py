"""FedSAC: dynamic submodel allocation for collaborative fairness (Wang et al., KDD 2024), Algorithm 1.

    I_n     = L(V, theta | neuron n zeroed) - L(V, theta), as percentages                      (Eq. 3, 4)
    r_i     = 100 exp(beta c_i) / max_k exp(beta c_k)                                          (Eq. 5, 6)
    theta_i = the neurons, from the least important on, whose importance adds up to r_i        (Eq. 7)
    theta   = sum_i theta_i / sum_i mask_i, parameter by parameter                             (Eq. 8, 9)

Importance is measured on the new model after aggregation, every `importance_every` rounds and after the last one: the
same order of neurons determines the rewards of a round and the submodels of the next one. The authors' code is not
public.

Some options go beyond the paper, each to be studied alone (docs/fedsac-plus.md): `damping` f divides updates by
max(holders, f N) instead of holders; `server_steps` SGD steps of the server on one part of V; `calibrated` submodels,
chosen to reach target accuracies inside BCF (on the other part of V) instead of by Eq. 5 to 7, with a margin of `room`
standard errors, and `generous` where that costs little correlation. Two make importance cheaper for large models
(docs/results/speed.md): `first_order` approximates it, `importance_samples` measures it on so many samples of V, drawn
anew every round. Where units differ in size, `by_cost` gives first those that are least important for each of their
parameters (docs/any-network.md). `slow` lets the order of neurons settle, and submodels grow slowly, so that keeping
what one was given before gains nothing (docs/hardening.md).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsac.config import Config
from fedsac.core.aggregation import aggregate_submodels, aggregate_submodels_damped
from fedsac.core.allocation import allocate_unchecked, check_finite, prefixes, reputation
from fedsac.core.slow_lengths import share_of_neurons
from fedsac.errors import FedsacError
from fedsac.methods.base import Assignment, Method, State, Task, Updates
from fedsac.methods.shared.calibration import ValidationParts, calibrated_lengths
from fedsac.methods.shared.server_data import trained_by_server
from fedsac.methods.shared.slow_allocation import RANKS, carried_over, remembered, slow_neurons, slow_order

# Where the allocation is slow: the share of all rounds in which no prefix is longer than its client's reputation as a
# share of all neurons. A calibrated one says little for longer: while the model is no better than what a client has
# alone, nothing less than all of it is inside BCF.
CAPPED, CAPPED_CALIBRATED = 0.25, 0.75


@dataclass(frozen=True)
class FedSAC(Method):
    beta: float = 5.0
    importance_every: int = 1
    damping: float = 0.0
    server_steps: int = 0
    server_share: float = 0.5
    calibrated: bool = False
    room: float = 2.0
    smooth: int = 4
    generous: float = 0.0
    first_order: bool = False
    importance_samples: int = 0
    by_cost: bool = False
    slow: bool = False

    def __post_init__(self) -> None:
        for name, value, least in (
            ("beta", self.beta, 0),
            ("importance_every", self.importance_every, 1),
            ("damping", self.damping, 0),
            ("server_steps", self.server_steps, 0),
            ("room", self.room, 0),
            ("smooth", self.smooth, 0),
            ("generous", self.generous, 0),
            ("importance_samples", self.importance_samples, 0),
        ):
            if value < least:
                raise FedsacError(f"option {name} must be at least {least}, not {value:g}")
        if not 0 < self.server_share < 1:
            raise FedsacError(f"option server_share must lie between 0 and 1, not {self.server_share:g}")

    @classmethod
    def defaults(cls, config: Config) -> dict[str, Any]:
        # These are settings in the config: two since the paper's tables vary them, one for all methods alike. The
        # others are only options.
        slow = config.defends("slow-order")
        return {"beta": config.beta, "importance_every": config.importance_every, "slow": slow}

    def start(self, task: Task) -> State:
        return self.allocated_state(task, task.initial, 0)

    def assign(self, task: Task, state: State) -> Assignment:
        # Checked here and not in `learn`: it waits for the GPU, and here all runs' work has been queued.
        check_finite(state["importance"])
        r = reputation(task.contributions, self.beta)
        return Assignment(state["model"].unsqueeze(0), state["neurons"], tuple(r.tolist()))

    def importance(self, state: State) -> Tensor | None:
        importance: Tensor = state["importance"]
        return importance

    def learn(self, task: Task, state: State, updates: Updates) -> State:
        if not updates.clients:
            return state
        model = self.new_model(task, state, updates)
        rounds_done = updates.round + 1
        importance_due = rounds_done % self.importance_every == 0 or rounds_done == task.rounds
        if not importance_due:
            return state | {"model": model}
        return self.allocated_state(task, model, rounds_done, remembered(state))

    def carry_over(self, task: Task, state: State, clients: Sequence[str]) -> State:
        before = remembered(state)
        if not self.slow or not before:
            return super().carry_over(task, state, clients)
        model, order = state["model"], before[RANKS]
        importance = self.measure_importance(task, model, 0)
        granted = self._granted(task, model, importance, order)
        neurons, lengths = carried_over(granted, task, before, clients, self._first_lengths(task))
        neurons = task.layout.completed(neurons, order)
        return state | {"importance": importance, "neurons": neurons} | lengths

    def allocated_state(self, task: Task, model: Tensor, rounds_done: int, before: State | None = None) -> State:
        """The state with this model [parameters] after so many rounds: the importance of its neurons, and the neurons
        that each client holds. `before`: what was remembered of a slow allocation."""
        importance = self.measure_importance(task, model, rounds_done)
        order = importance / task.layout.costs.to(importance.device) if self.by_cost else importance
        slow: State = {}
        if self.slow:
            order, slow = slow_order(order, before)
        neurons = self._granted(task, model, importance, order)
        if self.slow:
            capped = rounds_done < task.rounds * (CAPPED_CALIBRATED if self.calibrated else CAPPED)
            most = self._first_lengths(task) if capped else None
            neurons, lengths = slow_neurons(neurons, order, task, before, most)
            slow |= lengths
        neurons = task.layout.completed(neurons, order)
        return {"model": model, "importance": importance, "neurons": neurons} | slow

    def _first_lengths(self, task: Task) -> Tensor:
        """Where the allocation is slow: how long the clients' prefixes are at most in the first rounds [N]."""
        return share_of_neurons(reputation(task.contributions, self.beta), task.layout.neurons)

    def _granted(self, task: Task, model: Tensor, importance: Tensor, order: Tensor) -> Tensor:
        """The prefix of this order that each client gets by this round's importance, [N, neurons]."""
        if self.calibrated:
            share = self.server_share if self.server_steps else 0
            rows = ValidationParts.draw(task, share).calibration_rows
            lengths = calibrated_lengths(
                task, model, order, rows, room=self.room, smooth=self.smooth, generous=self.generous
            )
            return prefixes(order, lengths)
        r = reputation(task.contributions, self.beta)
        return allocate_unchecked(importance, r, None if order is importance else order)

    def measure_importance(self, task: Task, model: Tensor, rounds_done: int) -> Tensor:
        """Importance [neurons] of a model [parameters] (Eq. 3) on V, or on `importance_samples` of it."""
        rows, samples = None, len(task.validation.y)
        if 0 < self.importance_samples < samples:
            drawn = task.stream("importance samples", rounds_done).permutation(samples)[: self.importance_samples]
            rows = torch.from_numpy(np.sort(drawn)).to(model.device)
        return task.importance(model, rows, exact=not self.first_order)

    def new_model(self, task: Task, state: State, updates: Updates) -> Tensor:
        """The global model [parameters] after a round, with the server's own steps."""
        model = self.aggregate(task, state, updates)
        if not self.server_steps:
            return model
        return trained_by_server(task, model, self.server_steps, self.server_share, updates.round)

    def aggregate(self, task: Task, state: State, updates: Updates) -> Tensor:
        """The new global model [parameters] (Eq. 8 and 9)."""
        sent = task.layout, updates.params, updates.neurons, state["model"]
        if self.damping:
            return aggregate_submodels_damped(*sent, self.damping * len(updates.clients))
        return aggregate_submodels(*sent)
