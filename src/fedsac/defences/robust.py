"""Robust aggregation in front of any method: what stands out is pulled in before the method takes its mean.

Where at least `FEW` clients hold a parameter, the steps of its holders are clamped between the order statistics that
leave `TRIM` of them on either side (a Winsorised mean: of h holders, the h // 5 highest count as the next one, and so
do the lowest). Up to h // 5 hostile holders then move the parameter no further than an honest one would.

Where fewer hold it, neither a median nor Krum can tell who is right: two holders that disagree are a tie, and one is
always in the majority. There the server's own data judges. A client's steps in few-held parameters are dropped for this
round if the mean model's loss on validation data is higher with them than without them, by more than 2 %.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

FEW = 5  # holders: with fewer, trimming leaves nothing to trim
TRIM = 5  # of h holders, h // TRIM count as standing out on either side
MARGIN = 1.02  # times the loss without a client's few-held steps: V is small, and honest steps raise it by chance
PARAMETERS_AT_ONCE = 1 << 20  # sorted at a time


def clamped(steps: Tensor, held: Tensor) -> Tensor:
    """The steps [k, parameters] within the trimmed range of their parameter's holders; where fewer than `FEW` hold it,
    as they are.

    >>> steps = torch.tensor([[1.0], [2.0], [3.0], [4.0], [99.0]])
    >>> clamped(steps, torch.ones(5, 1, dtype=torch.bool)).squeeze(1).tolist()
    [2.0, 2.0, 3.0, 4.0, 4.0]
    """
    if len(steps) < FEW:
        return steps
    parts = zip(steps.split(PARAMETERS_AT_ONCE, 1), held.split(PARAMETERS_AT_ONCE, 1), strict=True)
    return torch.cat([_clamped(*part) for part in parts], 1)


def _clamped(steps: Tensor, held: Tensor) -> Tensor:
    in_order = torch.where(held, steps, torch.inf).sort(0).values
    holders = held.sum(0)
    cut = holders // TRIM
    low = in_order.gather(0, cut.unsqueeze(0))
    high = in_order.gather(0, (holders - 1 - cut).clamp_min(0).unsqueeze(0))
    inside = torch.where(steps < low, low, torch.where(steps > high, high, steps))
    return torch.where(held & (holders >= FEW), inside, steps)


def few_held(held: Tensor) -> Tensor:
    """Which parameters each client holds together with few others or alone, boolean [k, parameters]."""
    return held & (held.sum(0) < FEW)


def judged(steps: Tensor, held: Tensor, losses: Callable[[Tensor], Sequence[float]]) -> tuple[Tensor, list[int]]:
    """The steps [k, parameters] without those in few-held parameters that raise the loss on validation data, and whose
    they were (rows). `losses` tells the losses of models that have moved by [n, parameters].

    Who holds nothing that is few-held is not judged. Each is judged against all others as they are: two that are both
    wrong do not hide each other, since the loss is that of one parameter set less at a time."""
    few = few_held(held)
    rows = [i for i, any_held in enumerate(few.any(1).tolist()) if any_held]
    if not rows:
        return steps, []
    holders = held.sum(0).clamp_min(1)
    everyone = torch.where(held, steps, 0).sum(0) / holders
    without = [everyone - torch.where(few[i], steps[i], 0) / holders for i in rows]
    full, *less = losses(torch.stack([everyone, *without]))
    wrong = [i for i, loss in zip(rows, less, strict=True) if not full <= MARGIN * loss]
    if wrong:
        steps = steps.clone()
        for i in wrong:
            steps[i] = torch.where(few[i], 0, steps[i])
    return steps, wrong
