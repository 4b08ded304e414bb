"""FedSAC: dynamic submodel allocation for collaborative fairness (Wang et al., KDD 2024), Algorithm 1.

    I_n     = L(V, theta | neuron n zeroed) - L(V, theta), as percentages                      (Eq. 3, 4)
    r_i     = 100 exp(beta c_i) / max_k exp(beta c_k)                                          (Eq. 5, 6)
    theta_i = the neurons, from the least important on, whose importance adds up to r_i        (Eq. 7)
    theta   = sum_i theta_i / sum_i mask_i, parameter by parameter                             (Eq. 8, 9)

Importance is measured on the new model after aggregation, every `importance_every` rounds and after the last one: that
order cuts both the rewards and the next round's submodels. No code of the authors' is public.

Three options go beyond the paper, each to be studied alone (docs/fedsac-plus.md): `damping` f divides updates by
max(holders, f N) instead of holders; `server_steps` SGD steps of the server on one part of V; `calibrated` submodels,
cut to target accuracies inside BCF (on the other part of V) instead of by Eq. 5 to 7. Two make importance cheaper for
large models (docs/results/speed.md): `first_order` estimates it, `importance_samples` measures it on so many samples of
V, drawn anew every round.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsac.config import Config
from fedsac.core.aggregation import aggregate_damped, aggregate_submodels
from fedsac.core.allocation import allocate_unchecked, check_finite, reputation
from fedsac.errors import FedsacError
from fedsac.methods.base import Assignment, Method, State, Task, Updates
from fedsac.methods.shared.calibration import Parts, calibrated


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
    ties: bool = True
    first_order: bool = False
    importance_samples: int = 0

    def __post_init__(self) -> None:
        for name, value, least in (
            ("beta", self.beta, 0),
            ("importance_every", self.importance_every, 1),
            ("damping", self.damping, 0),
            ("server_steps", self.server_steps, 0),
            ("room", self.room, 0),
            ("smooth", self.smooth, 0),
            ("importance_samples", self.importance_samples, 0),
        ):
            if value < least:
                raise FedsacError(f"option {name} must be at least {least}, not {value:g}")
        if not 0 < self.server_share < 1:
            raise FedsacError(f"option server_share must lie between 0 and 1, not {self.server_share:g}")

    @classmethod
    def defaults(cls, config: Config) -> dict[str, Any]:
        # These two are settings of a run, since the paper's tables vary them; every other option is the method's own.
        return {"beta": config.beta, "importance_every": config.importance_every}

    def start(self, task: Task) -> State:
        return self.allocated(task, task.initial, 0)

    def assign(self, task: Task, state: State) -> Assignment:
        # Checked here and not in `learn`: it waits for the GPU, and here all runs' work has been queued.
        check_finite(state["importance"])
        r = reputation(task.contributions, self.beta)
        return Assignment(state["model"].unsqueeze(0), state["neurons"], tuple(r.tolist()))

    def importance(self, state: State) -> Tensor | None:
        found: Tensor = state["importance"]
        return found

    def learn(self, task: Task, state: State, updates: Updates) -> State:
        if not updates.clients:
            return state
        model = self.merge(task, state, updates)
        if self.server_steps:
            own = task.part(Parts.of(task, self.server_share).steps)
            model = task.steps(model, own, self.server_steps, updates.round)
        over = updates.round + 1
        due = over % self.importance_every == 0 or over == task.rounds
        return self.allocated(task, model, over) if due else state | {"model": model}

    def allocated(self, task: Task, model: Tensor, over: int) -> State:
        """The state with this model after so many rounds: its neurons' importance, and who holds which of them."""
        importance = self.measure(task, model, over)
        if self.calibrated:
            rows = Parts.of(task, self.server_share if self.server_steps else 0).calibration
            neurons = calibrated(task, model, importance, rows, room=self.room, smooth=self.smooth, ties=self.ties)
        else:
            neurons = allocate_unchecked(importance, reputation(task.contributions, self.beta))
        return {"model": model, "importance": importance, "neurons": neurons}

    def measure(self, task: Task, model: Tensor, over: int) -> Tensor:
        rows, samples = None, len(task.validation.y)
        if 0 < self.importance_samples < samples:
            drawn = task.stream("importance samples", over).permutation(samples)[: self.importance_samples]
            rows = torch.from_numpy(np.sort(drawn)).to(model.device)
        return task.importance(model, rows, exact=not self.first_order)

    def merge(self, task: Task, state: State, updates: Updates) -> Tensor:
        if self.damping:
            held, least = task.layout.held(updates.neurons), self.damping * len(updates.clients)
            return aggregate_damped(updates.params, held, state["model"], least)
        return aggregate_submodels(task.layout, updates.params, updates.neurons, state["model"])
