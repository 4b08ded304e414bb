"""Many models of one shape as one set of tensors, trained together. The hot loop of the project.

Members have a leading axis S. Each has its own parameters, neurons, learning rate, samples and normalisation, and
nothing couples them, so ten clients of one run, or all clients of fifty runs, are the same call. The backward pass is
derived by hand: with the learning rate folded into the error at the output, every gradient step is one in-place matrix
product `W += activations.T @ delta`, and no graph is built.
"""

from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor

from fedsac.compute.cuda import precision
from fedsac.compute.samples import Batches, Samples
from fedsac.core.units import Layout

WORK_BYTES = 1 << 30  # of models in work at a time, on a CPU
CACHE_BYTES = 12 << 20  # of models and activations in work at a time, which a CPU's cache holds
FEW = 10  # members at the least, where there are so many: fewer at a time were no faster


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
    from fedsac.compute.cuda import graphs, kernels

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
        from fedsac.compute.cuda import kernels

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
