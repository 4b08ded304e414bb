"""Kernels for CUDA, where a chain of torch's operations would write and read large intermediate values.

Imported only where tensors lie on a CUDA device; Triton comes with torch there. Everything here has a route through
plain torch that gives the same numbers but for rounding (tests compare the two), and that CPUs, float64 and other
shapes take. Products are float32 as three passes of TF32 on the tensor cores, which has float32's precision. Sizes of
layers are compiled in: only then are rows known to be aligned, and read sixteen bytes at a time.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

PRECISION: Any = "tf32x3"
WIDEST = 512  # of a layer behind the one that is measured
BATCHES = (16, 32, 64, 128)  # sizes that a tensor core takes whole


@triton.jit
def _inputs(x, scale, shift, row, at, inside, features):  # type: ignore[no-untyped-def]
    """Samples [batch, block] of the pool, normalised as a member does."""
    value = tl.load(x + row[:, None] * features + at[None, :], mask=inside[None, :], other=0)
    factor = tl.load(scale + at, mask=inside, other=0.0)
    offset = tl.load(shift + at, mask=inside, other=0.0)
    return value.to(tl.float32) * factor[None, :] + offset[None, :]


@triton.jit
def _first_layer(  # type: ignore[no-untyped-def]
    x, rows, scale, shift, weight, bias, mask, out, stride, features: tl.constexpr, width: tl.constexpr,
    masked: tl.constexpr, batch: tl.constexpr, across: tl.constexpr, deep: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """out = relu(inputs @ weight + bias), masked: one member's, for some of the layer's neurons."""
    member = tl.program_id(0).to(tl.int64)
    b = tl.arange(0, batch)
    n = tl.program_id(1) * across + tl.arange(0, across)
    row = tl.load(rows + member * batch + b)
    total = tl.zeros((batch, across), dtype=tl.float32)
    for start in range(0, features, deep):
        k = start + tl.arange(0, deep)
        there = k < features
        value = _inputs(x, scale + member * stride, shift + member * stride, row, k, there, features)
        place = weight + member * features * width + k[:, None].to(tl.int64) * width + n[None, :]
        w = tl.load(place, mask=there[:, None] & (n < width)[None, :], other=0.0)
        total = tl.dot(value, w, total, input_precision=precision)
    total = tl.maximum(total + tl.load(bias + member * width + n, mask=n < width, other=0.0)[None, :], 0.0)
    if masked:
        total *= tl.load(mask + member * width + n, mask=n < width, other=0.0)[None, :]
    tl.store(out + (member * batch + b)[:, None] * width + n[None, :], total, mask=(n < width)[None, :])


@triton.jit
def _first_update(  # type: ignore[no-untyped-def]
    x, rows, scale, shift, delta, weight, stride, features: tl.constexpr, width: tl.constexpr,
    batch: tl.constexpr, across: tl.constexpr, deep: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """weight += inputs.T @ delta: one member's, for some of the features and of the layer's neurons."""
    member = tl.program_id(0).to(tl.int64)
    b = tl.arange(0, batch)
    k = tl.program_id(1) * deep + tl.arange(0, deep)
    n = tl.program_id(2) * across + tl.arange(0, across)
    row = tl.load(rows + member * batch + b)
    value = _inputs(x, scale + member * stride, shift + member * stride, row, k, k < features, features)
    step = tl.load(delta + (member * batch + b)[:, None] * width + n[None, :], mask=(n < width)[None, :], other=0.0)
    place = weight + member * features * width + k[:, None].to(tl.int64) * width + n[None, :]
    inside = (k < features)[:, None] & (n < width)[None, :]
    old = tl.load(place, mask=inside, other=0.0)
    tl.store(place, tl.dot(tl.trans(value), step, old, input_precision=precision), mask=inside)


class FirstLayer:
    """The first layer of every member of a stack, by far the largest: it reads its samples from the pool itself.

    `weight` [S, features, width] and `bias` [S, width] are used and updated in place; `mask` [S, 1, width] or None.
    """

    def __init__(
        self, x: Tensor, scale: Tensor, shift: Tensor, weight: Tensor, bias: Tensor, mask: Tensor | None
    ) -> None:
        self._pool = x, scale.contiguous(), shift.contiguous()
        self._weight, self._bias = weight, bias
        self._mask = None if mask is None else mask.contiguous()
        self._members, self._features, self._width = weight.shape
        self._stride = self._features if len(scale) > 1 else 0

    @staticmethod
    def fits(models: Tensor, batch: int) -> bool:
        return models.is_cuda and models.dtype == torch.float32 and batch in BATCHES

    def forward(self, rows: Tensor, out: Tensor) -> None:
        """out [S, batch, width] = relu(x[rows] normalised @ weight + bias) * mask."""
        x, scale, shift = self._pool
        batch, across = rows.shape[1], 128
        _first_layer[(self._members, triton.cdiv(self._width, across))](
            x, rows, scale, shift, self._weight, self._bias, self._bias if self._mask is None else self._mask, out,
            self._stride, features=self._features, width=self._width, masked=self._mask is not None,
            batch=batch, across=across, deep=32, precision=PRECISION, num_warps=4, num_stages=4,
        )  # fmt: skip

    def update(self, rows: Tensor, delta: Tensor) -> None:
        """weight += (x[rows] normalised).T @ delta, bias += delta's sum, for delta [S, batch, width]."""
        x, scale, shift = self._pool
        batch, across, deep = rows.shape[1], 128, 64
        grid = (self._members, triton.cdiv(self._features, deep), triton.cdiv(self._width, across))
        _first_update[grid](
            x, rows, scale, shift, delta, self._weight, self._stride, features=self._features, width=self._width,
            batch=batch, across=across, deep=deep, precision=PRECISION, num_warps=4,
        )  # fmt: skip
        self._bias += delta.sum(1)


