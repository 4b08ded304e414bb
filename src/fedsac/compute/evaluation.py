"""Evaluation of a stack: scores (accuracy or another metric) and losses of all its members at once."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from fedsac.compute.modules import scoring
from fedsac.compute.nested import NestedSubmodels, ascending
from fedsac.compute.samples import Samples
from fedsac.compute.tally import make_tally
from fedsac.compute.training import Layers
from fedsac.core.metrics import Metric, accuracy
from fedsac.core.module_layout import AnyLayout, ModuleLayout
from fedsac.core.transfer import to_device
from fedsac.core.units import Layout

LOSS_BATCH_SAMPLES = 64  # per batch, in the losses that clients report: as in FedAVE
MAX_CHUNK_SAMPLES = 1 << 22  # evaluated at a time: the grid of a CUDA kernel is limited
CPU_CHUNK_SAMPLES = 1024  # evaluated at a time on a CPU
CPU_ACTIVATION_BYTES = 8 << 20  # of the members evaluated at a time on a CPU: activations should stay in its cache
CPU_INPUT_BYTES = 64 << 20  # of the samples evaluated at a time on a CPU, at most
GPU_ACTIVATION_BYTES = 1 << 30  # of all members, for the samples evaluated at a time on a GPU


@torch.no_grad()
def fold_normalisation(layout: Layout, params: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Models [S, parameters] that take inputs as stored: the normalisation `x * scale + shift` becomes part of their
    first layer."""
    folded = params.clone()
    weight, bias = layout.views(folded)[0]
    bias += torch.bmm(shift.expand(len(params), -1).unsqueeze(1), weight).squeeze(1)
    weight *= scale.unsqueeze(2)
    return folded


@torch.no_grad()
def batch_losses(layout: AnyLayout, models: Tensor, samples: Samples, rows: list[np.ndarray]) -> list[Tensor]:
    """Mean cross-entropy of each member on each batch of `LOSS_BATCH_SAMPLES` of its own rows, in their order; the last
    batch may be smaller. One tensor [batches] per member, float64 on the CPU."""
    batch_means = []
    for i, own in enumerate(rows):
        losses = _losses(layout, models[i if len(models) > 1 else 0], samples, i, own).split(LOSS_BATCH_SAMPLES)
        batch_means.append(torch.stack([batch.mean(dtype=torch.float64) for batch in losses]).cpu())
    return batch_means


@torch.no_grad()
def mean_losses(layout: AnyLayout, models: Tensor, samples: Samples, rows: list[np.ndarray]) -> Tensor:
    """Mean cross-entropy [k], float64, of models [k or 1, parameters], the i-th on the samples `rows[i]`."""
    if len(models) == 1 and len(samples.scale) == 1 and rows:
        # A single model: one pass over the samples of all lists.
        parts = _losses(layout, models[0], samples, 0, np.concatenate(rows)).split([len(own) for own in rows])
    else:
        parts = tuple(
            _losses(layout, models[i if len(models) > 1 else 0], samples, i, own) for i, own in enumerate(rows)
        )
    means = [part.mean(dtype=torch.float64) for part in parts]
    return torch.stack(means) if means else models.new_zeros(0, dtype=torch.float64)


@torch.no_grad()
def sample_losses(layout: AnyLayout, models: Tensor, samples: Samples) -> Tensor:
    """Cross-entropy [k, n], float64, of models [k, parameters] on each of n samples."""
    rows = np.arange(len(samples.y))
    return torch.stack([_losses(layout, model, samples, 0, rows).double() for model in models])


def _losses(layout: AnyLayout, model: Tensor, samples: Samples, member: int, rows: np.ndarray) -> Tensor:
    """Cross-entropy [n] of one model [parameters] on each of n rows of the samples, normalised as `member` does."""
    if isinstance(layout, ModuleLayout):
        return scoring.losses(layout, model, samples, member, rows)
    k = slice(member, member + 1) if len(samples.scale) > 1 else slice(0, 1)
    scale, shift = samples.scale[k], samples.shift[k]
    layers = layout.views(model)
    first = _first_layer_kernel(samples, scale, shift, *(t.unsqueeze(0) for t in layers[0]))
    losses = []
    for part in to_device(torch.from_numpy(rows), model.device).split(_chunk_samples(layout, 1, model)):
        if first is not None:
            a = first(part)[0]
        else:
            w, b = layers[0]
            a = torch.addmm(b, torch.addcmul(shift, samples.x[part].to(model.dtype), scale), w).relu_()
        for w, b in layers[1:-1]:
            a = torch.addmm(b, a, w).relu_()
        w, b = layers[-1]
        logits = torch.addmm(b, a, w)
        losses.append(logits.logsumexp(1) - logits.gather(1, samples.y[part].unsqueeze(1)).squeeze(1))
    return torch.cat(losses)


