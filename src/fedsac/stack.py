"""Many models of one shape as one set of tensors: trained and evaluated together. The hot loop of the project.

Members have a leading axis S. Each has its own parameters, neurons, learning rate, samples and normalisation, and
nothing couples them, so ten clients of one run, or all clients of fifty runs, are the same call. The backward pass is
derived by hand: with the learning rate folded into the error at the output, every gradient step is one in-place matrix
product `W += activations.T @ delta`, and no graph is built.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from fedsac.models.neurons import Layout

WORK_BYTES = 1 << 30  # of models in work at a time, on a CPU
LOSS_BATCH = 64  # of the losses that clients report: FedAVE's
CHUNK_BYTES = 64 << 20  # of activations at a time during evaluation: what a CPU needs for full speed; a GPU wants more


@dataclass(frozen=True)
class Samples:
    """Inputs and labels as they are stored, and each member's way of normalising them.

    `x` [n, features] may be uint8; a member sees `x * scale + shift`. `scale` and `shift` are [S, features], or
    [1, features] where all members share them.
    """

    x: Tensor
    y: Tensor
    scale: Tensor
    shift: Tensor


@dataclass(frozen=True)
class Batches:
    """Which samples each member takes at each step.

    `rows` [steps, S, batch] point into the pool; `weight` [steps, S, batch] is 1/(samples in the batch) where there is
    a sample and 0 where there is none, so that members may have short batches, or fewer steps than others. Those stand
    last: `at_work` is how many, from the first on, have a batch at each step (None: all of them).
    """

    rows: Tensor
    weight: Tensor
    at_work: tuple[int, ...] | None = None

    def part(self, start: int, end: int) -> "Batches":
        """Of some members."""
        at_work = None if self.at_work is None else tuple(min(max(n - start, 0), end - start) for n in self.at_work)
        return Batches(self.rows[:, start:end], self.weight[:, start:end], at_work)


@torch.no_grad()
def train(
    layout: Layout, models: Tensor, neurons: Tensor | None, pool: Samples, batches: Batches, lr: Tensor
) -> tuple[Tensor, Tensor]:
    """Plain SGD on the cross-entropy, from `models` [S or 1, parameters]: trained models [S, parameters] and the mean
    loss [S] over the steps of each.

    `neurons` [S, neurons] (boolean) are the ones a member holds: the others neither compute nor learn. `lr` is [S].
    A member whose loss overflows ends as NaN or infinity without touching the others: see `finite`.
    """
    members = batches.rows.shape[1]
    trained, losses = models.new_empty(members, layout.parameters), models.new_empty(members)
    # On a CPU a few hundred megabytes at a time are as fast as more; a GPU's memory is cut up by the engine.
    at_once = members if models.is_cuda else max(1, WORK_BYTES // (4 * layout.parameters * models.element_size()))
    for start in range(0, members, at_once):
        part = slice(start, min(start + at_once, members))
        mine = batches.part(part.start, part.stop)
        own = pool if len(pool.scale) == 1 else replace(pool, scale=pool.scale[part], shift=pool.shift[part])
        masks = None if neurons is None else neurons[part]
        losses[part] = _train(
            layout, models if len(models) == 1 else models[part], masks, own, mine, lr[part], trained[part]
        )
    return trained, losses


def _train(
    layout: Layout,
    models: Tensor,
    neurons: Tensor | None,
    pool: Samples,
    batches: Batches,
    lr: Tensor,
    trained: Tensor,
) -> Tensor:
    """Train some members into `trained`; their mean losses."""
    members, size = batches.rows.shape[1:]
    layers = _workspace(layout, models.expand(members, -1))
    masks = None if neurons is None else [m.unsqueeze(1).to(models.dtype) for m in layout.by_layer(neurons)]
    # Memory is taken once: fresh pages for every step's tensors would cost a tenth of the time.
    active = [models.new_empty(members, size, b.shape[1]) for _, b in layers[:-1]]
    deltas = [models.new_empty(members, size, b.shape[1]) for _, b in layers]
    losses = models.new_zeros(members)
    first = _first_layer(pool, layers[0], None if masks is None else masks[0], size)
    whole, own_lr, own_losses = layers, lr, losses
    at_work = members
    for step, (rows, weight) in enumerate(zip(batches.rows, batches.weight, strict=True)):
        if batches.at_work is not None and batches.at_work[step] < at_work:
            # Some are done: from here on, all there is to do is the others'.
            at_work = batches.at_work[step]
            if not at_work:
                break
            layers = [(w[:at_work], b[:at_work]) for w, b in layers]
            active, deltas = [a[:at_work] for a in active], [d[:at_work] for d in deltas]
            masks = None if masks is None else [m[:at_work] for m in masks]
            own_lr, own_losses = lr[:at_work], losses[:at_work]
        rows, weight = rows[:at_work], weight[:at_work]
        y = pool.y[rows].unsqueeze(2)
        first.forward(rows, active[0])
        for i, (w, b) in enumerate(layers[1:-1], start=1):
            torch.bmm(active[i - 1], w, out=active[i]).add_(b.unsqueeze(1)).relu_()
            if masks is not None:
                active[i].mul_(masks[i])
        w, b = layers[-1]
        delta = deltas[-1]
        torch.log_softmax(torch.bmm(active[-1], w).add_(b.unsqueeze(1)), 2, out=delta)
        own_losses -= (delta.gather(2, y).squeeze(2) * weight).sum(1)

        # d loss / d logits = p - onehot(y), weighted; times -lr, so that all that follows is the step itself.
        delta.exp_()
        delta.scatter_add_(2, y, delta.new_full((), -1).expand(y.shape))
        delta *= (weight * -own_lr.unsqueeze(1)).unsqueeze(2)
        for i in range(len(layers) - 1, 0, -1):
            w, b = layers[i]
            below = torch.bmm(deltas[i], w.mT, out=deltas[i - 1])
            # A masked or silent neuron has a = 0: nothing flows back through it.
            torch.ops.aten.threshold_backward.grad_input(below, active[i - 1], 0, grad_input=below)
            w.baddbmm_(active[i - 1].mT, deltas[i])
            b += deltas[i].sum(1)
        first.update(rows, deltas[0])
    for (w, b), (trained_w, trained_b) in zip(layout.views(trained), whole, strict=True):
        w.copy_(trained_w[..., : w.shape[-1]])
        b.copy_(trained_b[..., : b.shape[-1]])
    return losses / (batches.weight[:, :, 0] > 0).sum(0)


class FirstLayer(Protocol):
    """The layer that reads samples, by far the largest: weights and biases are used and updated in place."""

    def forward(self, rows: Tensor, out: Tensor) -> None:
        """What is active [k, batch, width] for the samples of rows [k, batch]: of the first k members."""

    def update(self, rows: Tensor, delta: Tensor) -> None:
        """A step along delta [k, batch, width], for the rows of the last `forward`."""


def _first_layer(pool: Samples, layer: tuple[Tensor, Tensor], mask: Tensor | None, size: int) -> FirstLayer:
    weight, bias = layer
    if weight.is_cuda:
        from fedsac import kernels

        if kernels.FirstLayer.fits(weight, size):
            return kernels.FirstLayer(pool.x, pool.scale, pool.shift, weight, bias, mask)
    return _PlainFirstLayer(pool, weight, bias, mask, size)


class _PlainFirstLayer:
    def __init__(self, pool: Samples, weight: Tensor, bias: Tensor, mask: Tensor | None, size: int) -> None:
        self._pool, self._weight, self._bias, self._mask = pool, weight, bias, mask
        members, features, _ = weight.shape
        self._stored = pool.x.new_empty(members * size, features)
        self._inputs = weight.new_empty(members, size, features)
        self._normal = pool.scale.unsqueeze(1), pool.shift.unsqueeze(1)

    def forward(self, rows: Tensor, out: Tensor) -> None:
        k = len(rows)
        inputs, stored = self._inputs[:k], self._stored[: rows.numel()]
        torch.index_select(self._pool.x, 0, rows.flatten(), out=stored)
        scale, shift = (normal if len(normal) == 1 else normal[:k] for normal in self._normal)
        inputs.copy_(stored.view_as(inputs)).mul_(scale).add_(shift)
        torch.bmm(inputs, self._weight[:k], out=out).add_(self._bias[:k].unsqueeze(1)).relu_()
        if self._mask is not None:
            out.mul_(self._mask[:k])

    def update(self, rows: Tensor, delta: Tensor) -> None:
        k = len(rows)
        self._weight[:k].baddbmm_(self._inputs[:k].mT, delta)
        self._bias[:k] += delta.sum(1)


def _workspace(layout: Layout, params: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Each layer's weights [S, in, out] and biases [S, out] in memory of their own.

    Inside the flat vectors most members' weights do not begin on a cache line, and the update then takes 2.5 times as
    long; one copy there and back costs a hundredth of a round. The last layer is widened to a multiple of 16 classes
    that never win: at 10 columns a product takes three times as long as at 16.
    """
    # Never views: those of a single member are contiguous already, and training would write into what it was given.
    dense = torch.contiguous_format
    layers = [(w.clone(memory_format=dense), b.clone(memory_format=dense)) for w, b in layout.views(params)]
    w, b = layers[-1]
    extra = -b.shape[1] % 16
    layers[-1] = (
        torch.cat([w, w.new_zeros(*w.shape[:2], extra)], 2),
        torch.cat([b, b.new_full((len(b), extra), -torch.inf)], 1),
    )
    return layers


