"""Gradients of differentially private training (DP-SGD, Abadi et al. 2016) for any module without batch norm."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedsac.recipe import Recipe


def private_gradients(
    module: nn.Module, learned: dict[str, Tensor], x: Tensor, y: Tensor, expected: int, recipe: Recipe
) -> tuple[Tensor, list[Tensor]]:
    """The mean loss of the samples `x`, `y` that were drawn, which may be none, and a gradient for each of the
    `learned` tensors: the sum of those of the samples, each of length `clip` at the most, and of noise of `noise` x
    `clip`, divided by the `expected` number of samples. The noise is from torch's generator, which the caller has
    seeded."""
    assert recipe.clip is not None and recipe.noise is not None
    total = [recipe.noise * recipe.clip * torch.randn_like(tensor) for tensor in learned.values()]
    loss = x.new_zeros((), dtype=total[0].dtype)
    if len(x):
        each, losses = _of_each(module, learned, x, y)
        lengths = torch.stack([one.flatten(1).norm(dim=1) for one in each]).norm(dim=0)
        shorter = recipe.clip / lengths.clamp(min=recipe.clip)
        for sum_, one in zip(total, each, strict=True):
            sum_ += torch.tensordot(shorter, one, 1)
        loss = losses.mean()
    return loss, [sum_ / expected for sum_ in total]


def _of_each(module: nn.Module, learned: dict[str, Tensor], x: Tensor, y: Tensor) -> tuple[list[Tensor], Tensor]:
    """The gradients [samples, ...] of every sample by itself, and the losses [samples]."""

    def loss(tensors: dict[str, Tensor], one: Tensor, label: Tensor) -> Tensor:
        logits = torch.func.functional_call(module, tensors, (one.unsqueeze(0),))
        return functional.cross_entropy(logits, label.unsqueeze(0))

    of_one = torch.func.grad_and_value(loss)
    given = {name: tensor.detach() for name, tensor in learned.items()}
    each, losses = torch.func.vmap(of_one, in_dims=(None, 0, 0), randomness="different")(given, x, y)
    return list(each.values()), losses
