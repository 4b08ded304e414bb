"""SGD steps of a stack of any module by vmap, on a GPU as a CUDA graph: one step, launched again for each batch."""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import replace

import torch
from torch import Tensor

from fedsac.compute.cuda import precision
from fedsac.compute.modules.inputs import augmented
from fedsac.compute.modules.stacked import Stack, bytes_of_member, members_at_once
from fedsac.compute.samples import Batches, Samples
from fedsac.core.graphs import memory_key
from fedsac.core.module_layout import ModuleLayout
from fedsac.core.transfer import to_device

MAX_STEPS_KEPT = 4  # captured steps, each with the memory of its stack
KEPT_BYTES_SHARE = 0.3  # of a GPU's memory, at the most, that they keep together; the newest in any case

_kept: "OrderedDict[Hashable, StackSteps]" = OrderedDict()  # least recently used first


def train_stacked(
    layout: ModuleLayout, models: Tensor, neurons: Tensor | None, pool: Samples, batches: Batches, lr: Tensor
) -> tuple[Tensor, Tensor]:
    """`compute.training.train` for any module, many members at a time: those with batches of the same size together,
    in as many parts as fit in memory."""
    members = batches.rows.shape[1]
    trained, losses = models.new_empty(members, layout.parameters), models.new_empty(members)
    sizes = (batches.weight[0] > 0).sum(1).cpu() if batches.sizes is None else batches.sizes
    for size in sizes.unique().tolist():
        same = (sizes == size).nonzero().squeeze(1)
        for part in same.split(members_at_once(layout, size, models)):
            at = to_device(part, models.device)
            own = batches.ordered(part)
            changes = None if own.augment is None else own.augment[:, :, :size]
            own = replace(own, rows=own.rows[:, :, :size], weight=own.weight[:, :, :size], augment=changes)
            normalised = [t if len(t) == 1 else t[at] for t in (pool.scale, pool.shift)]
            masks = None if neurons is None else neurons[at]
            start = models if len(models) == 1 else models[at]
            steps = _steps(layout, start, len(at), size, masks is not None, pool)
            trained[at], losses[at] = steps.train(start, masks, normalised, own, lr[at])
    return trained, losses


def _steps(layout: ModuleLayout, like: Tensor, members: int, size: int, masked: bool, pool: Samples) -> "StackSteps":
    """The steps of a stack of this kind; on a GPU those that were captured before, where there are some."""
    if not like.is_cuda:
        return StackSteps(layout, like, members, size, masked, pool)
    stream = torch.cuda.current_stream(like.device)
    shape = layout, members, size, masked, like.dtype, len(pool.scale)
    key = (*shape, memory_key(pool.x), memory_key(pool.y), stream.device, stream.cuda_stream, precision.current())
    steps = _kept.pop(key, None) or StackSteps(layout, like, members, size, masked, pool)
    _kept[key] = steps
    budget = KEPT_BYTES_SHARE * torch.cuda.get_device_properties(like.device).total_memory
    while len(_kept) > MAX_STEPS_KEPT or (len(_kept) > 1 and sum(one.bytes for one in _kept.values()) > budget):
        _kept.popitem(last=False)
    return steps


