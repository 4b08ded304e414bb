"""The part of an update that a client is given: its largest entries, tensor by tensor."""

from functools import lru_cache

import torch
from torch import Tensor

from fedsac.core.transfer import to_device
from fedsac.core.units import Layout


def keep(layout: Layout, update: Tensor, shares: Tensor) -> Tensor:
    """For each share q [N], `update` [parameters] with only its largest entries: [N, parameters].

    Of each weight and each bias, n entries, the k = ceil(n max(0, q)) largest by magnitude stay (ties, too); k is at
    most n - 1, as in the published code, so that even a full share loses the smallest entry; k = 0 keeps nothing.

    >>> update = torch.tensor([0.] * 7 + [.5, -.1, .3, -.7, .2], dtype=torch.float64)
    >>> keep(Layout((1, 1, 5)), update, torch.tensor([.4]))[0, -5:].tolist()
    [0.5, 0.0, 0.0, -0.7, 0.0]
    """
    n = torch.tensor(layout.tensor_sizes, dtype=torch.float64).unsqueeze(1)
    # Shares that come to a whole number of entries but for rounding: no entry more.
    k = torch.ceil(n * shares.double().cpu() - 1e-6).clamp_min(0).minimum(n - 1).long()
    size = update.abs()
    if update.is_cuda and update.dtype == torch.float32:
        return _at_once(layout, update, size, k)
    nothing = torch.zeros((), dtype=update.dtype, device=update.device)
    kept = update.new_empty(len(shares), len(update))
    sizes = layout.tensor_sizes
    pieces = zip(*(t.split(sizes, dim=-1) for t in (kept, update, size)), _bounds(layout, size, k), strict=True)
    for part, values, magnitudes, bound in pieces:
        torch.where(magnitudes >= bound.unsqueeze(1), values, nothing, out=part)
    return kept


def _bounds(layout: Layout, size: Tensor, k: Tensor) -> Tensor:
    """The k-th largest [pieces, N] of each piece, tensor by tensor; infinity where k is 0."""
    k = k.to(size.device)
    at = (k - 1).clamp_min(0)
    ordered = [piece.sort(descending=True).values for piece in size.split(layout.tensor_sizes)]
    least = torch.stack([values[i] for values, i in zip(ordered, at, strict=True)])
    return least.masked_fill_(k == 0, torch.inf)


def _at_once(layout: Layout, update: Tensor, size: Tensor, k: Tensor) -> Tensor:
    """The same in a dozen operations, for a GPU, where each has its price: all pieces are sorted together,
    by whole numbers of which the upper half is the piece and the lower half the magnitude's bits."""
    number, keys, ends = _numbered(layout, update.device)
    ordered = (keys | size.view(torch.int32)).sort().values
    # On the CPU, and brought over once: where each bound lies, and what makes it infinite.
    none = to_device(torch.where(k == 0, torch.inf, 0.0), size.device)
    at = to_device(ends - k.clamp_min(1), size.device)
    least = (ordered[at] & 0xFFFFFFFF).int().view(torch.float32) + none
    return torch.where(size >= least.T[:, number], update, 0)


@lru_cache(maxsize=16)
def _numbered(layout: Layout, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """The piece of each parameter; the same as the upper half of a key; on the CPU: where pieces end, [pieces, 1]."""
    sizes = torch.tensor(layout.tensor_sizes)
    number = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
    return number.to(device), (number << 32).to(device), sizes.cumsum(0).unsqueeze(1)
