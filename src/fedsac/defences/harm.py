"""Refusing what would wreck the model: `refuse = harmful`. The paper takes in whatever clients send.

A reply is refused if two things hold. Its step stands out: it is more than `STEP_RATIO` times as long as the median
step of the others, each relative to the model that was sent. And it does harm on the server's validation data: the mean
of those whose steps do not stand out has a higher loss with it than without it, or the model itself, as it comes back,
is worse than guessing and than what was sent. Neither alone would do: a model that was trained on one class is bad on
validation data and makes the mean no worse than others do, but its step is as long as anybody's; and a long step may be
a useful one. Whom the rule refuses, of honest and of hostile clients, is in docs/decisions.md.

It is no defence against a step that is hostile and short, nor where most of those who answer are hostile.
"""

import math
from collections.abc import Collection
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from fedsac.compute import evaluation
from fedsac.compute.samples import Samples
from fedsac.core.aggregation import aggregate_unchecked
from fedsac.core.module_layout import AnyLayout
from fedsac.methods.base import Updates

STEP_RATIO = 4.0  # of a step to the median step of the others


def harmful(layout: AnyLayout, validation: Samples, updates: Updates) -> dict[int, str]:
    """The clients (by index) whose replies would wreck the model, with the reason."""
    k = len(updates.clients)
    if k < 2:
        return {}
    given, held = updates.assignment, layout.held(updates.neurons)
    sent = torch.stack([given.model(i) for i in updates.clients])
    back = torch.where(held, updates.params, sent)
    moved = (back - sent).double().norm(dim=1) / (1 + torch.where(held, sent, 0).double().norm(dim=1))
    steps = moved.tolist()
    ratios = [_ratio(steps[i], float(np.median(steps[:i] + steps[i + 1 :]))) for i in range(k)]
    long = [i for i in range(k) if not ratios[i] <= STEP_RATIO]
    if not long:  # the usual case: nothing is evaluated
        return {}
    calm = [i for i in range(k) if i not in long]
    common = sent.mean(0)
    means = [_mean(back, held, common, calm), *(_mean(back, held, common, [*calm, i]) for i in long)]
    before, *after = _losses(layout, torch.stack(means), validation)
    own = _losses(layout, torch.stack([*(sent[i] for i in long), *(back[i] for i in long)]), validation)
    guessing = math.log(layout.classes)
    refused = {}
    for n, i in enumerate(long):
        was, now = own[n], own[len(long) + n]
        if after[n] > before or now > max(guessing, was):
            refused[updates.clients[i]] = (
                f"harm: its step is {ratios[i]:.3g} times the others', and on validation data the loss goes from "
                f"{before:.3g} to {after[n]:.3g} with it, its own from {was:.3g} to {now:.3g}"
            )
    return refused


def without(updates: Updates, clients: Collection[int]) -> Updates:
    """The updates of all but these clients (by index)."""
    if not clients:
        return updates
    kept = [row for row, i in enumerate(updates.clients) if i not in clients]
    losses, batches = updates.local_losses, updates.batch_losses
    return replace(
        updates,
        clients=tuple(updates.clients[row] for row in kept),
        params=updates.params[kept],
        local_losses=None if losses is None else losses[kept],
        batch_losses=None if batches is None else [batches[row] for row in kept],
    )


def _ratio(step: float, median: float) -> float:
    return step / median if median else (math.inf if step else 0.0)


def _mean(models: Tensor, held: Tensor, common: Tensor, rows: list[int]) -> Tensor:
    return aggregate_unchecked(models[rows], held[rows], common)


def _losses(layout: AnyLayout, models: Tensor, validation: Samples) -> list[float]:
    """The mean losses of models on validation data; infinity for what is not a number."""
    rows = [np.arange(len(validation.y))] * len(models)
    losses = evaluation.mean_losses(layout, models, validation, rows).tolist()
    return [loss if math.isfinite(loss) else math.inf for loss in losses]
