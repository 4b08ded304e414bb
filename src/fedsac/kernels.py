"""Kernels for CUDA, where a chain of torch's operations would write and read large intermediate values.

Imported only where tensors lie on a CUDA device; Triton comes with torch there. Everything here has a route through
plain torch that gives the same numbers but for rounding (tests compare the two), and that CPUs, float64 and other
shapes take. Products are float32 as three passes of TF32 on the tensor cores, which has float32's precision, unless
torch's own switch (`torch.set_float32_matmul_precision`) asks for less. Sizes of layers are compiled in: only then are
rows known to be aligned, and read sixteen bytes at a time.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

PRECISIONS: dict[str, Any] = {"highest": "tf32x3", "high": "tf32", "medium": "bf16"}  # by torch's name for it
WIDEST = 512  # of a layer behind the one that is measured
BATCHES = (16, 32, 64, 128)  # sizes that a tensor core takes whole


def _precision() -> Any:
    return PRECISIONS[torch.get_float32_matmul_precision()]


@triton.jit
def _rounded(a):  # type: ignore[no-untyped-def]
    """The nearest numbers with TF32's ten bits."""
    return ((a.to(tl.int32, bitcast=True) + 0x1000) & -0x2000).to(tl.float32, bitcast=True)


@triton.jit
def _dot(a, b, total, precision: tl.constexpr):  # type: ignore[no-untyped-def]
    if precision == "bf16":
        total = tl.dot(a.to(tl.bfloat16), b.to(tl.bfloat16), total)
    elif precision == "tf32":
        # Rounded here, not cut off by the tensor cores; and what was computed on lies in registers, where it is wanted.
        total = tl.dot(_rounded(a), _rounded(b), total, input_precision=precision)
    else:
        total = tl.dot(a, b, total, input_precision=precision)
    return total


@triton.jit
def _inputs(x, scale, shift, row, k, features: tl.constexpr, deep: tl.constexpr):  # type: ignore[no-untyped-def]
    """Some features [batch, deep] of samples of the pool, normalised as a member does."""
    if features % deep == 0:
        value = tl.load(x + row[:, None] * features + k[None, :])
        factor, offset = tl.load(scale + k), tl.load(shift + k)
    else:
        there = k < features
        value = tl.load(x + row[:, None] * features + k[None, :], mask=there[None, :], other=0)
        factor, offset = tl.load(scale + k, mask=there, other=0.0), tl.load(shift + k, mask=there, other=0.0)
    return value.to(tl.float32) * factor[None, :] + offset[None, :]


@triton.jit
def _there(k, n, features: tl.constexpr, width: tl.constexpr, deep: tl.constexpr):  # type: ignore[no-untyped-def]
    """Which weights of a block there are, from features k to neurons n; each has two axes."""
    there = n < width
    if features % deep != 0:
        there = there & (k < features)
    return there


@triton.jit
def _first_layer(  # type: ignore[no-untyped-def]
    x, rows, scale, shift, weight, bias, mask, out, stride, samples, next_rows, features: tl.constexpr,
    width: tl.constexpr, masked: tl.constexpr, block: tl.constexpr, across: tl.constexpr, deep: tl.constexpr,
    precision: tl.constexpr,
):  # fmt: skip
    """out = relu(inputs @ weight + bias), masked: one member's, for some samples and some of the layer's neurons.

    Transposed, weight.T @ inputs.T: so the weights, of which there are many, go from memory straight to the tensor
    cores' registers, and only the inputs pass through shared memory. A quarter faster.
    """
    member = tl.program_id(0).to(tl.int64)
    n = tl.program_id(1) * across + tl.arange(0, across)
    b = tl.program_id(2) * block + tl.arange(0, block)
    row = tl.load(rows + member * next_rows + b, mask=b < samples, other=0)
    own = weight + member * features * width
    total = tl.zeros((across, block), dtype=tl.float32)
    for start in tl.range(0, features, deep, num_stages=3):
        k = start + tl.arange(0, deep)
        value = _inputs(x, scale + member * stride, shift + member * stride, row, k, features, deep)
        there = _there(k[None, :], n[:, None], features, width, deep)
        w = tl.load(own + k[None, :] * width + n[:, None], mask=there, other=0.0)
        total = _dot(w, tl.trans(value), total, precision)
    total = tl.maximum(total + tl.load(bias + member * width + n, mask=n < width, other=0.0)[:, None], 0.0)
    if masked:
        total *= tl.load(mask + member * width + n, mask=n < width, other=0.0)[:, None]
    inside = (n < width)[:, None] & (b < samples)[None, :]
    tl.store(out + (member * samples + b)[None, :] * width + n[:, None], total, mask=inside)


