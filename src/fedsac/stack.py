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

from fedsac import precision
from fedsac.devices import moved
from fedsac.models.neurons import Layout

WORK_BYTES = 1 << 30  # of models in work at a time, on a CPU
CACHE_BYTES = 12 << 20  # of models and activations in work at a time, which a CPU's cache holds
FEW = 10  # members, with fewer of whom every operation is too short to share among threads
LOSS_BATCH = 64  # of the losses that clients report: FedAVE's
MOST_ROWS = 1 << 22  # of samples at a time: a kernel's grid has an end
CHUNK = 1024  # samples evaluated at a time on a CPU, by as many members as make
CHUNK_BYTES = 8 << 20  # of activations: they should stay in its cache
INPUT_BYTES = 64 << 20  # of inputs at the most
GPU_BYTES = 1 << 30  # of activations at a time on a GPU, of all members


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
    a sample and 0 where there is none, so that members may have short batches, or fewer steps than others. Who has
    fewer steps stands further back: `at_work` is how many, from the first on, have a batch at each step (None: all).
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
    if models.is_cuda:  # the engine has cut up what is too large
        return _train_on_gpu(layout, models, neurons, pool, batches, lr)
    trained, losses = models.new_empty(members, layout.parameters), models.new_empty(members)
    at_once = _at_once(layout, members, batches.rows.shape[2], models.element_size())
    for start in range(0, members, at_once):
        part = slice(start, min(start + at_once, members))
        mine = batches.part(part.start, part.stop)
        own = pool if len(pool.scale) == 1 else replace(pool, scale=pool.scale[part], shift=pool.shift[part])
        masks = None if neurons is None else neurons[part]
        losses[part] = _train(
            layout, models if len(models) == 1 else models[part], masks, own, mine, lr[part], trained[part]
        )
    return trained, losses


