"""How good many models are: scores (accuracy or another metric) and losses of all members of a stack at once."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from fedsac.compute.samples import Samples
from fedsac.compute.tally import tally
from fedsac.compute.training import Layers
from fedsac.core.metrics import Metric, accuracy
from fedsac.core.transfer import to_device
from fedsac.core.units import Layout

LOSS_BATCH = 64  # of the losses that clients report: FedAVE's
MOST_ROWS = 1 << 22  # of samples at a time: a kernel's grid has an end
CHUNK = 1024  # samples evaluated at a time on a CPU, by as many members as make
CHUNK_BYTES = 8 << 20  # of activations: they should stay in its cache
INPUT_BYTES = 64 << 20  # of inputs at the most
GPU_BYTES = 1 << 30  # of activations at a time on a GPU, of all members


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
    for part in to_device(torch.from_numpy(rows), model.device).split(_chunk(layout, 1, model)):
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
    from fedsac.compute.cuda import kernels

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


def evaluate(
    layout: Layout, params: Tensor, neurons: Tensor | None, samples: Samples, *, metric: Metric = accuracy
) -> tuple[Tensor, Tensor]:
    """Score and mean cross-entropy, float64 [S] each on the CPU, of every member on the same samples: see `Scores` for
    the arguments."""
    return Scores(layout, params, neurons, samples, metric=metric).done()


class Scores:
    """Score (accuracy, or another `metric`) and mean cross-entropy of every member on the same samples, under way: a
    GPU is told what to do, and `done` waits for it. AUC and metrics of one's own need all of a member's probabilities:
    where there are too many to keep (see `tally.Gathered`), members are finished a few at a time, and a GPU is waited
    for between them.

    `params` is [S, parameters], or [1, parameters] where all members are submodels of one model: the first layer, by
    far the largest, is then computed once for all of them.
    """

    @torch.no_grad()
    def __init__(
        self, layout: Layout, params: Tensor, neurons: Tensor | None, samples: Samples, *, metric: Metric = accuracy
    ) -> None:
        members = len(params) if neurons is None else max(len(params), len(neurons))
        self._tally = tally(metric, members, layout.sizes[-1], samples.y)
        self._loss = torch.zeros(members, dtype=torch.float64, device=params.device)
        self._samples = len(samples.y)
        at_once = self._tally.members_at_once
        if members <= at_once:
            self._add(0, layout, params, neurons, samples)
        else:
            for start in range(0, members, at_once):
                self._add(start, layout, *_some(slice(start, start + at_once), params, neurons, samples))

    def _add(self, before: int, layout: Layout, params: Tensor, neurons: Tensor | None, samples: Samples) -> None:
        """All samples of some members, those after the first `before`."""
        members = len(params) if neurons is None else max(len(params), len(neurons))
        first = _kernel(samples, samples.scale, samples.shift, *layout.views(params)[0])
        layers = layout.views(params if first else fold(layout, params, samples.scale, samples.shift))
        masks = None if neurons is None else [m.unsqueeze(1).to(params.dtype) for m in layout.by_layer(neurons)]
        chunk, every = _chunk(layout, members, params), torch.arange(self._samples, device=params.device)
        widest = params.element_size() * max(layout.sizes[1:])
        at_once = max(1, members)
        if not params.is_cuda:
            at_once = max(2, CHUNK_BYTES // (max(1, min(chunk, self._samples)) * widest))
        # The first layer comes first where there is a kernel for it, or where members are submodels that share it.
        ahead = first is not None or (len(params) == 1 and len(layers) > 1)
        parts = zip(samples.x.split(chunk), samples.y.split(chunk), every.split(chunk), strict=True)
        for i, (x, y, rows) in enumerate(parts):
            at = slice(i * chunk, i * chunk + len(y))
            a = x.to(params.dtype).unsqueeze(0) if first is None else first(rows)
            if ahead and first is None:
                a = _layer(a, *layers[0]).relu_()
            for start in range(0, members, at_once):
                part = slice(start, start + at_once)
                own = [(w, b) if len(w) == 1 else (w[part], b[part]) for w, b in layers]
                held = None if masks is None else [mask if len(mask) == 1 else mask[part] for mask in masks]
                whose = slice(before + start, before + min(start + at_once, members))
                self._score(whose, at, a if len(a) == 1 else a[part], own, held, y, ahead)

    def _score(
        self, whose: slice, rows: slice, a: Tensor, layers: Layers, masks: list[Tensor] | None, y: Tensor, ahead: bool
    ) -> None:
        """Some members, some samples: from inputs, or from what is active in the first layer if that is `ahead`."""
        for i, layer in enumerate(layers[:-1]):
            if i or not ahead:
                a = _layer(a, *layer).relu_()
            a = a if masks is None else a * masks[i]
        logits = _layer(a, *layers[-1])
        labels = y.expand(len(logits), -1)
        self._tally.add(whose, rows, logits, labels)
        picked = logits.gather(2, labels.unsqueeze(2)).squeeze(2)
        self._loss[whose] += (logits.logsumexp(2) - picked).sum(1, dtype=torch.float64)

    def done(self) -> tuple[Tensor, Tensor]:
        """Float64 [S] each, on the CPU."""
        return self._tally.scores(), self._loss.cpu() / self._samples


def _some(
    members: slice, params: Tensor, neurons: Tensor | None, samples: Samples
) -> tuple[Tensor, Tensor | None, Samples]:
    """What belongs to some of the members; what all share has a first axis of 1 and stays."""

    def own(tensor: Tensor) -> Tensor:
        return tensor if len(tensor) == 1 else tensor[members]

    normalised = replace(samples, scale=own(samples.scale), shift=own(samples.shift))
    return own(params), None if neurons is None else own(neurons), normalised
