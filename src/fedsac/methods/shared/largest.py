"""The part of an aggregated update that a client is given: its largest entries, tensor by tensor or of the whole."""

from functools import lru_cache

import torch
from torch import Tensor

from fedsac.core.module_layout import AnyLayout
from fedsac.core.transfer import to_device


def largest_entries(layout: AnyLayout, update: Tensor, shares: Tensor) -> Tensor:
    """For each share q of `shares` [N], `update` [parameters] with all but its largest entries set to 0: [N,
    parameters].

    Of the n entries of each weight and each bias, the k = ceil(n max(0, q)) largest by magnitude are kept (with all
    that tie). k is at most n - 1, as in CGSV's published code, so that even a share of 1 loses the smallest entry;
    k = 0 keeps nothing.

    >>> update = torch.tensor([0.] * 7 + [.5, -.1, .3, -.7, .2], dtype=torch.float64)
    >>> from fedsac.core.units import Layout
    >>> largest_entries(Layout((1, 1, 5)), update, torch.tensor([.4]))[0, -5:].tolist()
    [0.5, 0.0, 0.0, -0.7, 0.0]
    """
    n = torch.tensor(layout.tensor_sizes, dtype=torch.float64).unsqueeze(1)
    # Less 1e-6: rounding must not turn a whole number of entries into one more.
    k = torch.ceil(n * shares.double().cpu() - 1e-6).clamp_min(0).minimum(n - 1).long()
    magnitude = update.abs()
    if update.is_cuda and update.dtype == torch.float32:
        return _largest_entries_cuda(layout, update, magnitude, k)
    nothing = torch.zeros((), dtype=update.dtype, device=update.device)
    kept = update.new_empty(len(shares), len(update))
    sizes = layout.tensor_sizes
    tensors = (t.split(sizes, dim=-1) for t in (kept, update, magnitude))
    for part, values, magnitudes, threshold in zip(*tensors, _thresholds(layout, magnitude, k), strict=True):
        torch.where(magnitudes >= threshold.unsqueeze(1), values, nothing, out=part)
    return kept


def largest_of_all(update: Tensor, shares: Tensor) -> Tensor:
    """For each share q of `shares` [N], `update` [parameters] with all but its floor(n q) largest entries set to 0,
    whichever tensor they lie in: [N, parameters]. Ties are kept; a share of 1 keeps everything.

    >>> largest_of_all(torch.tensor([.5, -.1, .3, -.7, .2], dtype=torch.float64), torch.tensor([.59, 1.])).tolist()
    [[0.5, 0.0, 0.0, -0.7, 0.0], [0.5, -0.1, 0.3, -0.7, 0.2]]
    """
    magnitude = update.abs()
    # Plus 1e-6: rounding must not turn a whole number of entries into one less.
    k = torch.floor(len(update) * shares.double().cpu().clamp(0, 1) + 1e-6).long().to(update.device)
    threshold = magnitude.sort(descending=True).values[(k - 1).clamp_min(0)].masked_fill(k == 0, torch.inf)
    return torch.where(magnitude >= threshold.unsqueeze(1), update, 0)


def _thresholds(layout: AnyLayout, magnitude: Tensor, k: Tensor) -> Tensor:
    """The k-th largest magnitude of each tensor, [tensors, N] for k [tensors, N]; infinity where k is 0."""
    k = k.to(magnitude.device)
    at = (k - 1).clamp_min(0)
    ordered = [tensor.sort(descending=True).values for tensor in magnitude.split(layout.tensor_sizes)]
    threshold = torch.stack([values[i] for values, i in zip(ordered, at, strict=True)])
    return threshold.masked_fill_(k == 0, torch.inf)


def _largest_entries_cuda(layout: AnyLayout, update: Tensor, magnitude: Tensor, k: Tensor) -> Tensor:
    """`largest_entries` in a dozen operations, for a GPU, where launching each costs time. All tensors are sorted at
    once, by 64-bit keys: the upper half is the index of the tensor, the lower half the bits of the magnitude, which
    sort like the number they stand for."""
    number, keys, ends = _tensor_of_entry(layout, update.device)
    ordered = (keys | magnitude.view(torch.int32)).sort().values
    # Computed on the CPU and copied once: the position of each threshold, and infinity to add where k is 0.
    infinite = to_device(torch.where(k == 0, torch.inf, 0.0), magnitude.device)
    at = to_device(ends - k.clamp_min(1), magnitude.device)
    threshold = (ordered[at] & 0xFFFFFFFF).int().view(torch.float32) + infinite
    return torch.where(magnitude >= threshold.T[:, number], update, 0)


@lru_cache(maxsize=16)
def _tensor_of_entry(layout: AnyLayout, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """The index of the tensor that each entry belongs to [parameters]; the same as the upper half of a key; and, on the
    CPU, the end of each tensor in the vector [tensors, 1]."""
    sizes = torch.tensor(layout.tensor_sizes)
    number = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
    return number.to(device), (number << 32).to(device), sizes.cumsum(0).unsqueeze(1)
