"""Training of a stack: S models of the same shape as one set of tensors. The hot loop of the project.

The models of a stack are its members, on the leading axis S. Each has its own parameters, neurons, learning rate,
samples and normalisation, and members do not influence each other: ten clients of one run and all clients of fifty runs
are the same call. The backward pass is written out by hand: with the learning rate multiplied into the error at the
output, every gradient step is one in-place matrix product `W += activations.T @ delta`, without autograd.
"""

from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor

from fedsac.compute.cuda import precision
from fedsac.compute.modules.training import train_modules
from fedsac.compute.samples import Batches, Samples
from fedsac.core.module_layout import AnyLayout, ModuleLayout
from fedsac.core.units import Layout

CPU_MODEL_BYTES = 1 << 30  # memory for models trained at the same time on a CPU
CPU_CACHE_BYTES = 12 << 20  # of their models and activations: what a CPU's cache has room for
MIN_MEMBERS_AT_ONCE = 10  # even where the cache has room for fewer: fewer at a time were no faster


@torch.no_grad()
def train(
    layout: AnyLayout, models: Tensor, neurons: Tensor | None, pool: Samples, batches: Batches, lr: Tensor
) -> tuple[Tensor, Tensor]:
    """Plain SGD (other networks than perceptrons: by their `recipe`) on the cross-entropy, from `models` [S or 1,
    parameters]: trained models [S, parameters] and the mean loss [S] over the steps of each.

    `neurons` [S, neurons] (boolean) are the ones a member holds: the others are neither computed nor trained (None: all
    are held). `lr` is [S]. A member whose loss overflows ends as NaN or infinity without affecting the others: see
    `finite`.
    """
    if isinstance(layout, ModuleLayout):
        return train_modules(layout, models, neurons, pool, batches, lr)
    members = batches.rows.shape[1]
    if models.is_cuda:  # in one stack: `clients.memory` has limited it to what fits
        return _train_on_gpu(layout, models, neurons, pool, batches, lr)
    trained, losses = models.new_empty(members, layout.parameters), models.new_empty(members)
    at_once = _members_at_once(layout, members, batches.rows.shape[2], models.element_size())
    for start in range(0, members, at_once):
        part = slice(start, min(start + at_once, members))
        own_batches = batches.of_members(part.start, part.stop)
        own_pool = pool if len(pool.scale) == 1 else replace(pool, scale=pool.scale[part], shift=pool.shift[part])
        masks = None if neurons is None else neurons[part]
        losses[part] = _train(
            layout, models if len(models) == 1 else models[part], masks, own_pool, own_batches, lr[part], trained[part]
        )
    return trained, losses


