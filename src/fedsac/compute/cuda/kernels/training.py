"""SGD steps of a stack: three kernels a layer, whatever the number of members."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from fedsac.compute.cuda.kernels.products import chosen_precision, dot

PROGRAMS_AT_ONCE = 132  # on a large GPU: one on each of its multiprocessors
BATCH_SAMPLES = (16, 32, 64, 128)  # batch sizes that fill a tensor core's block


@triton.jit
def _inputs(x, scale, shift, row, k, features: tl.constexpr, block_features: tl.constexpr, normalised: tl.constexpr):  # type: ignore[no-untyped-def]
    """Features k [block_features] of rows `row` of x, [rows, block_features]; `normalised`: by a member's scale and
    shift, for samples as they are stored."""
    if features % block_features == 0:
        value = tl.load(x + row[:, None] * features + k[None, :]).to(tl.float32)
        if normalised:
            value = value * tl.load(scale + k)[None, :] + tl.load(shift + k)[None, :]
    else:
        inside = k < features
        value = tl.load(x + row[:, None] * features + k[None, :], mask=inside[None, :], other=0).to(tl.float32)
        if normalised:
            factor, offset = tl.load(scale + k, mask=inside, other=0.0), tl.load(shift + k, mask=inside, other=0.0)
            value = value * factor[None, :] + offset[None, :]
    return value


@triton.jit
def _in_bounds(k, n, features: tl.constexpr, width: tl.constexpr, block_features: tl.constexpr):  # type: ignore[no-untyped-def]
    """Which weights from features k to neurons n are inside the layer; k and n are broadcast to the block's axes."""
    inside = n < width
    if features % block_features != 0:
        inside = inside & (k < features)
    return inside


