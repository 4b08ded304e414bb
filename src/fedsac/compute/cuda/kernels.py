"""Kernels for CUDA, where a chain of torch's operations would write and read large intermediate values.

Imported only where tensors lie on a CUDA device; Triton comes with torch there. Everything here has a route through
plain torch that gives the same numbers but for rounding (tests compare the two), and that CPUs, float64 and other
shapes take. Products are float32 as three passes of TF32 on the tensor cores, which has float32's precision, unless
a run asks for less (`precision.py`). Sizes of layers are compiled in: only then are rows known to be aligned, and read
sixteen bytes at a time.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedsac.compute.cuda import precision

PRECISIONS: dict[str, Any] = {"float32": "tf32x3", "tf32": "tf32", "bf16": "bf16"}
WIDEST = 512  # of a layer behind the one that is measured
PROGRAMS = 132  # that a large GPU runs at once, one on each of its processors
BATCHES = (16, 32, 64, 128)  # sizes that a tensor core takes whole


def _precision() -> Any:
    return PRECISIONS[precision.now()]


@triton.jit
def _rounded(a):  # type: ignore[no-untyped-def]
    """The nearest numbers with TF32's ten bits; what is no number stays none."""
    return tl.where(a == a, ((a.to(tl.int32, bitcast=True) + 0x1000) & -0x2000).to(tl.float32, bitcast=True), a)


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
def _inputs(x, scale, shift, row, k, features: tl.constexpr, deep: tl.constexpr, normal: tl.constexpr):  # type: ignore[no-untyped-def]
    """Some features [batch, deep] of samples, where they are stored ones, normalised as a member does."""
    if features % deep == 0:
        value = tl.load(x + row[:, None] * features + k[None, :]).to(tl.float32)
        if normal:
            value = value * tl.load(scale + k)[None, :] + tl.load(shift + k)[None, :]
    else:
        there = k < features
        value = tl.load(x + row[:, None] * features + k[None, :], mask=there[None, :], other=0).to(tl.float32)
        if normal:
            factor, offset = tl.load(scale + k, mask=there, other=0.0), tl.load(shift + k, mask=there, other=0.0)
            value = value * factor[None, :] + offset[None, :]
    return value


@triton.jit
def _there(k, n, features: tl.constexpr, width: tl.constexpr, deep: tl.constexpr):  # type: ignore[no-untyped-def]
    """Which weights of a block there are, from features k to neurons n; each has two axes."""
    there = n < width
    if features % deep != 0:
        there = there & (k < features)
    return there