def _members_at_once(layout: Layout, members: int, batch: int, itemsize: int) -> int:
    """How many members a CPU trains at the same time: as many as its cache has room for, but at least
    `MIN_MEMBERS_AT_ONCE`; in parts of about equal size, each a multiple of the number of threads.

    A step reads every weight three times: without such parts, a thousand small models take a fifth longer.
    """
    threads = torch.get_num_threads()
    model = itemsize * layout.parameters
    most = max(MIN_MEMBERS_AT_ONCE, CPU_CACHE_BYTES // (model + itemsize * 2 * batch * sum(layout.sizes)))
    parts = max(1, -(-members // most))
    each = max(1, -(-members // parts))
    return min(-(-each // threads) * threads, max(1, CPU_MODEL_BYTES // (4 * model)))


def _train_on_gpu(
    layout: Layout, models: Tensor, neurons: Tensor | None, pool: Samples, batches: Batches, lr: Tensor
) -> tuple[Tensor, Tensor]:
    from fedsac.compute.cuda.kernels.training import KernelSteps
    from fedsac.core import graphs

    def work(*inputs: Tensor) -> tuple[Tensor, Tensor]:
        models, rows, weight, lr, scale, shift, *masks = inputs
        trained = models.new_empty(rows.shape[1], layout.parameters)
        own_pool, own_batches = replace(pool, scale=scale, shift=shift), replace(batches, rows=rows, weight=weight)
        return trained, _train(layout, models, masks[0] if masks else None, own_pool, own_batches, lr, trained)

    masks = () if neurons is None else (neurons,)
    inputs = (models, batches.rows, batches.weight, lr, pool.scale, pool.shift, *masks)
    small = batches.rows.shape[1] * layout.parameters <= graphs.MAX_STACK_PARAMETERS
    if not small or not KernelSteps.supports(models, batches.rows.shape[2]):
        return work(*inputs)
    stored = graphs.memory_key(pool.x), graphs.memory_key(pool.y)
    depends_on = layout, batches.members_at_step, precision.current(), *stored
    trained, losses = graphs.run_as_graph(work, inputs, depends_on)
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
    """Train all members of `batches` and write the models to `trained` [S, parameters]; returns mean losses [S]."""
    members = batches.rows.shape[1]
    layers = _working_copies(layout, models.expand(members, -1))
    masks = None if neurons is None else [m.unsqueeze(1).to(models.dtype) for m in layout.by_layer(neurons)]
    steps = _make_steps(pool, layers, masks, batches, lr)
    for i in range(len(batches.rows)):
        training = members if batches.members_at_step is None else batches.members_at_step[i]
        if training:
            steps.take_step(i, training)
    for (w, b), (trained_w, trained_b) in zip(layout.views(trained), layers, strict=True):
        w.copy_(trained_w[..., : w.shape[-1]])
        b.copy_(trained_b[..., : b.shape[-1]])
    return steps.losses() / (batches.weight[:, :, 0] > 0).sum(0)


class SGDSteps(Protocol):
    """The SGD steps of a stack, which update its weights and biases in place."""

    def take_step(self, i: int, k: int) -> None:
        """Take step i with the first k members; k never grows from one step to the next."""

    def losses(self) -> Tensor:
        """The members' losses [S], summed over the steps taken."""


Layers = list[tuple[Tensor, Tensor]]


def _make_steps(pool: Samples, layers: Layers, masks: list[Tensor] | None, batches: Batches, lr: Tensor) -> SGDSteps:
    weight, _ = layers[0]
    if weight.is_cuda:
        from fedsac.compute.cuda.kernels.training import KernelSteps

        if KernelSteps.supports(weight, batches.rows.shape[2]):
            drawn = batches.rows, batches.weight
            return KernelSteps(pool.x, pool.y, (pool.scale, pool.shift), layers, masks, drawn, lr)
    return TorchSteps(pool, layers, masks, batches, lr)


class TorchSteps:
    """SGD steps by torch's own operations, on any device and in any precision.

    Whatever does not depend on the weights is computed for all steps at once: with small networks the overhead of every
    operation matters.
    """

    def __init__(self, pool: Samples, layers: Layers, masks: list[Tensor] | None, batches: Batches, lr: Tensor) -> None:
        weight, _ = layers[0]
        steps, members, size = batches.rows.shape
        self._x, self._masks = pool.x, masks
        self._rows = batches.rows.flatten(1)
        self._labels = pool.y[batches.rows].unsqueeze(3)
        self._weight = batches.weight
        self._rates = (batches.weight * -lr.unsqueeze(1)).unsqueeze(3)
        self._label_log_p = weight.new_zeros(steps, members, size, 1)  # predicted log-probabilities of the labels
        self._minus_one = weight.new_full((), -1).expand(members, size, 1)
        # Allocated once: new memory for the tensors of every step would cost a tenth of the time.
        self._active = [weight.new_empty(members, size, b.shape[1]) for _, b in layers[:-1]]
        self._deltas = [weight.new_empty(members, size, b.shape[1]) for _, b in layers]
        self._raw_inputs = pool.x.new_empty(members * size, weight.shape[1])
        self._inputs = weight.new_empty(members, size, weight.shape[1])
        self._normalisation = pool.scale.unsqueeze(1), pool.shift.unsqueeze(1)
        self._layers = [(w, w.mT, b, b.unsqueeze(1)) for w, b in layers]
        self._members = members

    def take_step(self, i: int, k: int) -> None:
        if k < len(self._inputs):
            self._drop_finished(k)
        rows, y, rates, log_p = self._rows[i], self._labels[i], self._rates[i], self._label_log_p[i]
        if k < self._members:
            rows, y, rates, log_p = rows[: len(self._raw_inputs)], y[:k], rates[:k], log_p[:k]
        layers, masks, deltas = self._layers, self._masks, self._deltas
        scale, shift = self._normalisation
        torch.index_select(self._x, 0, rows, out=self._raw_inputs)
        self._inputs.copy_(self._raw_inputs.view_as(self._inputs)).mul_(scale).add_(shift)
        active = [self._inputs, *self._active]
        for j, (w, _, _, bias) in enumerate(layers[:-1]):
            torch.bmm(active[j], w, out=active[j + 1]).add_(bias).relu_()
            if masks is not None:
                active[j + 1].mul_(masks[j])
        w, _, _, bias = layers[-1]
        delta = deltas[-1]
        torch.log_softmax(torch.bmm(active[-1], w).add_(bias), 2, out=delta)
        torch.gather(delta, 2, y, out=log_p)

        # d loss / d logits = p - onehot(y), times sample weights and -lr, so that what is propagated back is the step.
        delta.exp_().scatter_add_(2, y, self._minus_one).mul_(rates)
        for j in range(len(layers) - 1, -1, -1):
            w, transposed, b, _ = layers[j]
            if j:
                error_below = torch.bmm(deltas[j], transposed, out=deltas[j - 1])
                # A masked or inactive neuron has a = 0: no error is propagated through it.
                torch.ops.aten.threshold_backward.grad_input(error_below, active[j], 0, grad_input=error_below)
            w.baddbmm_(active[j].mT, deltas[j])
            b.add_(deltas[j].sum(1))

    def losses(self) -> Tensor:
        return -(self._label_log_p.squeeze(3) * self._weight).sum((0, 2))

    def _drop_finished(self, k: int) -> None:
        """Cut all tensors to the first k members: the others have taken all their steps."""
        self._layers = [(w[:k], transposed[:k], b[:k], bias[:k]) for w, transposed, b, bias in self._layers]
        self._masks = None if self._masks is None else [m[:k] for m in self._masks]
        self._active, self._deltas = [a[:k] for a in self._active], [d[:k] for d in self._deltas]
        size = self._inputs.shape[1]
        self._inputs, self._raw_inputs, self._minus_one = (
            self._inputs[:k],
            self._raw_inputs[: k * size],
            self._minus_one[:k],
        )
        scale, shift = self._normalisation
        self._normalisation = (scale, shift) if len(scale) == 1 else (scale[:k], shift[:k])


def _working_copies(layout: Layout, params: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Copies of each layer's weights [S, in, out] and biases [S, out], each in memory of its own.

    Inside the flat vectors most members' weights do not begin on a cache line, and the update then takes 2.5 times as
    long; one copy there and back costs a hundredth of a round. The last layer is padded to a multiple of 16 classes,
    the added ones with probability 0: at 10 columns a product takes three times as long as at 16.
    """
    # `clone`, not `contiguous`, which for a single member returns a view: training would overwrite the caller's models.
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
    """Which members [S] have finite parameters and losses after training."""
    # A sum is finite only if all its terms are, and takes one pass over them.
    return params.sum(1).isfinite() & losses.isfinite()