@triton.jit
def _rises(  # type: ignore[no-untyped-def]
    below, a, weight, tail, bias, y, before, out, samples,
    width: tl.constexpr, next_width: tl.constexpr, tailed: tl.constexpr,
    rows: tl.constexpr, neurons: tl.constexpr, deep: tl.constexpr, classes: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """Rises of the loss over some samples, when each of some neurons is taken out: what lies downstream of a neuron is
    computed again in registers, and only the sums leave them."""
    block = tl.program_id(0)
    m = block * rows + tl.arange(0, rows)
    j = tl.program_id(1) * neurons + tl.arange(0, neurons)
    c = tl.arange(0, classes)
    there = m < samples
    inside = there[:, None] & (j < width)[None, :]
    activation = tl.load(a + m[:, None].to(tl.int64) * width + j[None, :], mask=inside, other=0.0)
    if tailed:
        logits = tl.zeros((rows * neurons, classes), dtype=tl.float32)
        for start in range(0, next_width, deep):
            k = start + tl.arange(0, deep)
            known = k < next_width
            z = tl.load(
                below + m[:, None].to(tl.int64) * next_width + k[None, :],
                mask=there[:, None] & known[None, :],
                other=0.0,
            )
            w = tl.load(
                weight + j[:, None] * next_width + k[None, :], mask=(j < width)[:, None] & known[None, :], other=0.0
            )
            changed = z[:, None, :] - activation[:, :, None] * w[None, :, :]
            v = tl.load(tail + k[:, None] * classes + c[None, :], mask=known[:, None], other=0.0)
            active = tl.reshape(tl.maximum(changed, 0.0), (rows * neurons, deep))
            logits = tl.dot(active, v, logits, input_precision=precision)
        logits = tl.reshape(logits + tl.load(bias + c)[None, :], (rows, neurons, classes))
    else:
        z = tl.load(below + m[:, None].to(tl.int64) * classes + c[None, :], mask=there[:, None], other=0.0)
        w = tl.load(weight + j[:, None] * classes + c[None, :], mask=(j < width)[:, None], other=0.0)
        logits = z[:, None, :] - activation[:, :, None] * w[None, :, :]
    highest = tl.max(logits, 2)
    total = tl.log(tl.sum(tl.exp(logits - highest[:, :, None]), 2)) + highest
    label = tl.load(y + m, mask=there, other=0)
    picked = tl.sum(tl.where(c[None, None, :] == label[:, None, None], logits, 0.0), 2)
    loss = tl.load(before + m, mask=there, other=0.0)
    rise = tl.where(there[:, None], total - picked - loss[:, None], 0.0)
    tl.store(out + block * width + j, tl.sum(rise.to(tl.float64), 0), mask=j < width)


def fits(below: Tensor, tail: list[tuple[Tensor, Tensor]]) -> bool:
    """Is this a shape that `rises` takes: float32, one layer at most behind the next one, and not too wide?"""
    classes = tail[-1][0].shape[1] if tail else below.shape[1]
    return below.dtype == torch.float32 and len(tail) <= 1 and below.shape[1] <= WIDEST and classes in (16, 32, 64)


def rises(
    a: Tensor, weight: Tensor, below: Tensor, tail: list[tuple[Tensor, Tensor]], y: Tensor, before: Tensor
) -> Tensor:
    """Sum of the rises over the samples, for each neuron of a layer with activations `a` [n, width]; float64 [width].

    The sums of blocks of samples are added up in a fixed order: the same input gives the same bits.
    """
    samples, width = a.shape
    rows, neurons = 16, 8
    blocks = triton.cdiv(samples, rows)
    out = torch.empty(blocks, width, dtype=torch.float64, device=a.device)
    tail_weight, tail_bias = tail[0] if tail else (weight, before)
    _rises[(blocks, triton.cdiv(width, neurons))](
        below, a.contiguous(), weight.contiguous(), tail_weight.contiguous(), tail_bias, y, before, out,
        samples, width=width, next_width=below.shape[1], tailed=bool(tail), rows=rows, neurons=neurons, deep=32,
        classes=tail_weight.shape[1] if tail else below.shape[1], precision=PRECISION, num_warps=4,
    )  # fmt: skip
    return out.sum(0)
