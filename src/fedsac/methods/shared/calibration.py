"""Submodels whose score is what was aimed at: prefixes of an order of neurons, measured on validation data."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedsac.compute.uncertainty import standard_errors
from fedsac.core.allocation import ranked
from fedsac.errors import FedsacError
from fedsac.methods.base import Task
from fedsac.methods.shared.targets import targets

FINE_NEURONS = 80  # prefixes with up to so many neurons less than the model are all measured: scores fall fast there
COARSE_STEP_NEURONS = 4  # of the shorter prefixes, every fourth is measured


@dataclass(frozen=True)
class ValidationParts:
    """The validation set V, split in two at random: rows for the server's SGD steps, and rows for calibration."""

    server_rows: Tensor
    calibration_rows: Tensor

    @classmethod
    def draw(cls, task: Task, share: float) -> "ValidationParts":
        n = len(task.validation.y)
        order = torch.from_numpy(task.stream("parts of V").permutation(n)).to(task.initial.device)
        cut = int(share * n)
        if share and not 0 < cut < n:
            raise FedsacError(
                f"option server_share = {share:g} of V's {n} samples leaves none for it or for calibration"
            )
        return cls(order[:cut].sort().values, order[cut:].sort().values)


def calibrated_lengths(
    task: Task, model: Tensor, order: Tensor, rows: Tensor, *, room: float, smooth: int, generous: float = 0.0
) -> Tensor:
    """How many neurons each client gets, int64 [N]: the prefix of this order [neurons] whose score on these rows
    of V comes nearest to the client's target."""
    n = len(order)
    rank = ranked(order)
    lengths = np.unique(
        np.concatenate([np.arange(max(1, n - FINE_NEURONS), n + 1), np.arange(1, n, COARSE_STEP_NEURONS)])
    )
    tried = task.layout.completed(rank < torch.from_numpy(lengths).to(rank.device).unsqueeze(1), rank)
    scores = task.evaluate(model.unsqueeze(0), tried, task.part(rows)).numpy()
    best = float(scores[-1])
    error = standard_error(task, model, rows, best)
    goal = targets(np.array(task.contributions), best, error, room, generous)
    # Not the whole model, near as it may come: whoever has a target below it would be outside BCF with it.
    parts = slice(max(1, len(lengths) - 1))
    chosen = np.abs(_smoothed(lengths, scores, smooth)[parts] - goal[:, None]).argmin(1)
    chosen[np.isinf(goal)] = len(lengths) - 1
    return torch.from_numpy(lengths[chosen]).to(rank.device)


def standard_error(task: Task, model: Tensor, rows: Tensor, score: float) -> float:
    """Standard error of a model's score on these rows of V (see `compute.uncertainty`)."""
    scores, rng = torch.tensor([score], dtype=torch.float64), task.stream("jackknife")
    return float(standard_errors(task.layout, model.unsqueeze(0), task.part(rows), scores, metric=task.metric, rng=rng))


def _smoothed(lengths: np.ndarray, scores: np.ndarray, width: int) -> np.ndarray:
    """Each prefix's score as the mean over those within `width` neurons of it: what is picked should be near its
    target because it is good, not because a few samples fell its way. The whole model stays out of it."""
    near = np.abs(lengths[:, None] - lengths) <= width
    near[:, -1] = near[-1] = False
    np.fill_diagonal(near, True)
    return np.asarray((near @ scores) / near.sum(1))
