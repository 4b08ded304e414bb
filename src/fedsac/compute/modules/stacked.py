"""A stack of any module as one computation: `torch.func.vmap` over members, whose tensors have a leading axis S. What a
GPU is fast with; a CPU takes one member after the other (`training`)."""

from functools import lru_cache

import torch
from torch import Tensor
from torch.func import functional_call, grad_and_value, vmap
from torch.nn import functional

from fedsac.compute.cuda import precision
from fedsac.compute.modules.working import Working, activations
from fedsac.core.module_layout import ModuleLayout

Tensors = dict[str, Tensor]
GPU_BYTES_SHARE = 0.2  # of a GPU's memory, for the members that are computed at a time


class Stack:
    """The module of a layout, called for many members at once with tensors [S, ...] by name."""

    def __init__(self, layout: ModuleLayout, like: Tensor) -> None:
        self.layout, self.working = layout, Working(layout, like)
        self.module = self.working.module
        self._norm_buffers = {
            f"{name}.{buffer}".lstrip(".")
            for name, layer in self.module.named_modules()
            if layer in self.working.norms
            for buffer in ("running_mean", "running_var", "num_batches_tracked")
        }

    def tensors(self, params: Tensor, held: Tensor | None) -> tuple[Tensors, Tensors]:
        """What is learned and what is not, [S, ...] each, from vectors [S, parameters]; 0 where they are not held."""
        views = self.layout.views(params if held is None else torch.where(held, params, 0))
        learned: Tensors = {}
        fixed: Tensors = {}
        for name, wanted in zip(self.layout.names, self.layout.trainable, strict=True):
            (learned if wanted else fixed)[name] = views[name].clone(memory_format=torch.contiguous_format)
        for name, value in self.layout.outside.items():
            fixed[name] = value.to(params.device).expand(len(params), *value.shape).clone()
        return learned, fixed

    def vectors(self, learned: Tensors, fixed: Tensors) -> Tensor:
        """The vectors [S, parameters] of tensors [S, ...]."""
        both = learned | fixed
        return torch.cat([both[name].flatten(1) for name in self.layout.names], 1)

    def called(self, learned: Tensors, fixed: Tensors, x: Tensor) -> tuple[Tensor, Tensors]:
        """One member's logits [n, classes], and what is not learned afterwards: batch norm changes its statistics."""
        # Copies, since inside of vmap nothing that comes from outside may be changed.
        fixed = {name: tensor.clone() if name in self._norm_buffers else tensor for name, tensor in fixed.items()}
        if precision.current() == "bf16" and x.is_cuda:
            # Cast by hand: vmap and autocast do not go together.
            kept = {name: fixed[name] for name in fixed if name in self._norm_buffers}
            tensors = {name: _lower(tensor) for name, tensor in (learned | fixed).items()} | kept
            x = _lower(x)
        else:
            tensors = learned | fixed
        without = self._norm_buffers if self.working.without_statistics else set()
        given = {name: tensor for name, tensor in tensors.items() if name not in without}
        logits: Tensor = functional_call(self.module, given, (x,))
        return logits.float() if logits.dtype == torch.bfloat16 else logits, fixed

    def gradients(
        self, learned: Tensors, fixed: Tensors, x: Tensor, y: Tensor, weight: Tensor | None = None
    ) -> tuple[Tensors, Tensor, Tensors]:
        """Gradients and losses [S] of all members on inputs [S, n, ...] and labels [S, n], of which each weighs
        `weight` [S, n] (None: all alike), and what is not learned."""

        def loss(learned: Tensors, fixed: Tensors, x: Tensor, y: Tensor, *weight: Tensor) -> tuple[Tensor, Tensors]:
            logits, after = self.called(learned, fixed, x)
            if not weight:
                return functional.cross_entropy(logits, y), after
            return (functional.cross_entropy(logits, y, reduction="none") * weight[0]).sum(), after

        given = (learned, fixed, x, y) if weight is None else (learned, fixed, x, y, weight)
        found, (losses, after) = vmap(grad_and_value(loss, has_aux=True), randomness="different")(*given)
        return found, losses, after

    @torch.no_grad()
    def measure_statistics(self, learned: Tensors, fixed: Tensors, inputs: Tensor) -> Tensors:
        """What is not learned, with batch norm's statistics measured on these inputs, which all members share."""
        with self.working.measuring(inputs) as parts:
            for part in parts:
                _, fixed = vmap(self.called, in_dims=(0, 0, None))(learned, fixed, part)
        return fixed

    @torch.no_grad()
    def logits(self, learned: Tensors, fixed: Tensors, x: Tensor) -> Tensor:
        """Logits [S, n, classes] on inputs [n, ...] that all members share."""
        logits: Tensor = vmap(self.called, in_dims=(0, 0, None))(learned, fixed, x)[0]
        return logits


def _lower(tensor: Tensor) -> Tensor:
    return tensor.bfloat16() if tensor.is_floating_point() else tensor


@lru_cache(maxsize=16)
def _activations(layout: ModuleLayout) -> int:
    return activations(layout)


def members_at_once(layout: ModuleLayout, samples: int, like: Tensor) -> int:
    """How many members a GPU computes at a time, each on so many samples: as many as fit in a share of its memory."""
    memory = torch.cuda.get_device_properties(like.device).total_memory if like.is_cuda else 1 << 32
    return max(1, int(GPU_BYTES_SHARE * memory) // bytes_of_member(layout, samples, like))


def bytes_of_member(layout: ModuleLayout, samples: int, like: Tensor) -> int:
    """About how many bytes a member takes while it is computed: its vectors, and activations with their gradients."""
    return like.element_size() * (6 * layout.parameters + 4 * samples * _activations(layout))