class StackSteps:
    """Memory for a stack of S members, and the step that changes it in place."""

    def __init__(
        self, layout: ModuleLayout, like: Tensor, members: int, size: int, masked: bool, pool: Samples
    ) -> None:
        self._layout, self._stack, self._pool = layout, Stack(layout, like), pool
        self.bytes = members * bytes_of_member(layout, size, like)
        vectors = like.new_zeros(members, layout.parameters)
        self._learned, self._fixed = self._stack.tensors(vectors, None)
        moving = self._learned if layout.recipe.momentum else {}
        self._momenta = {name: torch.zeros_like(t) for name, t in moving.items()}
        self._masks = {name: torch.ones_like(t) for name, t in self._learned.items()} if masked else None
        self._rows = torch.zeros(members, size, dtype=torch.int64, device=like.device)
        self._active = torch.zeros(members, dtype=torch.bool, device=like.device)
        self._changes = torch.zeros(members, size, 3, dtype=torch.int64, device=like.device)
        self._weight = None if layout.recipe.class_weights == "none" else like.new_zeros(members, size)
        self._lr, self._losses = like.new_zeros(members), like.new_zeros(members)
        scales = len(pool.scale) if len(pool.scale) == 1 else members
        self._normalisation = [like.new_zeros(scales, pool.x.shape[1]) for _ in range(2)]
        self._graph: torch.cuda.CUDAGraph | None = None

    @torch.no_grad()
    def train(
        self, models: Tensor, neurons: Tensor | None, normalisation: list[Tensor], batches: Batches, lr: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Train from models [S or 1, parameters]: trained models [S, parameters] and mean losses [S]."""
        members = len(lr)
        received = models.expand(members, -1)
        held = None if neurons is None else self._layout.held(neurons)
        learned, fixed = self._stack.tensors(received, held)
        for own, new in ((self._learned, learned), (self._fixed, fixed)):
            for name, tensor in own.items():
                tensor.copy_(new[name])
        if held is not None and self._masks is not None:
            for name, mask in self._layout.views(held).items():
                if name in self._masks:
                    self._masks[name].copy_(mask)
        for tensor in (*self._momenta.values(), self._losses):
            tensor.zero_()
        self._lr.copy_(lr)
        for own_scale, given in zip(self._normalisation, normalisation, strict=True):
            own_scale.copy_(given)
        devices = [lr.device] if lr.is_cuda else []
        with self._stack.working.training(), torch.random.fork_rng(devices, enabled=batches.seeds is not None):
            if batches.seeds is not None:
                torch.manual_seed(int(batches.seeds[0]))
            for i in range(len(batches.rows)):
                self._rows.copy_(batches.rows[i])
                self._active.copy_(batches.weight[i, :, 0] > 0)
                if self._weight is not None:
                    self._weight.copy_(batches.weight[i])
                if batches.augment is not None:
                    self._changes.copy_(batches.augment[i])
                self._take_step(first=i == 0)
        trained = self._stack.vectors(self._learned, self._fixed)
        if held is not None:
            trained = torch.where(held, trained, received)
        return trained, self._losses / (batches.weight[:, :, 0] > 0).sum(0).clamp_min(1)

    def _take_step(self, *, first: bool) -> None:
        if not self._rows.is_cuda:
            self._step()
        elif self._graph is not None:
            self._graph.replay()
        elif first:
            self._step()  # in its own time: what libraries allocate and choose must be done before a capture
        else:
            self._graph = torch.cuda.CUDAGraph()
            # A stream of its own: cuBLAS has a workspace for each, which graphs that run at a time must not share.
            with torch.cuda.graph(
                self._graph, stream=torch.cuda.Stream(self._rows.device), capture_error_mode="thread_local"
            ):
                self._step()
            self._graph.replay()

    def _step(self) -> None:
        """One step of every member that is active, as torch's own SGD does it, in the entries that are held."""
        layout, recipe = self._layout, self._layout.recipe
        x, y = self._inputs(), self._pool.y[self._rows]
        gradients, losses, after = self._stack.gradients(self._learned, self._fixed, x, y, self._weight)
        if self._masks is not None:
            gradients = {name: g * self._masks[name] for name, g in gradients.items()}
        if recipe.clip is not None:
            length = torch.stack([g.flatten(1).square().sum(1) for g in gradients.values()]).sum(0).sqrt()
            factor = recipe.clip / length.clamp_min(recipe.clip)
            gradients = {name: _each(factor, g) * g for name, g in gradients.items()}
        for name, tensor in self._learned.items():
            gradient, active = gradients[name], _each(self._active, tensor)
            if recipe.weight_decay:
                gradient = gradient + recipe.weight_decay * tensor
            if recipe.momentum:
                gradient = recipe.momentum * self._momenta[name] + gradient
                self._momenta[name].copy_(gradient)
            tensor.copy_(torch.where(active, tensor - _each(self._lr, tensor) * gradient, tensor))
        if layout.recipe.batch_norm == "running":
            for name, tensor in self._fixed.items():
                tensor.copy_(torch.where(_each(self._active, tensor), after[name], tensor))
        self._losses += torch.where(self._active, losses, 0)

    def _inputs(self) -> Tensor:
        """The members' inputs [S, n, ...]."""
        stored, taken = self._pool.x[self._rows], self._layout.input
        if taken.tokens:
            return taken.inputs(stored.long())
        scale, shift = (t.unsqueeze(1) for t in self._normalisation)
        images = taken.inputs(torch.addcmul(shift, stored.to(self._lr.dtype), scale))
        if not self._layout.recipe.augment:
            return images
        changed = augmented(images.flatten(0, 1), self._changes.flatten(0, 1))
        return changed.view(images.shape)


def _each(values: Tensor, like: Tensor) -> Tensor:
    """Values [S] of the members, to be broadcast over tensors [S, ...]."""
    return values.view(-1, *(1 for _ in range(like.ndim - 1)))