@triton.jit
def _forward(  # type: ignore[no-untyped-def]
    x, rows, scale, shift, weight, bias, mask, out, scale_stride, samples, row_stride, features: tl.constexpr,
    width: tl.constexpr, normalised: tl.constexpr, relu: tl.constexpr, masked: tl.constexpr,
    block_samples: tl.constexpr, block_neurons: tl.constexpr, block_features: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """out = relu(inputs @ weight + bias) * mask of one member, for a block of samples and of the layer's neurons.

    Computed transposed, weight.T @ inputs.T: so the many weights go from memory straight to the tensor cores'
    registers, and only the inputs pass through shared memory. A quarter faster.
    """
    member = tl.program_id(0).to(tl.int64)
    n = tl.program_id(1) * block_neurons + tl.arange(0, block_neurons)
    b = tl.program_id(2) * block_samples + tl.arange(0, block_samples)
    row = tl.load(rows + member * row_stride + b, mask=b < samples, other=0)
    own_weight = weight + member * features * width
    total = tl.zeros((block_neurons, block_samples), dtype=tl.float32)
    for start in tl.range(0, features, block_features, num_stages=3):
        k = start + tl.arange(0, block_features)
        value = _inputs(
            x,
            scale + member * scale_stride,
            shift + member * scale_stride,
            row,
            k,
            features,
            block_features,
            normalised,
        )
        weight_inside = _in_bounds(k[None, :], n[:, None], features, width, block_features)
        w = tl.load(own_weight + k[None, :] * width + n[:, None], mask=weight_inside, other=0.0)
        total = dot(w, tl.trans(value), total, precision)
    total += tl.load(bias + member * width + n, mask=n < width, other=0.0)[:, None]
    if relu:
        total = tl.maximum(total, 0.0, propagate_nan=tl.PropagateNan.ALL)  # as torch's relu
    if masked:
        total *= tl.load(mask + member * width + n, mask=n < width, other=0.0)[:, None]
    out_inside = (n < width)[:, None] & (b < samples)[None, :]
    tl.store(out + (member * samples + b)[None, :] * width + n[:, None], total, mask=out_inside)


@triton.jit
def _update(  # type: ignore[no-untyped-def]
    x, rows, scale, shift, delta, weight, bias, scale_stride, features: tl.constexpr, width: tl.constexpr,
    normalised: tl.constexpr, batch: tl.constexpr, block_neurons: tl.constexpr, span_features: tl.constexpr,
    block_features: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """weight += inputs.T @ delta, bias += delta.sum(0) of one member, for a block of the layer's neurons and a span of
    several blocks of its features. The loop over these blocks loads the next weights while it updates the last ones:
    with many members, twice as fast as a program for each block."""
    member = tl.program_id(0).to(tl.int64)
    b = tl.arange(0, batch)
    n = tl.program_id(1) * block_neurons + tl.arange(0, block_neurons)
    row = tl.load(rows + member * batch + b)
    step = tl.load(delta + (member * batch + b)[:, None] * width + n[None, :], mask=(n < width)[None, :], other=0.0)
    if tl.program_id(2) == 0:
        old_bias = tl.load(bias + member * width + n, mask=n < width, other=0.0)
        tl.store(bias + member * width + n, old_bias + tl.sum(step, 0), mask=n < width)
    own_weight, begin = weight + member * features * width, tl.program_id(2) * span_features
    for start in tl.range(0, span_features, block_features, num_stages=2):
        k = begin + start + tl.arange(0, block_features)
        address = own_weight + k[:, None] * width + n[None, :]
        inside = _in_bounds(k[:, None], n[None, :], features, width, block_features)
        old = tl.load(address, mask=inside, other=0.0)
        value = _inputs(
            x,
            scale + member * scale_stride,
            shift + member * scale_stride,
            row,
            k,
            features,
            block_features,
            normalised,
        )
        tl.store(address, dot(tl.trans(value), step, old, precision), mask=inside)


@triton.jit
def _backward(  # type: ignore[no-untyped-def]
    delta, weight, active, out, features: tl.constexpr, width: tl.constexpr, batch: tl.constexpr,
    block_features: tl.constexpr, block_neurons: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """out = delta @ weight.T where the inputs of the layer are `active` (> 0), else 0: of one member, for a block of
    features."""
    member = tl.program_id(0).to(tl.int64)
    k = tl.program_id(1) * block_features + tl.arange(0, block_features)
    b = tl.arange(0, batch)
    own_weight = weight + member * features * width
    total = tl.zeros((block_features, batch), dtype=tl.float32)
    for start in tl.range(0, width, block_neurons):
        n = start + tl.arange(0, block_neurons)
        inside = (k < features)[:, None] & (n < width)[None, :]
        w = tl.load(own_weight + k[:, None] * width + n[None, :], mask=inside, other=0.0)
        step = tl.load(delta + (member * batch + b)[None, :] * width + n[:, None], mask=(n < width)[:, None], other=0.0)
        total = dot(w, step, total, precision)
    offset = (member * batch + b)[None, :] * features + k[:, None]
    a = tl.load(active + offset, mask=(k < features)[:, None], other=0.0)
    # A masked or inactive neuron has a = 0: no error is propagated through it.
    tl.store(out + offset, tl.where(a <= 0, 0.0, total), mask=(k < features)[:, None])


class Layer:
    """One layer of every member of a stack. Its inputs are rows of `x`, which it reads without copying them first: for
    the first and by far largest layer, `x` is the pool, normalised by `normalisation`, a scale and a shift [S or 1,
    features] each.

    `weight` [S, features, width] and `bias` [S, width] are used and updated in place; `mask` [S, 1, width] or None.
    """

    def __init__(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        mask: Tensor | None = None,
        *,
        normalisation: tuple[Tensor, Tensor] | None = None,
        relu: bool = True,
    ) -> None:
        self._x, self._weight, self._bias = x, weight.contiguous(), bias.contiguous()
        self._mask = None if mask is None else mask.contiguous()
        self._normalisation = None if normalisation is None else tuple(t.contiguous() for t in normalisation)
        self._relu = relu
        _, self._features, self._width = weight.shape
        self._scale_stride = self._features if normalisation is not None and len(normalisation[0]) > 1 else 0
        self._block_neurons = min(128, max(16, triton.next_power_of_2(self._width)))
        self._neuron_blocks = triton.cdiv(self._width, self._block_neurons)

    def forward(self, rows: Tensor, out: Tensor) -> None:
        """Write relu(inputs @ weight + bias) * mask of the first k members to `out` [k, n, width]; the inputs are rows
        [k, n] of x, or rows [1, n] for all members."""
        scale, shift = self._normalisation or (self._bias, self._bias)
        samples = rows.shape[1]
        block_samples = samples if samples in BATCH_SAMPLES else BATCH_SAMPLES[-1]
        sample_blocks = triton.cdiv(samples, block_samples)
        block_neurons, block_features, warps = self._block_neurons, 32, 4 if block_samples < 128 else 8
        if len(self._weight) * self._neuron_blocks * sample_blocks < PROGRAMS_AT_ONCE:
            # A small stack: more programs, each with fewer neurons and a shorter loop, to keep the GPU busy.
            block_neurons, block_features, warps = 16, min(128, 4096 // block_samples), 2
        _forward[(len(out), triton.cdiv(self._width, block_neurons), sample_blocks)](
            self._x, rows, scale, shift, self._weight, self._bias, self._bias if self._mask is None else self._mask,
            out, self._scale_stride, samples, samples if len(rows) > 1 else 0, features=self._features,
            width=self._width, normalised=self._normalisation is not None, relu=self._relu,
            masked=self._mask is not None, block_samples=block_samples, block_neurons=block_neurons,
            block_features=block_features, precision=chosen_precision(), num_warps=warps,
        )  # fmt: skip

    def output(self, rows: Tensor) -> Tensor:
        """What `forward` writes, as a new tensor [S, n, width]."""
        out = self._weight.new_empty(len(self._weight), rows.shape[1], self._width)
        self.forward(rows, out)
        return out

    def update(self, rows: Tensor, delta: Tensor) -> None:
        """weight += inputs.T @ delta, bias += delta.sum(1) of the first k members, from rows [k, batch] of x and delta
        [k, batch, width]. Only for layers made from contiguous weights: of others, this updates a copy."""
        scale, shift = self._normalisation or (self._bias, self._bias)
        block_features = 64
        spans, span_features = self._feature_spans(block_features)
        _update[(len(delta), self._neuron_blocks, spans)](
            self._x, rows, scale, shift, delta, self._weight, self._bias, self._scale_stride, features=self._features,
            width=self._width, normalised=self._normalisation is not None, batch=rows.shape[1],
            block_neurons=self._block_neurons, span_features=span_features, block_features=block_features,
            precision=chosen_precision(), num_warps=4,
        )  # fmt: skip

    def _feature_spans(self, block_features: int) -> tuple[int, int]:
        """How many spans of features `update` splits a layer into, and the number of features in each: as many spans as
        a small stack needs to keep a GPU busy, but none of fewer than four blocks. Where the blocks divide the features
        evenly, so do the spans, because the kernel then has no bounds check."""
        blocks = triton.cdiv(self._features, block_features)
        wanted = max(1, min(4 * PROGRAMS_AT_ONCE // (len(self._weight) * self._neuron_blocks), blocks // 4))
        spans = wanted if self._features % block_features else max(n for n in range(1, wanted + 1) if blocks % n == 0)
        return spans, triton.cdiv(blocks, spans) * block_features

    def backward(self, delta: Tensor, active: Tensor, out: Tensor) -> None:
        """Write the first k members' error at this layer's inputs to `out` [k, batch, features]: delta @ weight.T where
        the inputs are `active` (> 0), else 0; from delta [k, batch, width]."""
        block_features = min(64, max(16, triton.next_power_of_2(self._features)))
        _backward[(len(out), triton.cdiv(self._features, block_features))](
            delta, self._weight, active, out, features=self._features, width=self._width, batch=delta.shape[1],
            block_features=block_features, block_neurons=min(32, max(16, triton.next_power_of_2(self._width))),
            precision=chosen_precision(), num_warps=4,
        )  # fmt: skip


@triton.jit
def _output_errors(  # type: ignore[no-untyped-def]
    logits, y, rows, weight, lr, losses, batch: tl.constexpr, classes: tl.constexpr, block_classes: tl.constexpr
):
    """Overwrite the logits of one member with its step at the output, (p - onehot(y)) * weight * -lr, and add its loss
    to `losses`."""
    member = tl.program_id(0).to(tl.int64)
    b, c = tl.arange(0, batch), tl.arange(0, block_classes)
    address = logits + (member * batch + b)[:, None] * classes + c[None, :]
    value = tl.load(address, mask=(c < classes)[None, :], other=float("-inf"))
    label = tl.load(y + tl.load(rows + member * batch + b))
    w = tl.load(weight + member * batch + b)
    highest = tl.max(value, 1)
    exponential = tl.exp(value - highest[:, None])
    total = tl.sum(exponential, 1)
    is_label = c[None, :] == label[:, None]
    label_logit = tl.sum(tl.where(is_label, value, 0.0), 1)
    loss = tl.sum((tl.log(total) + highest - label_logit) * w, 0)
    tl.store(losses + member, tl.load(losses + member) + loss)
    error = (exponential / total[:, None] - tl.where(is_label, 1.0, 0.0)) * (w * -tl.load(lr + member))[:, None]
    tl.store(address, error, mask=(c < classes)[None, :])


class KernelSteps:
    """SGD steps by these kernels: three per layer, whatever the number of members. See `training.SGDSteps`.

    `x` [n, features] and `y` [n] are the pool; `batches` are its rows and their weights, [steps, S, batch] each.
    """

    def __init__(
        self,
        x: Tensor,
        y: Tensor,
        normalisation: tuple[Tensor, Tensor],
        layers: list[tuple[Tensor, Tensor]],
        masks: list[Tensor] | None,
        batches: tuple[Tensor, Tensor],
        lr: Tensor,
    ) -> None:
        first = layers[0][0]
        self._rows, self._weight = (t.contiguous() for t in batches)
        _, members, size = self._rows.shape
        self._lr, self._losses = lr, first.new_zeros(members)
        self._y = y
        self._active = [first.new_empty(members, size, b.shape[1]) for _, b in layers[:-1]]
        self._deltas = [first.new_empty(members, size, b.shape[1]) for _, b in layers]
        # Rows of the flattened activations [S * batch, ...], which are the inputs of all layers but the first.
        self._activation_rows = torch.arange(members * size, device=first.device).view(members, size)
        sources = [x, *(a.flatten(0, 1) for a in self._active)]
        self._layers = [
            Layer(
                source,
                w,
                b,
                masks[i] if masks is not None and i < len(masks) else None,
                normalisation=None if i else normalisation,
                relu=i < len(layers) - 1,
            )
            for i, (source, (w, b)) in enumerate(zip(sources, layers, strict=True))
        ]

    @staticmethod
    def supports(models: Tensor, batch: int) -> bool:
        """Are there kernels for models of this type on this device, with batches of this size?"""
        return models.is_cuda and models.dtype == torch.float32 and batch in BATCH_SAMPLES

    def take_step(self, i: int, k: int) -> None:
        rows = self._rows[i, :k]
        inputs = [rows, *([self._activation_rows[:k]] * len(self._active))]
        active, deltas = [a[:k] for a in self._active], [d[:k] for d in self._deltas]
        for layer, source, out in zip(self._layers, inputs, [*active, deltas[-1]], strict=True):
            layer.forward(source, out)
        classes = deltas[-1].shape[2]
        _output_errors[(k,)](
            deltas[-1], self._y, rows, self._weight[i], self._lr, self._losses, batch=rows.shape[1], classes=classes,
            block_classes=triton.next_power_of_2(classes), num_warps=1,
        )  # fmt: skip
        for j in range(len(deltas) - 1, -1, -1):
            if j:
                self._layers[j].backward(deltas[j], active[j - 1], deltas[j - 1])
            self._layers[j].update(inputs[j], deltas[j])

    def losses(self) -> Tensor:
        return self._losses