@triton.jit
def _forward(  # type: ignore[no-untyped-def]
    x, rows, scale, shift, weight, bias, mask, out, stride, samples, next_rows, features: tl.constexpr,
    width: tl.constexpr, normal: tl.constexpr, relu: tl.constexpr, masked: tl.constexpr, block: tl.constexpr,
    across: tl.constexpr, deep: tl.constexpr, precision: tl.constexpr,
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
        value = _inputs(x, scale + member * stride, shift + member * stride, row, k, features, deep, normal)
        there = _there(k[None, :], n[:, None], features, width, deep)
        w = tl.load(own + k[None, :] * width + n[:, None], mask=there, other=0.0)
        total = _dot(w, tl.trans(value), total, precision)
    total += tl.load(bias + member * width + n, mask=n < width, other=0.0)[:, None]
    if relu:
        total = tl.maximum(total, 0.0, propagate_nan=tl.PropagateNan.ALL)  # as torch's relu
    if masked:
        total *= tl.load(mask + member * width + n, mask=n < width, other=0.0)[:, None]
    inside = (n < width)[:, None] & (b < samples)[None, :]
    tl.store(out + (member * samples + b)[None, :] * width + n[:, None], total, mask=inside)


@triton.jit
def _update(  # type: ignore[no-untyped-def]
    x, rows, scale, shift, delta, weight, bias, stride, features: tl.constexpr, width: tl.constexpr,
    normal: tl.constexpr, batch: tl.constexpr, across: tl.constexpr, span: tl.constexpr, deep: tl.constexpr,
    precision: tl.constexpr,
):  # fmt: skip
    """weight += inputs.T @ delta, bias += delta's sum: one member's, for some of the layer's neurons and a span of its
    features. A loop over these, so that the next weights are on their way while some are updated: where there are many
    members, twice as fast as a program for each block of weights."""
    member = tl.program_id(0).to(tl.int64)
    b = tl.arange(0, batch)
    n = tl.program_id(1) * across + tl.arange(0, across)
    row = tl.load(rows + member * batch + b)
    step = tl.load(delta + (member * batch + b)[:, None] * width + n[None, :], mask=(n < width)[None, :], other=0.0)
    if tl.program_id(2) == 0:
        old_bias = tl.load(bias + member * width + n, mask=n < width, other=0.0)
        tl.store(bias + member * width + n, old_bias + tl.sum(step, 0), mask=n < width)
    own, begin = weight + member * features * width, tl.program_id(2) * span
    for start in tl.range(0, span, deep, num_stages=2):
        k = begin + start + tl.arange(0, deep)
        place, there = own + k[:, None] * width + n[None, :], _there(k[:, None], n[None, :], features, width, deep)
        old = tl.load(place, mask=there, other=0.0)
        value = _inputs(x, scale + member * stride, shift + member * stride, row, k, features, deep, normal)
        tl.store(place, _dot(tl.trans(value), step, old, precision), mask=there)


@triton.jit
def _below(  # type: ignore[no-untyped-def]
    delta, weight, active, out, features: tl.constexpr, width: tl.constexpr, batch: tl.constexpr,
    across: tl.constexpr, deep: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """out = delta @ weight.T where the layer below is active, else 0: one member's, for some neurons of that layer."""
    member = tl.program_id(0).to(tl.int64)
    k = tl.program_id(1) * across + tl.arange(0, across)
    b = tl.arange(0, batch)
    own = weight + member * features * width
    total = tl.zeros((across, batch), dtype=tl.float32)
    for start in tl.range(0, width, deep):
        n = start + tl.arange(0, deep)
        there = (k < features)[:, None] & (n < width)[None, :]
        w = tl.load(own + k[:, None] * width + n[None, :], mask=there, other=0.0)
        step = tl.load(delta + (member * batch + b)[None, :] * width + n[:, None], mask=(n < width)[:, None], other=0.0)
        total = _dot(w, step, total, precision)
    place = (member * batch + b)[None, :] * features + k[:, None]
    a = tl.load(active + place, mask=(k < features)[:, None], other=0.0)
    # A masked or silent neuron has a = 0: nothing flows back through it.
    tl.store(out + place, tl.where(a <= 0, 0.0, total), mask=(k < features)[:, None])


class Layer:
    """One layer of every member of a stack. It reads its inputs, rows of `x`, where they lie: the first and by far
    largest layer from the pool, normalised with `normal`, a scale and a shift [S or 1, features] each.

    `weight` [S, features, width] and `bias` [S, width] are used and updated in place; `mask` [S, 1, width] or None.
    """

    def __init__(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        mask: Tensor | None = None,
        *,
        normal: tuple[Tensor, Tensor] | None = None,
        relu: bool = True,
    ) -> None:
        self._x, self._weight, self._bias = x, weight.contiguous(), bias.contiguous()
        self._mask = None if mask is None else mask.contiguous()
        self._normal = None if normal is None else tuple(t.contiguous() for t in normal)
        self._relu = relu
        _, self._features, self._width = weight.shape
        self._stride = self._features if normal is not None and len(normal[0]) > 1 else 0
        self._across = min(128, max(16, triton.next_power_of_2(self._width)))
        self._blocks = triton.cdiv(self._width, self._across)

    def forward(self, rows: Tensor, out: Tensor) -> None:
        """out [k, n, width] = relu(inputs @ weight + bias) * mask, for the first k members: rows [k, n] of x, or [1, n]
        for all of them."""
        scale, shift = self._normal or (self._bias, self._bias)
        samples = rows.shape[1]
        block = samples if samples in BATCHES else BATCHES[-1]
        times = triton.cdiv(samples, block)
        across, deep, warps = self._across, 32, 4 if block < 128 else 8
        if len(self._weight) * self._blocks * times < PROGRAMS:
            # A small stack: many programs, each with few neurons and few rounds of its loop.
            across, deep, warps = 16, min(128, 4096 // block), 2
        _forward[(len(out), triton.cdiv(self._width, across), times)](
            self._x, rows, scale, shift, self._weight, self._bias, self._bias if self._mask is None else self._mask,
            out, self._stride, samples, samples if len(rows) > 1 else 0, features=self._features, width=self._width,
            normal=self._normal is not None, relu=self._relu, masked=self._mask is not None, block=block,
            across=across, deep=deep, precision=_precision(), num_warps=warps,
        )  # fmt: skip

    def update(self, rows: Tensor, delta: Tensor) -> None:
        """weight += inputs.T @ delta, bias += delta's sum, for the first k members: rows [k, batch] of x, delta [k,
        batch, width]. Never for weights that were not contiguous, of which this holds a copy."""
        scale, shift = self._normal or (self._bias, self._bias)
        deep = 64
        parts, span = self._spans(deep)
        _update[(len(delta), self._blocks, parts)](
            self._x, rows, scale, shift, delta, self._weight, self._bias, self._stride, features=self._features,
            width=self._width, normal=self._normal is not None, batch=rows.shape[1], across=self._across, span=span,
            deep=deep, precision=_precision(), num_warps=4,
        )  # fmt: skip

    def _spans(self, deep: int) -> tuple[int, int]:
        """Into how many spans of how many features a layer is cut: as many as a small stack needs to keep a GPU busy,
        but none of less than four blocks. Where blocks end with the features, spans do: nothing checks for it."""
        blocks = triton.cdiv(self._features, deep)
        wanted = max(1, min(4 * PROGRAMS // (len(self._weight) * self._blocks), blocks // 4))
        parts = wanted if self._features % deep else max(n for n in range(1, wanted + 1) if blocks % n == 0)
        return parts, triton.cdiv(blocks, parts) * deep

    def below(self, delta: Tensor, active: Tensor, out: Tensor) -> None:
        """out [k, batch, features] = delta @ weight.T where the layer below, whose output is `active`, is not silent:
        the first k members' error there, from delta [k, batch, width]."""
        across = min(64, max(16, triton.next_power_of_2(self._features)))
        _below[(len(out), triton.cdiv(self._features, across))](
            delta, self._weight, active, out, features=self._features, width=self._width, batch=delta.shape[1],
            across=across, deep=min(32, max(16, triton.next_power_of_2(self._width))), precision=_precision(),
            num_warps=4,
        )  # fmt: skip


@triton.jit
def _errors(  # type: ignore[no-untyped-def]
    logits, y, rows, weight, lr, losses, batch: tl.constexpr, classes: tl.constexpr, block: tl.constexpr
):
    """Logits become the step of one member at the output, (p - onehot(y)) * weight * -lr; its loss is added up."""
    member = tl.program_id(0).to(tl.int64)
    b, c = tl.arange(0, batch), tl.arange(0, block)
    place = logits + (member * batch + b)[:, None] * classes + c[None, :]
    value = tl.load(place, mask=(c < classes)[None, :], other=float("-inf"))
    label = tl.load(y + tl.load(rows + member * batch + b))
    w = tl.load(weight + member * batch + b)
    highest = tl.max(value, 1)
    power = tl.exp(value - highest[:, None])
    total = tl.sum(power, 1)
    hit = c[None, :] == label[:, None]
    picked = tl.sum(tl.where(hit, value, 0.0), 1)
    loss = tl.sum((tl.log(total) + highest - picked) * w, 0)
    tl.store(losses + member, tl.load(losses + member) + loss)
    error = (power / total[:, None] - tl.where(hit, 1.0, 0.0)) * (w * -tl.load(lr + member))[:, None]
    tl.store(place, error, mask=(c < classes)[None, :])


class Steps:
    """The local steps of a stack: three kernels a layer, whatever the number of members. See `stack.PlainSteps`."""

    def __init__(
        self,
        x: Tensor,
        y: Tensor,
        normal: tuple[Tensor, Tensor],
        layers: list[tuple[Tensor, Tensor]],
        masks: list[Tensor] | None,
        drawn: tuple[Tensor, Tensor],
        lr: Tensor,
    ) -> None:
        first = layers[0][0]
        self._rows, self._weight = (t.contiguous() for t in drawn)
        _, members, size = self._rows.shape
        self._lr, self._losses = lr, first.new_zeros(members)
        self._y = y
        self._active = [first.new_empty(members, size, b.shape[1]) for _, b in layers[:-1]]
        self._deltas = [first.new_empty(members, size, b.shape[1]) for _, b in layers]
        self._own = torch.arange(members * size, device=first.device).view(members, size)  # rows of activations
        sources = [x, *(a.flatten(0, 1) for a in self._active)]
        self._layers = [
            Layer(
                source,
                w,
                b,
                masks[i] if masks is not None and i < len(masks) else None,
                normal=None if i else normal,
                relu=i < len(layers) - 1,
            )
            for i, (source, (w, b)) in enumerate(zip(sources, layers, strict=True))
        ]

    @staticmethod
    def fit(models: Tensor, batch: int) -> bool:
        return models.is_cuda and models.dtype == torch.float32 and batch in BATCHES

    def take(self, i: int, k: int) -> None:
        rows = self._rows[i, :k]
        inputs = [rows, *([self._own[:k]] * len(self._active))]
        active, deltas = [a[:k] for a in self._active], [d[:k] for d in self._deltas]
        for layer, source, out in zip(self._layers, inputs, [*active, deltas[-1]], strict=True):
            layer.forward(source, out)
        classes = deltas[-1].shape[2]
        _errors[(k,)](
            deltas[-1], self._y, rows, self._weight[i], self._lr, self._losses, batch=rows.shape[1], classes=classes,
            block=triton.next_power_of_2(classes), num_warps=1,
        )  # fmt: skip
        for j in range(len(deltas) - 1, -1, -1):
            if j:
                self._layers[j].below(deltas[j], active[j - 1], deltas[j - 1])
            self._layers[j].update(inputs[j], deltas[j])

    def losses(self) -> Tensor:
        return self._losses


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
