"""Variants of FedSAC+ that were tried."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedsac.methods.base import State, Task, Updates
from fedsac.methods.fedsac import FedSAC
from fedsac.methods.server_rows import FedAvgServer
from fedsac.methods.shared import calibration
from fedsac.methods.shared.calibration import FINE_NEURONS, ValidationParts, standard_error
from fedsac.methods.shared.server_data import trained_by_server
from fedsac.methods.shared.targets import OFFSETS, SLOPES


@dataclass(frozen=True)
class Variant(FedSAC):
    """`generous`: among the lines whose correlation is within this much of the highest, the one that gives most.
    `rate`: how far the server goes from the last model to the new one. `weigh`: updates count by the score of the
    submodel they come from, relative to the whole model's, to this power."""

    damping: float = 0.25
    server_steps: int = 20
    calibrated: bool = True
    generous: float = 0.0
    rate: float = 1.0
    weigh: float = 0.0
    above: float = -1.0  # margin below the upper bound, in standard errors; negative: `room`

    def learn(self, task: Task, state: State, updates: Updates) -> State:
        if not updates.clients:
            return state
        model = self.aggregate(task, state, updates)
        if self.server_steps:
            model = trained_by_server(task, model, self.server_steps, self.server_share, updates.round)
        model = state["model"] + self.rate * (model - state["model"])
        return self.allocated_state(task, model, updates.round + 1)

    def aggregate(self, task: Task, state: State, updates: Updates) -> Tensor:
        if not self.weigh:
            return super().aggregate(task, state, updates)
        held = task.layout.held(updates.neurons)
        w = torch.tensor(state["scores"], dtype=torch.float64)
        w = (w / w.max()).clamp_min(0.05).pow(self.weigh)[updates.who].to(updates.params).unsqueeze(1)
        moves = torch.where(held, updates.params - state["model"], 0)
        weight = (held * w).sum(0).clamp_min(self.damping * float(w.sum()))
        return state["model"] + (w * moves).sum(0) / weight

    def allocated_state(self, task: Task, model: Tensor, rounds_done: int) -> State:
        importance = self.measure_importance(task, model, rounds_done)
        rows = ValidationParts.draw(task, self.server_share if self.server_steps else 0).calibration_rows
        n = len(importance)
        order = importance.argsort(stable=True)
        rank = torch.empty_like(order)
        rank[order] = torch.arange(n, device=order.device)
        lengths = np.unique(np.concatenate([np.arange(max(1, n - FINE_NEURONS), n + 1), np.arange(1, n, 4)]))
        prefixes = rank < torch.from_numpy(lengths).to(order.device).unsqueeze(1)
        scores = task.evaluate(model.unsqueeze(0), prefixes, task.part(rows)).numpy()
        best = float(scores[-1])
        error = standard_error(task, model, rows, best)
        above = self.room if self.above < 0 else self.above
        goal = targets(np.array(task.contributions), best, error, self.room, above, self.generous)
        chosen = np.abs(calibration._smoothed(lengths, scores, self.smooth) - goal[:, None]).argmin(1)
        chosen[np.isinf(goal)] = len(lengths) - 1
        neurons = prefixes[torch.from_numpy(chosen).to(order.device)]
        return {"model": model, "importance": importance, "neurons": neurons, "scores": scores[chosen].tolist()}


def targets(c: np.ndarray, best: float, error: float, room: float, above: float, generous: float) -> np.ndarray:
    """As fedsac.methods.shared.targets, with a margin for each bound, and generous."""
    low, high = c, (c + best) / 2
    width = np.maximum(high - low, 0)
    shrink = np.minimum(1, width / max((room + above) * error, 1e-12))
    low, high = low + shrink * room * error, high - shrink * above * error
    high = np.maximum(low, high)
    top = c == c.max()
    low, high = np.where(top, best, low), np.where(top, best, high)
    tilted_low, tilted_high = low - SLOPES[:, None] * c, high - SLOPES[:, None] * c
    first, last = tilted_low.min(1, keepdims=True), tilted_high.max(1, keepdims=True)
    offsets = first + OFFSETS * (last - first)
    lines = np.clip(offsets[:, :, None] + SLOPES[:, None, None] * c, low, high).reshape(-1, len(c))
    centred, spread = c - c.mean(), lines - lines.mean(1, keepdims=True)
    norm = np.sqrt((spread**2).sum(1) * (centred @ centred))
    scores = np.divide(spread @ centred, norm, out=np.full(len(norm), -np.inf), where=norm > 1e-12)
    near = scores >= scores.max() - generous
    k = int(np.where(near, lines.mean(1), -np.inf).argmax())
    return np.where(top | (c >= best), np.inf, lines[k])


@dataclass(frozen=True)
class FedAvgRate(FedAvgServer):
    rate: float = 1.0

    def learn(self, task: Task, state: State, updates: Updates) -> State:
        new = super().learn(task, state, updates)["model"]
        return {"model": state["model"] + self.rate * (new - state["model"])}
