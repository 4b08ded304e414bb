"""Bounded steps: no client moves what it holds much further than the others do.

A step's length is that of its mean parameter (root mean square over what the client holds), since submodels differ in
size. A step longer than `BOUND` times the median of all is shortened to that; its direction stays. (Twice the median
let the only holder of a neuron do harm, and once costs nothing: docs/hardening.md.)
"""

import torch
from torch import Tensor

BOUND = 1.0  # times the median step


def bounded(steps: Tensor, held: Tensor, bound: float = BOUND) -> tuple[Tensor, Tensor]:
    """The steps [k, parameters], shortened where they are too long, and the factor [k] that each was shortened by.

    >>> steps, factors = bounded(torch.tensor([[1.0, 0.0], [3.0, 9.0], [1.0, 1.0]]), torch.ones(3, 2, dtype=torch.bool))
    >>> [round(f, 4) for f in factors.tolist()]
    [1.0, 0.1491, 1.0]
    """
    inside = torch.where(held, steps, 0)
    lengths = inside.double().square().sum(1).div(held.sum(1).clamp_min(1)).sqrt()
    limit = bound * lengths.median()
    factors = torch.where(lengths > limit, limit / lengths.clamp_min(1e-300), 1.0)
    return inside * factors.to(steps.dtype).unsqueeze(1), factors
