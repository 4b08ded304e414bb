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
    pieces = _tensors(layout, update.abs())
    n = torch.tensor([len(piece) for piece in pieces], dtype=torch.float64).unsqueeze(1)
    # Shares that come to a whole number of entries but for rounding: no entry more. All of them in one transfer.
    k = torch.ceil(n * shares.double().cpu() - 1e-6).clamp_min(0).minimum(n - 1).long().to(update.device)
    at = (k - 1).clamp_min(0)
    least = torch.stack([piece.sort(descending=True).values[i] for piece, i in zip(pieces, at, strict=True)])
    least.masked_fill_(k == 0, torch.inf)
    nothing = torch.zeros((), dtype=update.dtype, device=update.device)
    kept = update.new_empty(len(shares), len(update))
    given = zip(_tensors(layout, kept), _tensors(layout, update), pieces, least, strict=True)
    for part, value, size, bound in given:
        torch.where(size >= bound.unsqueeze(1), value, nothing, out=part)
    return kept


def _tensors(layout: Layout, params: Tensor) -> list[Tensor]:
    """Weights and biases as flat pieces of `params` [..., parameters]."""
    sizes = [size for w, b in layout.views(params) for size in (w.shape[-2] * w.shape[-1], b.shape[-1])]
    return list(params.split(sizes, dim=-1))
