"""Training of a stack of any torch module: S models of one architecture. On a CPU one member after the other by
autograd, each the submodel that it is: the fastest of the honest ways there (docs/any-network.md)."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional

from fedsac.compute.modules.inputs import augmented, inputs
from fedsac.compute.modules.private import private_gradients
from fedsac.compute.modules.stacked_training import train_stacked
from fedsac.compute.modules.working import Working
from fedsac.compute.samples import Batches, Samples
from fedsac.core.module_layout import ModuleLayout
from fedsac.errors import FedsacError


def train_modules(
    layout: ModuleLayout, models: Tensor, neurons: Tensor | None, pool: Samples, batches: Batches, lr: Tensor
) -> tuple[Tensor, Tensor]:
    """`compute.training.train` for any module: trained models [S, parameters] and mean losses [S]."""
    if models.is_cuda and layout.recipe.noise is None:
        return train_stacked(layout, models, neurons, pool, batches, lr)
    members = batches.rows.shape[1]
    trained, losses = models.new_empty(members, layout.parameters), models.new_empty(members)
    whole = Working(layout, models) if neurons is None else None
    for i in range(members):
        received = models[i if len(models) > 1 else 0]
        working = whole or Working(layout, models, None if neurons is None else neurons[i])
        working.load(received)
        losses[i] = _train(working, _Member(pool, batches, i, layout.recipe.noise is not None), lr[i])
        trained[i] = working.merged(received)
    return trained, losses


@dataclass(frozen=True)
class _Member:
    """One member's samples, step by step, without the padding of its batches."""

    pool: Samples
    batches: Batches
    number: int
    private: bool

    def steps(self) -> int:
        if self.private:  # batches may be empty
            at_step = self.batches.members_at_step
            return len(self.batches.rows) if at_step is None else sum(count > self.number for count in at_step)
        return int((self.batches.weight[:, self.number, 0] > 0).sum())

    @cached_property
    def size(self) -> int:
        """Samples in each of its batches; with differential privacy, expected ones."""
        if self.private:
            assert self.batches.sizes is not None
            return int(self.batches.sizes[self.number])
        return int((self.batches.weight[0, self.number] > 0).sum())

    def weights(self, step: int, samples: int) -> Tensor:
        """By how much each sample of a batch counts, where classes are weighted."""
        return self.batches.weight[step, self.number, :samples]

    def batch(self, step: int, layout: ModuleLayout, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        rows = self.batches.rows[step, self.number]
        rows = rows[self.batches.weight[step, self.number] > 0] if self.private else rows[: self.size]
        x = inputs(layout, self.pool, rows, self.number, dtype)
        if self.batches.augment is not None:
            x = augmented(x, self.batches.augment[step, self.number][: len(rows)])
        return x, self.pool.y[rows]


def _train(working: Working, member: _Member, lr: Tensor) -> Tensor:
    """Train one member; returns its mean loss."""
    layout, recipe = working.layout, working.layout.recipe
    learned = [t for t, wanted in zip(working.tensors, layout.trainable, strict=True) if wanted]
    names = [name for name, wanted in zip(layout.names, layout.trainable, strict=True) if wanted]
    momenta = [torch.zeros_like(t) for t in learned] if recipe.momentum else None
    total, steps, rate = lr.new_zeros(()), member.steps(), float(lr)
    weighted = layout.recipe.class_weights != "none"
    with working.training() as module, _drawn(member):
        for step in range(steps):
            x, y = member.batch(step, layout, lr.dtype)
            if member.private:
                loss, given = private_gradients(
                    module, dict(zip(names, learned, strict=True)), x, y, member.size, recipe
                )
            else:
                weight = member.weights(step, len(y)) if weighted else None
                loss, given = _gradients(layout, module, learned, x, y, weight)
            _take_step(layout, learned, given, momenta, rate)
            total += loss
    return total / max(1, steps)


def _gradients(
    layout: ModuleLayout, module: torch.nn.Module, learned: list[Tensor], x: Tensor, y: Tensor, weight: Tensor | None
) -> tuple[Tensor, list[Tensor]]:
    """The mean loss on a batch, by the samples' weights where there are some, and its gradient for each tensor."""
    with torch.enable_grad():
        logits = _output(layout, module, x)
        if weight is None:
            loss = functional.cross_entropy(logits, y)
        else:
            loss = (functional.cross_entropy(logits, y, reduction="none") * weight).sum()
        gradients = torch.autograd.grad(loss, learned, allow_unused=True)
    return loss.detach(), [torch.zeros_like(t) if g is None else g for t, g in zip(learned, gradients, strict=True)]


def _output(layout: ModuleLayout, module: torch.nn.Module, x: Tensor) -> Tensor:
    try:
        logits: Tensor = module(x)
    except ValueError as error:  # as of batch norm, of a client with a single sample
        raise FedsacError(f"network {layout.named} cannot train on a batch of {len(x)}: {error}") from error
    return logits


@torch.no_grad()
def _take_step(
    layout: ModuleLayout,
    learned: list[Tensor],
    gradients: list[Tensor],
    momenta: list[Tensor] | None,
    lr: float,
) -> None:
    """A step of SGD, as torch's own does it."""
    recipe = layout.recipe
    if recipe.clip is not None and recipe.noise is None:
        length = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
        torch._foreach_mul_(gradients, (recipe.clip / length.clamp_min(recipe.clip)).item())
    if recipe.weight_decay:
        torch._foreach_add_(gradients, learned, alpha=recipe.weight_decay)
    if momenta is not None:
        torch._foreach_mul_(momenta, recipe.momentum)
        torch._foreach_add_(momenta, gradients)
        gradients = momenta
    torch._foreach_add_(learned, gradients, alpha=-lr)


class _drawn:
    """Random numbers that a module draws, as dropout does, from the member's own seed; torch's generator is left as it
    was."""

    def __init__(self, member: _Member) -> None:
        self._seeds, self._number = member.batches.seeds, member.number

    def __enter__(self) -> None:
        if self._seeds is not None:
            self._before = torch.get_rng_state()
            torch.manual_seed(int(self._seeds[self._number]))

    def __exit__(self, *error: object) -> None:
        if self._seeds is not None:
            torch.set_rng_state(self._before)