@triton.jit
def _first_update(  # type: ignore[no-untyped-def]
    x, rows, scale, shift, delta, weight, stride, features: tl.constexpr, width: tl.constexpr,
    batch: tl.constexpr, across: tl.constexpr, deep: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """weight += inputs.T @ delta: one member's, for some of the layer's neurons. A loop over the features, so that the
    next weights are on their way while these are updated: twice as fast as a program for each block of them."""
    member = tl.program_id(0).to(tl.int64)
    b = tl.arange(0, batch)
    n = tl.program_id(1) * across + tl.arange(0, across)
    row = tl.load(rows + member * batch + b)
    step = tl.load(delta + (member * batch + b)[:, None] * width + n[None, :], mask=(n < width)[None, :], other=0.0)
    own = weight + member * features * width
    for start in tl.range(0, features, deep, num_stages=2):
        k = start + tl.arange(0, deep)
        place, there = own + k[:, None] * width + n[None, :], _there(k[:, None], n[None, :], features, width, deep)
        old = tl.load(place, mask=there, other=0.0)
        value = _inputs(x, scale + member * stride, shift + member * stride, row, k, features, deep)
        tl.store(place, _dot(tl.trans(value), step, old, precision), mask=there)


class FirstLayer:
    """The first layer of every member of a stack, by far the largest: it reads its samples from the pool itself.

    `weight` [S, features, width] and `bias` [S, width] are used and updated in place; `mask` [S, 1, width] or None.
    """

    def __init__(
        self, x: Tensor, scale: Tensor, shift: Tensor, weight: Tensor, bias: Tensor, mask: Tensor | None
    ) -> None:
        self._pool = x, scale.contiguous(), shift.contiguous()
        self._weight, self._bias = weight.contiguous(), bias.contiguous()
        self._mask = None if mask is None else mask.contiguous()
        _, self._features, self._width = weight.shape
        self._stride = self._features if len(scale) > 1 else 0
        self._across = min(128, max(16, triton.next_power_of_2(self._width)))
        self._blocks = triton.cdiv(self._width, self._across)

    @staticmethod
    def fits(models: Tensor, batch: int) -> bool:
        return models.is_cuda and models.dtype == torch.float32 and batch in BATCHES

    def forward(self, rows: Tensor, out: Tensor) -> None:
        """out [k, n, width] = relu(x[rows] normalised @ weight + bias) * mask, for the first k members: rows [k, n], or
        [1, n] for all of them."""
        x, scale, shift = self._pool
        samples = rows.shape[1]
        block = samples if samples in BATCHES else BATCHES[-1]
        _first_layer[(len(out), self._blocks, triton.cdiv(samples, block))](
            x, rows, scale, shift, self._weight, self._bias, self._bias if self._mask is None else self._mask, out,
            self._stride, samples, samples if len(rows) > 1 else 0, features=self._features, width=self._width,
            masked=self._mask is not None, block=block, across=self._across, deep=32, precision=_precision(),
            num_warps=4 if block < 128 else 8,
        )  # fmt: skip

    def update(self, rows: Tensor, delta: Tensor) -> None:
        """weight += (x[rows] normalised).T @ delta, bias += delta's sum, for the first k members: rows [k, batch],
        delta [k, batch, width]. Never for weights that were not contiguous, of which this holds a copy."""
        x, scale, shift = self._pool
        _first_update[(len(delta), self._blocks)](
            x, rows, scale, shift, delta, self._weight, self._stride, features=self._features, width=self._width,
            batch=rows.shape[1], across=self._across, deep=64, precision=_precision(), num_warps=4,
        )  # fmt: skip
        self._bias[: len(delta)] += delta.sum(1)


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
            logits = _dot(active, v, logits, precision)
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
        classes=tail_weight.shape[1] if tail else below.shape[1], precision=_precision(), num_warps=4,
    )  # fmt: skip
    return out.sum(0)
