"""Variants of FedSAC+ that were tried and are not in the package."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedsac.methods.base import Assignment, Method, State, Task, Updates
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

    def allocated_state(self, task: Task, model: Tensor, rounds_done: int, before: State | None = None) -> State:
        state = super().allocated_state(task, model, rounds_done, before)
        if not self.weigh:
            return state
        rows = ValidationParts.draw(task, self.server_share if self.server_steps else 0).calibration_rows
        scores = task.evaluate(model.unsqueeze(0), state["neurons"], task.part(rows))
        return state | {"scores": scores.tolist()}


@dataclass(frozen=True)
class ServerOrder(FedSACPlus):
    """Neurons are ordered by their importance on the server's part of V, which calibration does not use."""

    def measure_importance(self, task: Task, model: Tensor, rounds_done: int) -> Tensor:
        return task.importance(model, ValidationParts.draw(task, self.server_share).server_rows)


@dataclass(frozen=True)
class FedAvgRate(FedAvgServer):
    rate: float = 1.0

    def learn(self, task: Task, state: State, updates: Updates) -> State:
        new = super().learn(task, state, updates)["model"]
        return {"model": state["model"] + self.rate * (new - state["model"])}


def running_mean(before: Tensor, model: Tensor, rounds_done: int, decay: float) -> Tensor:
    """An exponential mean of models over rounds; in the first rounds over fewer, so that the start is forgotten."""
    kept = min(decay, rounds_done / (10 + rounds_done))
    return kept * before + (1 - kept) * model


@dataclass(frozen=True)
class PaidWithMean(Method):
    """Clients train the model as it is (`trained`), and are paid with its running mean over rounds (`model`)."""

    decay: float = 0.9

    def start(self, task: Task) -> State:
        return super().start(task) | {"trained": task.initial}

    def assign(self, task: Task, state: State) -> Assignment:
        paid = super().assign(task, state)
        return replace(paid, models=state["trained"].unsqueeze(0), reward_models=paid.models)


@dataclass(frozen=True)
class Averaged(PaidWithMean, FedSACPlus):
    """Clients train submodels of the model as it is (`trained`); what is measured, cut and paid is its running mean
    over rounds (`model`)."""

    def learn(self, task: Task, state: State, updates: Updates) -> State:
        if not updates.clients:
            return state
        trained = self.new_model(task, {"model": state["trained"]}, updates)
        rounds_done = updates.round + 1
        mean = running_mean(state["model"], trained, rounds_done, self.decay)
        return self.allocated_state(task, mean, rounds_done) | {"trained": trained}


@dataclass(frozen=True)
class Kept(FedSACPlus):
    """Everything as in FedSAC+; but what clients would keep is cut from the running mean of the models (`mean`), by
    its own importance and calibrated by itself."""

    decay: float = 0.9

    def start(self, task: Task) -> State:
        state = super().start(task)
        return state | {"mean": task.initial, "kept": state["neurons"]}

    def assign(self, task: Task, state: State) -> Assignment:
        mean = state["mean"].unsqueeze(0)
        return replace(super().assign(task, state), reward_models=mean, reward_neurons=state["kept"])

    def common_model(self, state: State) -> Tensor:
        mean: Tensor = state["mean"]
        return mean

    def learn(self, task: Task, state: State, updates: Updates) -> State:
        new = super().learn(task, state, updates)
        mean = running_mean(state["mean"], new["model"], updates.round + 1, self.decay)
        kept = self.allocated_state(task, mean, updates.round + 1)["neurons"]
        return {name: new[name] for name in ("model", "importance", "neurons")} | {"mean": mean, "kept": kept}


@dataclass(frozen=True)
class FedAvgAveraged(PaidWithMean, FedAvgServer):
    """FedAvg with server steps, of which everyone gets the running mean over rounds."""

    def learn(self, task: Task, state: State, updates: Updates) -> State:
        trained = super().learn(task, {"model": state["trained"]}, updates)["model"]
        return {"model": running_mean(state["model"], trained, updates.round + 1, self.decay), "trained": trained}