def finite(params: Tensor, losses: Tensor) -> Tensor:
    """Which members [S] came out of training as numbers."""
    # A sum is finite only if all its terms are, and takes one pass.
    return params.sum(1).isfinite() & losses.isfinite()


@torch.no_grad()
def fold(layout: Layout, params: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Parameters [S, parameters] whose first layer takes inputs as stored: normalisation becomes part of it."""
    folded = params.clone()
    weight, bias = layout.views(folded)[0]
    bias += torch.bmm(shift.expand(len(params), -1).unsqueeze(1), weight).squeeze(1)
    weight *= scale.unsqueeze(2)
    return folded


@torch.no_grad()
def batch_losses(layout: Layout, models: Tensor, samples: Samples, rows: list[np.ndarray]) -> list[Tensor]:
    """Mean cross-entropy of each member on each batch of `LOSS_BATCH` of its own rows, in their order; the last may be
    short. One tensor per member, float64 on the CPU."""
    found = []
    for i, own in enumerate(rows):
        losses = _losses(layout, models[i if len(models) > 1 else 0], samples, i, own)
        found.append(torch.stack([part.mean(dtype=torch.float64) for part in losses.split(LOSS_BATCH)]).cpu())
    return found


@torch.no_grad()
def mean_losses(layout: Layout, models: Tensor, samples: Samples, rows: list[np.ndarray]) -> Tensor:
    """Mean cross-entropy [k], float64, of models [k or 1, parameters] on k lists of rows, each on its own."""
    if len(models) == 1 and len(samples.scale) == 1 and rows:
        # One model for all: one pass over all of their samples.
        parts = _losses(layout, models[0], samples, 0, np.concatenate(rows)).split([len(own) for own in rows])
    else:
        parts = tuple(
            _losses(layout, models[i if len(models) > 1 else 0], samples, i, own) for i, own in enumerate(rows)
        )
    means = [part.mean(dtype=torch.float64) for part in parts]
    return torch.stack(means) if means else models.new_zeros(0, dtype=torch.float64)


def _losses(layout: Layout, model: Tensor, samples: Samples, member: int, rows: np.ndarray) -> Tensor:
    """Cross-entropy of one model [parameters] on each of the rows, normalised as `member` does."""
    k = slice(member, member + 1) if len(samples.scale) > 1 else slice(0, 1)
    scale, shift = samples.scale[k], samples.shift[k]
    layers = layout.views(model)
    first = _kernel(samples, scale, shift, *(t.unsqueeze(0) for t in layers[0]))
    found = []
    for part in torch.from_numpy(rows).to(model.device).split(_chunk(layout, 1, model)):
        if first is not None:
            a = first(part)[0]
        else:
            w, b = layers[0]
            a = torch.addmm(b, torch.addcmul(shift, samples.x[part].to(model.dtype), scale), w).relu_()
        for w, b in layers[1:-1]:
            a = torch.addmm(b, a, w).relu_()
        w, b = layers[-1]
        logits = torch.addmm(b, a, w)
        found.append(logits.logsumexp(1) - logits.gather(1, samples.y[part].unsqueeze(1)).squeeze(1))
    return torch.cat(found)


def _kernel(
    samples: Samples, scale: Tensor, shift: Tensor, weight: Tensor, bias: Tensor
) -> Callable[[Tensor], Tensor] | None:
    """The first layer of models, weights [S, features, width], on rows [n] of the samples: what is active, [S, n,
    width]. On a GPU a kernel, which reads the samples as they are stored; None where there is none."""
    if not weight.is_cuda or weight.dtype != torch.float32:
        return None
    from fedsac import kernels

    layer = kernels.FirstLayer(samples.x, scale, shift, weight, bias, None)

    def active(rows: Tensor) -> Tensor:
        out = weight.new_empty(len(weight), len(rows), weight.shape[2])
        layer.forward(rows.unsqueeze(0), out)
        return out

    return active


def _chunk(layout: Layout, members: int, params: Tensor) -> int:
    """Samples at a time, so that the activations of all members take `CHUNK_BYTES`."""
    budget = CHUNK_BYTES * (16 if params.is_cuda else 1)
    return max(1, budget // (params.element_size() * max(layout.sizes[0], members * max(layout.sizes[1:]))))


@torch.no_grad()
def evaluate(layout: Layout, params: Tensor, neurons: Tensor | None, samples: Samples) -> tuple[Tensor, Tensor]:
    """Accuracy and mean cross-entropy, float64 [S] each on the CPU, of every member on the same samples.

    `params` is [S, parameters], or [1, parameters] where all members are submodels of one model: the first layer, by
    far the largest, is then computed once for all of them.
    """
    members = len(params) if neurons is None else max(len(params), len(neurons))
    first = _kernel(samples, samples.scale, samples.shift, *layout.views(params)[0])
    layers = layout.views(params if first else fold(layout, params, samples.scale, samples.shift))
    masks = None if neurons is None else [m.unsqueeze(1).to(params.dtype) for m in layout.by_layer(neurons)]
    right = torch.zeros(members, dtype=torch.int64, device=params.device)
    loss = torch.zeros(members, dtype=torch.float64, device=params.device)
    chunk, every = _chunk(layout, members, params), torch.arange(len(samples.y), device=params.device)
    for x, y, rows in zip(samples.x.split(chunk), samples.y.split(chunk), every.split(chunk), strict=True):
        a = x.to(params.dtype).expand(len(params), -1, -1) if first is None else first(rows)
        for i, (w, b) in enumerate(layers[:-1]):
            # After the first mask the members differ; until then one model is enough.
            if i or first is None:
                a = torch.bmm(a, w.expand(len(a), -1, -1)).add_(b.unsqueeze(1)).relu_()
            a = a if masks is None else a * masks[i]
        w, b = layers[-1]
        logits = torch.bmm(a, w.expand(len(a), -1, -1)).add_(b.unsqueeze(1))
        labels = y.expand(len(logits), -1)
        right += (logits.argmax(2) == labels).sum(1)
        picked = logits.gather(2, labels.unsqueeze(2)).squeeze(2)
        loss += (logits.logsumexp(2) - picked).sum(1, dtype=torch.float64)
    # On the CPU, where counts become fractions: a GPU's division may differ in the last bit.
    return right.cpu().double() / len(samples.y), loss.cpu() / len(samples.y)
