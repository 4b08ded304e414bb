"""The part of an update that a client is given: its largest entries, tensor by tensor."""

import torch
from torch import Tensor

from fedsac.models.neurons import Layout


def keep(layout: Layout, update: Tensor, shares: Tensor) -> Tensor:
    """For each share q [N], `update` [parameters] with only its largest entries: [N, parameters].

    Of each weight and each bias, n entries, the k = ceil(n max(0, q)) largest by magnitude stay (ties, too); k is at
    most n - 1, as in the published code, so that even a full share loses the smallest entry; k = 0 keeps nothing.

    >>> update = torch.tensor([0.] * 7 + [.5, -.1, .3, -.7, .2], dtype=torch.float64)
    >>> keep(Layout((1, 1, 5)), update, torch.tensor([.4]))[0, -5:].tolist()
    [0.5, 0.0, 0.0, -0.7, 0.0]
    """
    kept = update.new_empty(len(shares), len(update))
    pieces = _tensors(layout, update)
    n = torch.tensor([len(piece) for piece in pieces], dtype=torch.float64).unsqueeze(1)
    # Shares that come to a whole number of entries but for rounding: no entry more. All of them in one transfer.
    counts = torch.ceil(n * shares.double().cpu() - 1e-6).clamp_min(0).minimum(n - 1).long().to(update.device)
    for given, whole, k in zip(_tensors(layout, kept), pieces, counts, strict=True):
        size = whole.abs()
        ordered = size.sort(descending=True).values
        least = torch.where(k > 0, ordered[(k - 1).clamp_min(0)], torch.inf)
        given.copy_(torch.where(size >= least.unsqueeze(1), whole, 0))
    return kept


def _tensors(layout: Layout, params: Tensor) -> list[Tensor]:
    """Weights and biases as flat pieces of `params` [..., parameters]."""
    sizes = [size for w, b in layout.views(params) for size in (w.shape[-2] * w.shape[-1], b.shape[-1])]
    return list(params.split(sizes, dim=-1))