def _at_once(layout: Layout, members: int, batch: int, itemsize: int) -> int:
    """Members at a time, in parts as equal as can be with a whole number for each thread: as many as a CPU's cache
    holds, but not too few. A step reads every weight three times: a thousand small models in one go take a fifth
    longer."""
    threads = torch.get_num_threads()
    model = itemsize * layout.parameters
    most = max(FEW, CACHE_BYTES // (model + itemsize * 2 * batch * sum(layout.sizes)))
    parts = max(1, -(-members // most))
    each = max(1, -(-members // parts))
    return min(-(-each // threads) * threads, max(1, WORK_BYTES // (4 * model)))


def _train_on_gpu(
    layout: Layout, models: Tensor, neurons: Tensor | None, pool: Samples, batches: Batches, lr: Tensor
) -> tuple[Tensor, Tensor]:
    from fedsac import graphs, kernels

    def work(*given: Tensor) -> tuple[Tensor, Tensor]:
        models, rows, weight, lr, scale, shift, *masks = given
        trained = models.new_empty(rows.shape[1], layout.parameters)
        own, drawn = replace(pool, scale=scale, shift=shift), replace(batches, rows=rows, weight=weight)
        return trained, _train(layout, models, masks[0] if masks else None, own, drawn, lr, trained)

    masks = () if neurons is None else (neurons,)
    given = (models, batches.rows, batches.weight, lr, pool.scale, pool.shift, *masks)
    small = batches.rows.shape[1] * layout.parameters <= graphs.SMALL
    if not small or not kernels.Steps.fit(models, batches.rows.shape[2]):
        return work(*given)
    depends_on = layout, batches.at_work, precision.now(), graphs.place(pool.x), graphs.place(pool.y)
    trained, losses = graphs.replayed(work, given, depends_on)
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
    members = batches.rows.shape[1]
    layers = _workspace(layout, models.expand(members, -1))
    masks = None if neurons is None else [m.unsqueeze(1).to(models.dtype) for m in layout.by_layer(neurons)]
    steps = _steps(pool, layers, masks, batches, lr)
    for i in range(len(batches.rows)):
        at_work = members if batches.at_work is None else batches.at_work[i]
        if at_work:
            steps.take(i, at_work)
    for (w, b), (trained_w, trained_b) in zip(layout.views(trained), layers, strict=True):
        w.copy_(trained_w[..., : w.shape[-1]])
        b.copy_(trained_b[..., : b.shape[-1]])
    return steps.losses() / (batches.weight[:, :, 0] > 0).sum(0)


class Steps(Protocol):
    """The local steps of a stack: weights and biases are used and updated in place."""

    def take(self, i: int, k: int) -> None:
        """The i-th step, of the first k members; k never grows from one step to the next."""

    def losses(self) -> Tensor:
        """The losses [S], added up over the steps."""


Layers = list[tuple[Tensor, Tensor]]


def _steps(pool: Samples, layers: Layers, masks: list[Tensor] | None, batches: Batches, lr: Tensor) -> Steps:
    weight, _ = layers[0]
    if weight.is_cuda:
        from fedsac import kernels

        if kernels.Steps.fit(weight, batches.rows.shape[2]):
            drawn = batches.rows, batches.weight
            return kernels.Steps(pool.x, pool.y, (pool.scale, pool.shift), layers, masks, drawn, lr)
    return PlainSteps(pool, layers, masks, batches, lr)


class PlainSteps:
    """By torch's own operations, on any device and in any precision. Whatever does not depend on the weights is worked
    out for all steps at once: with small networks every operation's overhead counts."""

    def __init__(self, pool: Samples, layers: Layers, masks: list[Tensor] | None, batches: Batches, lr: Tensor) -> None:
        weight, _ = layers[0]
        steps, members, size = batches.rows.shape
        self._x, self._masks = pool.x, masks
        self._rows = batches.rows.flatten(1)
        self._labels = pool.y[batches.rows].unsqueeze(3)
        self._weight = batches.weight
        self._rates = (batches.weight * -lr.unsqueeze(1)).unsqueeze(3)
        self._picked = weight.new_zeros(steps, members, size, 1)  # the labels' log-probabilities
        self._minus = weight.new_full((), -1).expand(members, size, 1)
        # Memory is taken once: fresh pages for every step's tensors would cost a tenth of the time.
        self._active = [weight.new_empty(members, size, b.shape[1]) for _, b in layers[:-1]]
        self._deltas = [weight.new_empty(members, size, b.shape[1]) for _, b in layers]
        self._stored = pool.x.new_empty(members * size, weight.shape[1])
        self._inputs = weight.new_empty(members, size, weight.shape[1])
        self._normal = pool.scale.unsqueeze(1), pool.shift.unsqueeze(1)
        self._layers = [(w, w.mT, b, b.unsqueeze(1)) for w, b in layers]
        self._members = members

    def take(self, i: int, k: int) -> None:
        if k < len(self._inputs):
            self._leave(k)
        rows, y, rates, picked = self._rows[i], self._labels[i], self._rates[i], self._picked[i]
        if k < self._members:
            rows, y, rates, picked = rows[: len(self._stored)], y[:k], rates[:k], picked[:k]
        layers, masks, deltas = self._layers, self._masks, self._deltas
        scale, shift = self._normal
        torch.index_select(self._x, 0, rows, out=self._stored)
        self._inputs.copy_(self._stored.view_as(self._inputs)).mul_(scale).add_(shift)
        active = [self._inputs, *self._active]
        for j, (w, _, _, bias) in enumerate(layers[:-1]):
            torch.bmm(active[j], w, out=active[j + 1]).add_(bias).relu_()
            if masks is not None:
                active[j + 1].mul_(masks[j])
        w, _, _, bias = layers[-1]
        delta = deltas[-1]
        torch.log_softmax(torch.bmm(active[-1], w).add_(bias), 2, out=delta)
        torch.gather(delta, 2, y, out=picked)

        # d loss / d logits = p - onehot(y), weighted; times -lr, so that all that follows is the step itself.
        delta.exp_().scatter_add_(2, y, self._minus).mul_(rates)
        for j in range(len(layers) - 1, -1, -1):
            w, turned, b, _ = layers[j]
            if j:
                below = torch.bmm(deltas[j], turned, out=deltas[j - 1])
                # A masked or silent neuron has a = 0: nothing flows back through it.
                torch.ops.aten.threshold_backward.grad_input(below, active[j], 0, grad_input=below)
            w.baddbmm_(active[j].mT, deltas[j])
            b.add_(deltas[j].sum(1))

    def losses(self) -> Tensor:
        return -(self._picked.squeeze(3) * self._weight).sum((0, 2))

    def _leave(self, k: int) -> None:
        """Some are done: from here on, all there is to do is the others'."""
        self._layers = [(w[:k], turned[:k], b[:k], bias[:k]) for w, turned, b, bias in self._layers]
        self._masks = None if self._masks is None else [m[:k] for m in self._masks]
        self._active, self._deltas = [a[:k] for a in self._active], [d[:k] for d in self._deltas]
        size = self._inputs.shape[1]
        self._inputs, self._stored, self._minus = self._inputs[:k], self._stored[: k * size], self._minus[:k]
        scale, shift = self._normal
        self._normal = (scale, shift) if len(scale) == 1 else (scale[:k], shift[:k])


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
    for part in moved(torch.from_numpy(rows), model.device).split(_chunk(layout, 1, model)):
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

    layer = kernels.Layer(samples.x, weight, bias, normal=(scale, shift))

    def active(rows: Tensor) -> Tensor:
        out = weight.new_empty(len(weight), len(rows), weight.shape[2])
        layer.forward(rows.unsqueeze(0), out)
        return out

    return active


def _chunk(layout: Layout, members: int, params: Tensor) -> int:
    """Samples at a time."""
    if not params.is_cuda:
        return max(1, min(CHUNK, INPUT_BYTES // (params.element_size() * layout.sizes[0])))
    largest = max(layout.sizes[0], members * max(layout.sizes[1:]))
    return min(max(1, GPU_BYTES // (params.element_size() * largest)), MOST_ROWS)


def _layer(a: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """a @ weight + bias of every member; what they share has a first axis of 1."""
    members = max(len(a), len(weight))
    return torch.bmm(a.expand(members, -1, -1), weight.expand(members, -1, -1)).add_(bias.unsqueeze(1))


@torch.no_grad()
def evaluate(layout: Layout, params: Tensor, neurons: Tensor | None, samples: Samples) -> tuple[Tensor, Tensor]:
    """Accuracy and mean cross-entropy, float64 [S] each on the CPU, of every member on the same samples: see `Scores`
    for the arguments."""
    return Scores(layout, params, neurons, samples).done()


class Scores:
    """Accuracy and mean cross-entropy of every member on the same samples, under way: a GPU is told what to do, and
    `done` waits for it.

    `params` is [S, parameters], or [1, parameters] where all members are submodels of one model: the first layer, by
    far the largest, is then computed once for all of them.
    """

    @torch.no_grad()
    def __init__(self, layout: Layout, params: Tensor, neurons: Tensor | None, samples: Samples) -> None:
        members = len(params) if neurons is None else max(len(params), len(neurons))
        first = _kernel(samples, samples.scale, samples.shift, *layout.views(params)[0])
        layers = layout.views(params if first else fold(layout, params, samples.scale, samples.shift))
        masks = None if neurons is None else [m.unsqueeze(1).to(params.dtype) for m in layout.by_layer(neurons)]
        self._right = torch.zeros(members, dtype=torch.int64, device=params.device)
        self._loss = torch.zeros(members, dtype=torch.float64, device=params.device)
        self._samples = len(samples.y)
        chunk, every = _chunk(layout, members, params), torch.arange(self._samples, device=params.device)
        widest = params.element_size() * max(layout.sizes[1:])
        at_once = max(1, members)
        if not params.is_cuda:
            at_once = max(2, CHUNK_BYTES // (max(1, min(chunk, self._samples)) * widest))
        # The first layer comes first where there is a kernel for it, or where members are submodels that share it.
        ahead = first is not None or (len(params) == 1 and len(layers) > 1)
        for x, y, rows in zip(samples.x.split(chunk), samples.y.split(chunk), every.split(chunk), strict=True):
            a = x.to(params.dtype).unsqueeze(0) if first is None else first(rows)
            if ahead and first is None:
                a = _layer(a, *layers[0]).relu_()
            for start in range(0, members, at_once):
                part = slice(start, start + at_once)
                own = [(w, b) if len(w) == 1 else (w[part], b[part]) for w, b in layers]
                held = None if masks is None else [mask if len(mask) == 1 else mask[part] for mask in masks]
                self._score(part, a if len(a) == 1 else a[part], own, held, y, ahead)

    def _score(
        self, part: slice, a: Tensor, layers: Layers, masks: list[Tensor] | None, y: Tensor, ahead: bool
    ) -> None:
        """Some members, some samples: from inputs, or from what is active in the first layer if that is `ahead`."""
        for i, layer in enumerate(layers[:-1]):
            if i or not ahead:
                a = _layer(a, *layer).relu_()
            a = a if masks is None else a * masks[i]
        logits = _layer(a, *layers[-1])
        labels = y.expand(len(logits), -1)
        self._right[part] += (logits.argmax(2) == labels).sum(1)
        picked = logits.gather(2, labels.unsqueeze(2)).squeeze(2)
        self._loss[part] += (logits.logsumexp(2) - picked).sum(1, dtype=torch.float64)

    def done(self) -> tuple[Tensor, Tensor]:
        """Float64 [S] each, on the CPU."""
        # Counts become fractions there: a GPU's division may differ in the last bit.
        return self._right.cpu().double() / self._samples, self._loss.cpu() / self._samples
