"""Importance of neurons (Eq. 3): what lies behind a neuron is computed again in registers."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedsac.compute.cuda.kernels.products import chosen_precision, dot
from fedsac.core.units import Layout

MAX_NEXT_LAYER_NEURONS = 512  # in the layer after the one whose importance is measured by a kernel


@triton.jit
def _loss_increases(  # type: ignore[no-untyped-def]
    next_z, a, weight, later_weight, later_bias, y, losses, out, samples,
    width: tl.constexpr, next_width: tl.constexpr, has_later: tl.constexpr,
    block_samples: tl.constexpr, block_neurons: tl.constexpr, block_next: tl.constexpr, classes: tl.constexpr,
    precision: tl.constexpr,
):  # fmt: skip
    """Increases of the loss, summed over a block of samples, when a neuron is zeroed, for each of a block of neurons.
    The layers after the neuron are computed again in registers, `block_next` neurons of the next layer at a time, and
    only the sums are written to memory."""
    block = tl.program_id(0)
    m = block * block_samples + tl.arange(0, block_samples)
    j = tl.program_id(1) * block_neurons + tl.arange(0, block_neurons)
    c = tl.arange(0, classes)
    in_samples = m < samples
    inside = in_samples[:, None] & (j < width)[None, :]
    activation = tl.load(a + m[:, None].to(tl.int64) * width + j[None, :], mask=inside, other=0.0)
    if has_later:
        logits = tl.zeros((block_samples * block_neurons, classes), dtype=tl.float32)
        for start in range(0, next_width, block_next):
            k = start + tl.arange(0, block_next)
            in_layer = k < next_width
            z = tl.load(
                next_z + m[:, None].to(tl.int64) * next_width + k[None, :],
                mask=in_samples[:, None] & in_layer[None, :],
                other=0.0,
            )
            w = tl.load(
                weight + j[:, None] * next_width + k[None, :], mask=(j < width)[:, None] & in_layer[None, :], other=0.0
            )
            changed = z[:, None, :] - activation[:, :, None] * w[None, :, :]
            v = tl.load(later_weight + k[:, None] * classes + c[None, :], mask=in_layer[:, None], other=0.0)
            active = tl.reshape(tl.maximum(changed, 0.0), (block_samples * block_neurons, block_next))
            logits = dot(active, v, logits, precision)
        logits = tl.reshape(logits + tl.load(later_bias + c)[None, :], (block_samples, block_neurons, classes))
    else:
        z = tl.load(next_z + m[:, None].to(tl.int64) * classes + c[None, :], mask=in_samples[:, None], other=0.0)
        w = tl.load(weight + j[:, None] * classes + c[None, :], mask=(j < width)[:, None], other=0.0)
        logits = z[:, None, :] - activation[:, :, None] * w[None, :, :]
    highest = tl.max(logits, 2)
    log_sum_exp = tl.log(tl.sum(tl.exp(logits - highest[:, :, None]), 2)) + highest
    label = tl.load(y + m, mask=in_samples, other=0)
    label_logit = tl.sum(tl.where(c[None, None, :] == label[:, None, None], logits, 0.0), 2)
    loss = tl.load(losses + m, mask=in_samples, other=0.0)
    increase = tl.where(in_samples[:, None], log_sum_exp - label_logit - loss[:, None], 0.0)
    tl.store(out + block * width + j, tl.sum(increase.to(tl.float64), 0), mask=j < width)


def supports_loss_increases(next_z: Tensor, later: list[tuple[Tensor, Tensor]]) -> bool:
    """Does `loss_increases` support these shapes: float32, at most one layer after the next one, and not too wide?"""
    next_width = next_z.shape[1]
    classes = later[-1][0].shape[1] if later else next_width
    shapes = len(later) <= 1 and next_width <= MAX_NEXT_LAYER_NEURONS and classes in (16, 32, 64)
    return next_z.dtype == torch.float32 and shapes


def supports_importance(layout: Layout, params: Tensor) -> bool:
    """Is there a kernel for every layer of a model [parameters] whose importance is measured?"""
    *hidden, classes = layout.sizes[1:]
    padded = -(-classes // 16) * 16
    fits = all(width <= MAX_NEXT_LAYER_NEURONS for width in hidden[1:])
    return params.dtype == torch.float32 and 1 <= len(hidden) <= 2 and fits and padded in (16, 32, 64)


def loss_increases(
    a: Tensor, weight: Tensor, next_z: Tensor, later: list[tuple[Tensor, Tensor]], y: Tensor, loss: Tensor
) -> Tensor:
    """Increase of the loss when a neuron of a layer is zeroed, summed over the samples: float64 [width]. The arguments
    are those of `_loss_increases` in `fedsac.compute.importance`.

    The sums of blocks of samples are added in a fixed order: the same input gives the same bits.
    """
    samples, width = a.shape
    block_samples, block_neurons = 16, 8
    blocks = triton.cdiv(samples, block_samples)
    out = torch.empty(blocks, width, dtype=torch.float64, device=a.device)
    later_weight, later_bias = later[0] if later else (weight, loss)
    _loss_increases[(blocks, triton.cdiv(width, block_neurons))](
        next_z, a.contiguous(), weight.contiguous(), later_weight.contiguous(), later_bias, y, loss, out,
        samples, width=width, next_width=next_z.shape[1], has_later=bool(later), block_samples=block_samples,
        block_neurons=block_neurons, block_next=32, classes=later_weight.shape[1] if later else next_z.shape[1],
        precision=chosen_precision(), num_warps=4,
    )  # fmt: skip
    return out.sum(0)
