"""Variants of FedSAC+ that were tried and are not in the package."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedsac.methods.base import State, Task, Updates
from fedsac.methods.fedsac_plus import FedSACPlus
from fedsac.methods.server_rows import FedAvgServer
from fedsac.methods.shared.calibration import ValidationParts

LEAST_WEIGHT = 0.05  # of a submodel's score over the best one's, before it is raised to a power


@dataclass(frozen=True)
class Variant(FedSACPlus):
    """`rate`: how far the server goes from the last model to the new one. `weigh`: updates count by the score of the
    submodel they come from, relative to the best one's, to this power. `samples`: and by their clients' numbers of
    samples, to this power."""

    damping: float = 0.25
    generous: float = 0.0
    rate: float = 1.0
    weigh: float = 0.0
    samples: float = 0.0

    def new_model(self, task: Task, state: State, updates: Updates) -> Tensor:
        before: Tensor = state["model"]
        return before + self.rate * (super().new_model(task, state, updates) - before)

    def aggregate(self, task: Task, state: State, updates: Updates) -> Tensor:
        if not self.weigh and not self.samples:
            return super().aggregate(task, state, updates)
        held, before = task.layout.held(updates.neurons), state["model"]
        weights = torch.tensor(task.samples, dtype=torch.float64).pow(self.samples)
        if self.weigh:
            relative = torch.tensor(state["scores"], dtype=torch.float64)
            weights *= (relative / relative.max()).clamp_min(LEAST_WEIGHT).pow(self.weigh)
        w = (weights / weights.max())[updates.who].to(updates.params).unsqueeze(1)
        moves = torch.where(held, updates.params - before, 0)
        total: Tensor = before + (w * moves).sum(0) / (held * w).sum(0).clamp_min(self.damping * float(w.sum()))
        return total

    def allocated_state(self, task: Task, model: Tensor, rounds_done: int) -> State:
        state = super().allocated_state(task, model, rounds_done)
        if not self.weigh:
            return state
        rows = ValidationParts.draw(task, self.server_share if self.server_steps else 0).calibration_rows
        scores = task.evaluate(model.unsqueeze(0), state["neurons"], task.part(rows))
        return state | {"scores": scores.tolist()}


@dataclass(frozen=True)
class FedAvgRate(FedAvgServer):
    rate: float = 1.0

    def learn(self, task: Task, state: State, updates: Updates) -> State:
        new = super().learn(task, state, updates)["model"]
        return {"model": state["model"] + self.rate * (new - state["model"])}
