"""Which neurons each client gets: reputations from contributions, nested submodels from reputations (Eq. 4 to 7)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fedsac.core import given
from fedsac.core.graphs import run_as_graph
from fedsac.core.transfer import to_device
from fedsac.errors import FedsacError, Wrecked

TOLERANCE_PERCENT = 1e-3  # shares that add up to r_i up to rounding count as r_i


def shares(values: given.Values) -> Tensor:
    """Importance as percentages (Eq. 4), float64 [neurons]; negative values count as 0; equal shares when no value is
    positive.

    >>> shares(torch.tensor([.02, .1, .05, -.01, .04], dtype=torch.float64)).round(decimals=4).tolist()
    [9.5238, 47.619, 23.8095, 0.0, 19.0476]
    """
    return _shares(_checked_importance(values))


def _shares(values: Tensor) -> Tensor:
    positive = values.double().clamp_min(0)
    total = positive.sum()
    return torch.where(total <= 0, 100 / len(positive), positive / total * 100)


def reputation(contributions: given.Values, beta: float) -> Tensor:
    """r_i = 100 exp(beta c_i) / max_k exp(beta c_k) (Eq. 5 and 6), float64 [N]; computed so that it cannot overflow.
    Contributions are finite numbers, beta is one of at least 0.

    >>> reputation([.3, .4, .5], beta=5).round(decimals=6).tolist()
    [36.787944, 60.653066, 100.0]
    """
    c, beta = torch.from_numpy(given.numbers("contributions", contributions)), given.number("beta", beta, least=0)
    return 100 * torch.exp(beta * (c - c.max()))


def allocate(importance: given.Values, reputation: given.Values) -> Tensor:
    """The neurons that each client holds (Eq. 7), boolean [N, neurons], from importance [neurons] and reputations [N].

    Neurons are sorted from the least to the most important (ties by index). A client holds the longest prefix of this
    order whose shares of importance add up to at most its reputation, and at least one neuron; the clients with the
    highest reputation hold all neurons. The submodels are nested, so clients that pool theirs gain nothing that the
    best of them did not have. Importance must be finite, and reputations from 0 to 100.

    >>> mask = allocate(torch.tensor([.02, .1, .05, -.01, .04]), [36.79, 100.])
    >>> [row.nonzero().squeeze(1).tolist() for row in mask]
    [[0, 3, 4], [0, 1, 2, 3, 4]]
    """
    r = torch.from_numpy(given.numbers("reputation", reputation))
    if r.min() < 0 or r.max() > 100:
        raise FedsacError(f"reputation goes from 0 to 100, and here from {r.min():g} to {r.max():g}")
    return allocate_unchecked(_checked_importance(importance), r)


def _checked_importance(values: given.Values) -> Tensor:
    importance = given.tensor("importance", values)
    if importance.ndim != 1 or not len(importance) or importance.dtype == torch.bool or importance.is_complex():
        raise FedsacError(
            f"importance must be one number for each neuron, not {importance.dtype} of shape {tuple(importance.shape)}"
        )
    check_finite(importance)
    check_finite(importance.double().clamp_min(0).sum())  # or all shares would be 0, and everybody hold everything
    return importance


def check_finite(importance: Tensor) -> None:
    """Raise where importance is NaN or infinite, as that of a model that diverged."""
    if not importance.isfinite().all():
        raise Wrecked(
            "importance is not a number: the model's loss on validation data overflows; lower --lr or, where clients "
            "may be hostile, bound their steps (the defence `bounds` of hardened mode)"
        )


def allocate_unchecked(
    importance: Tensor, reputation: Sequence[float] | Tensor, order_by: Tensor | None = None
) -> Tensor:
    """`allocate` without `check_finite`, which would wait for a GPU to finish its queued work. `order_by` [neurons]
    puts neurons in another order than that of their importance."""
    r = to_device(torch.as_tensor(reputation, dtype=torch.float64), importance.device)
    if order_by is None:
        return run_as_graph(_prefixes, (importance.double(), r), "Eq. 7")[0]
    return run_as_graph(_prefixes, (importance.double(), r, order_by.double()), "Eq. 7, ordered")[0]


def _prefixes(importance: Tensor, r: Tensor, order_by: Tensor | None = None) -> tuple[Tensor]:
    order = (importance if order_by is None else order_by).argsort(stable=True)
    cumulative = _shares(importance)[order].cumsum(0)
    length = torch.searchsorted(cumulative, r + TOLERANCE_PERCENT, right=True).clamp_min(1)
    return ((r == r.max()).unsqueeze(1) | (_ranks(order) < length.unsqueeze(1)),)


def prefixes(order_by: Tensor, lengths: Tensor) -> Tensor:
    """The first so many neurons [N] by these values [neurons], ties by index: boolean [N, neurons].

    >>> prefixes(torch.tensor([0.3, 0.1, 0.2]), torch.tensor([1, 2])).int().tolist()
    [[0, 1, 0], [0, 1, 1]]
    """
    return ranked(order_by) < lengths.unsqueeze(1)


def ranked(order_by: Tensor) -> Tensor:
    """The rank of each neuron by these values [neurons], from 0, ties by index.

    >>> ranked(torch.tensor([0.3, 0.1, 0.2])).tolist()
    [2, 0, 1]
    """
    return _ranks(order_by.argsort(stable=True))


def _ranks(order: Tensor) -> Tensor:
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order), device=order.device)
    return rank
