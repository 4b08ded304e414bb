"""Who gets which neurons: reputations from contributions, nested submodels from reputations."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fedsac.core.transfer import moved
from fedsac.errors import FedsacError

TOLERANCE = 1e-3  # of 100: so that shares that add up to r_i but for rounding count as r_i


def shares(values: Tensor) -> Tensor:
    """Importance as percentages (Eq. 4), negative values counted as 0; equal shares when nothing is positive.

    >>> shares(torch.tensor([.02, .1, .05, -.01, .04], dtype=torch.float64)).round(decimals=4).tolist()
    [9.5238, 47.619, 23.8095, 0.0, 19.0476]
    """
    positive = values.double().clamp_min(0)
    total = positive.sum()
    return torch.where(total <= 0, 100 / len(positive), positive / total * 100)


def reputation(contributions: Sequence[float] | Tensor, beta: float) -> Tensor:
    """r_i = 100 exp(beta c_i) / max_k exp(beta c_k) (Eq. 5 and 6), written so that it cannot overflow. float64 [N].

    >>> reputation([.3, .4, .5], beta=5).round(decimals=6).tolist()
    [36.787944, 60.653066, 100.0]
    """
    c = torch.as_tensor(contributions, dtype=torch.float64)
    return 100 * torch.exp(beta * (c - c.max()))


def allocate(importance: Tensor, reputation: Sequence[float] | Tensor) -> Tensor:
    """The neurons of each client (Eq. 7), boolean [N, neurons].

    Neurons stand from the least to the most important (ties by index); a client holds the longest prefix whose shares
    of importance add up to at most its reputation, and at least one neuron; the best reputation holds everything.
    Prefixes are nested: pooling their submodels, clients gain nothing that the best of them did not have.

    >>> mask = allocate(torch.tensor([.02, .1, .05, -.01, .04]), [36.79, 100.])
    >>> [row.nonzero().squeeze(1).tolist() for row in mask]
    [[0, 3, 4], [0, 1, 2, 3, 4]]
    """
    check(importance)
    return prefixes(importance, reputation)


def check(importance: Tensor) -> None:
    """Raise where importance is not a number."""
    if not importance.isfinite().all():
        raise FedsacError("importance is not a number: the model's loss on validation data overflows; lower --lr")


def prefixes(importance: Tensor, reputation: Sequence[float] | Tensor) -> Tensor:
    """`allocate` without a look at the numbers, for which a GPU would have to be waited for: see `check`."""
    importance = importance.double()
    r = torch.as_tensor(reputation, dtype=torch.float64)
    best = moved(r == r.max(), importance.device)
    order = importance.argsort(stable=True)
    earned = shares(importance)[order].cumsum(0)
    length = torch.searchsorted(earned, moved(r + TOLERANCE, importance.device), right=True).clamp_min(1)
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order), device=order.device)
    return best.unsqueeze(1) | (rank < length.unsqueeze(1))