def _first_layer_kernel(
    samples: Samples, scale: Tensor, shift: Tensor, weight: Tensor, bias: Tensor
) -> Callable[[Tensor], Tensor] | None:
    """The first layer of a stack as a CUDA kernel that reads samples as they are stored: a function from rows [n] of
    the samples to activations [S, n, width], for weights [S, features, width]. None on a CPU and in float64."""
    if not weight.is_cuda or weight.dtype != torch.float32:
        return None
    from fedsac.compute.cuda.kernels.training import Layer

    layer = Layer(samples.x, weight, bias, normalisation=(scale, shift))
    return lambda rows: layer.output(rows.unsqueeze(0))


def _nested(layout: Layout, layers: Layers, neurons: Tensor, samples: int) -> NestedSubmodels | None:
    """The submodels with these neurons as nested ones, where they are, and where that is faster on so many samples."""
    after = [(weight[0], bias[0]) for weight, bias in layers[1:]]
    if len(layers[0][0]) > 1 or not NestedSubmodels.supports(after, len(neurons), samples):
        return None
    order = ascending(neurons)
    return None if order is None else NestedSubmodels(after, layout.by_layer(neurons), order)


def _chunk_samples(layout: Layout, members: int, params: Tensor) -> int:
    """How many samples are evaluated at a time."""
    if not params.is_cuda:
        return max(1, min(CPU_CHUNK_SAMPLES, CPU_INPUT_BYTES // (params.element_size() * layout.sizes[0])))
    largest = max(layout.sizes[0], members * max(layout.sizes[1:]))
    return min(max(1, GPU_ACTIVATION_BYTES // (params.element_size() * largest)), MAX_CHUNK_SAMPLES)


def _linear(a: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """a @ weight + bias of every member, [S, n, out], from inputs [S, n, in]; what all members share is [1, ...]."""
    members = max(len(a), len(weight))
    return torch.bmm(a.expand(members, -1, -1), weight.expand(members, -1, -1)).add_(bias.unsqueeze(1))


def evaluate(
    layout: AnyLayout, params: Tensor, neurons: Tensor | None, samples: Samples, *, metric: Metric = accuracy
) -> tuple[Tensor, Tensor]:
    """Score and mean cross-entropy of every member on the same samples, float64 [S] each on the CPU: see
    `PendingScores` for the arguments."""
    return PendingScores(layout, params, neurons, samples, metric=metric).wait()


def logits(layout: AnyLayout, params: Tensor, neurons: Tensor | None, samples: Samples) -> Tensor:
    """The logits of every member on the same samples, [S, n, classes]. The arguments are those of `evaluate`."""
    return _Logits(layout, params, neurons, samples).logits


class PendingScores:
    """Scores (accuracy, or another `metric`) and mean cross-entropies of all members of a stack on the same samples.

    The constructor queues the work on a GPU, and `wait` waits for its results. AUC and users' own metrics need the
    probabilities of all samples: where these are too many to keep for all members (see `tally.ProbabilityTally`), the
    constructor evaluates a few members after the other and waits for the GPU in between.

    `params` is [S, parameters], or [1, parameters] where all members are submodels of one model: the first layer, by
    far the largest, is then computed once for all of them. `neurons` [S, neurons] (boolean) are the ones that each
    member holds; None: all of them.
    """

    @torch.no_grad()
    def __init__(
        self, layout: AnyLayout, params: Tensor, neurons: Tensor | None, samples: Samples, *, metric: Metric = accuracy
    ) -> None:
        members = len(params) if neurons is None else max(len(params), len(neurons))
        classes = layout.classes if isinstance(layout, ModuleLayout) else layout.sizes[-1]
        self._tally = make_tally(metric, members, classes, samples.y)
        self._loss = torch.zeros(members, dtype=torch.float64, device=params.device)
        self._samples = len(samples.y)
        if isinstance(layout, ModuleLayout):
            self._evaluate_modules(layout, members, params, neurons, samples)
            return
        at_once = self._tally.members_at_once
        if members <= at_once:
            self._evaluate(0, layout, params, neurons, samples)
        else:
            for start in range(0, members, at_once):
                self._evaluate(start, layout, *_of_members(slice(start, start + at_once), params, neurons, samples))

    def _evaluate_modules(
        self, layout: ModuleLayout, members: int, params: Tensor, neurons: Tensor | None, samples: Samples
    ) -> None:
        scorer = scoring.Scorer(layout, params, neurons, samples)
        if params.is_cuda and len(samples.scale) == 1 and members <= self._tally.members_at_once:
            for part, rows, logits, labels in scorer.stacked(members):
                self._add(part, rows, logits, labels)
            return
        for i in range(members):
            for rows, logits, labels in scorer.logits(i):
                self._add(slice(i, i + 1), rows, logits.unsqueeze(0), labels.unsqueeze(0))

    def _evaluate(self, before: int, layout: Layout, params: Tensor, neurons: Tensor | None, samples: Samples) -> None:
        """Evaluate some members on all samples. `before` is how many members of the stack stand before them."""
        members = len(params) if neurons is None else max(len(params), len(neurons))
        first = _first_layer_kernel(samples, samples.scale, samples.shift, *layout.views(params)[0])
        layers = layout.views(params if first else fold_normalisation(layout, params, samples.scale, samples.shift))
        masks = None if neurons is None else [m.unsqueeze(1).to(params.dtype) for m in layout.by_layer(neurons)]
        chunk, every = _chunk_samples(layout, members, params), torch.arange(self._samples, device=params.device)
        widest_bytes = params.element_size() * max(layout.sizes[1:])
        at_once = max(1, members)
        if not params.is_cuda:
            at_once = max(2, CPU_ACTIVATION_BYTES // (max(1, min(chunk, self._samples)) * widest_bytes))
        # The first layer is computed for all members at once where there is a kernel for it, or where they share it.
        first_done = first is not None or (len(params) == 1 and len(layers) > 1)
        nested = None if neurons is None else _nested(layout, layers, neurons, min(chunk, self._samples))
        parts = zip(samples.x.split(chunk), samples.y.split(chunk), every.split(chunk), strict=True)
        for i, (x, y, rows) in enumerate(parts):
            at = slice(i * chunk, i * chunk + len(y))
            a = x.to(params.dtype).unsqueeze(0) if first is None else first(rows)
            if first_done and first is None:
                a = _linear(a, *layers[0]).relu_()
            if nested is not None:
                self._add(slice(before, before + members), at, nested.logits(a[0]), y.expand(members, -1))
                continue
            for start in range(0, members, at_once):
                part = slice(start, start + at_once)
                own = [(w, b) if len(w) == 1 else (w[part], b[part]) for w, b in layers]
                own_masks = None if masks is None else [mask if len(mask) == 1 else mask[part] for mask in masks]
                in_stack = slice(before + start, before + min(start + at_once, members))
                self._evaluate_chunk(in_stack, at, a if len(a) == 1 else a[part], own, own_masks, y, first_done)

    def _evaluate_chunk(
        self,
        members: slice,
        rows: slice,
        a: Tensor,
        layers: Layers,
        masks: list[Tensor] | None,
        y: Tensor,
        first_done: bool,
    ) -> None:
        """Evaluate some members on some samples, from inputs `a`, or from the first layer's activations where that is
        `first_done`."""
        for i, layer in enumerate(layers[:-1]):
            if i or not first_done:
                a = _linear(a, *layer).relu_()
            a = a if masks is None else a * masks[i]
        logits = _linear(a, *layers[-1])
        self._add(members, rows, logits, y.expand(len(logits), -1))

    def _add(self, members: slice, rows: slice, logits: Tensor, labels: Tensor) -> None:
        """Add the logits [members, rows, classes] of some members on some samples."""
        self._tally.add(members, rows, logits, labels)
        label_logits = logits.gather(2, labels.unsqueeze(2)).squeeze(2)
        self._loss[members] += (logits.logsumexp(2) - label_logits).sum(1, dtype=torch.float64)

    def wait(self) -> tuple[Tensor, Tensor]:
        """Scores and mean cross-entropies, float64 [S] each on the CPU."""
        return self._tally.scores(), self._loss.cpu() / self._samples


class _Logits(PendingScores):
    """Keeps the logits, of which scores would be made."""

    def __init__(self, layout: AnyLayout, params: Tensor, neurons: Tensor | None, samples: Samples) -> None:
        members = len(params) if neurons is None else max(len(params), len(neurons))
        self.logits = params.new_zeros(members, len(samples.y), layout.classes)
        super().__init__(layout, params, neurons, samples)

    def _add(self, members: slice, rows: slice, logits: Tensor, labels: Tensor) -> None:
        self.logits[members, rows] = logits


def _of_members(
    members: slice, params: Tensor, neurons: Tensor | None, samples: Samples
) -> tuple[Tensor, Tensor | None, Samples]:
    """The parameters, neuron masks and normalisation of some members; what all members share, [1, ...], stays whole."""

    def own(tensor: Tensor) -> Tensor:
        return tensor if len(tensor) == 1 else tensor[members]

    normalised = replace(samples, scale=own(samples.scale), shift=own(samples.shift))
    return own(params), None if neurons is None else own(neurons), normalised
