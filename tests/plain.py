"""The plain way to do what the library does fast: torch modules, autograd, one model at a time."""

import copy
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn


def random_module(sizes: tuple[int, ...], seed: int = 0, dtype: torch.dtype = torch.float64) -> nn.Sequential:
    """A network with weights large enough that its neurons matter."""
    generator = torch.Generator().manual_seed(seed)
    parts: list[nn.Module] = []
    for fan_in, fan_out in pairwise(sizes):
        layer = nn.Linear(fan_in, fan_out, dtype=dtype)
        with torch.no_grad():
            layer.weight.copy_(torch.randn(fan_out, fan_in, generator=generator, dtype=dtype) * (2 / fan_in) ** 0.5)
            layer.bias.copy_(torch.randn(fan_out, generator=generator, dtype=dtype) * 0.1)
        parts += [layer, nn.ReLU()]
    return nn.Sequential(*parts[:-1])


def random_data(n: int, features: int, classes: int, seed: int = 0, dtype: torch.dtype = torch.float64):
    generator = torch.Generator().manual_seed(1000 + seed)
    return torch.randn(n, features, generator=generator, dtype=dtype), torch.randint(classes, (n,), generator=generator)


@torch.no_grad()
def importance(module: nn.Sequential, x: Tensor, y: Tensor) -> Tensor:
    """Eq. 3 to the letter: set everything a neuron owns to zero, evaluate, subtract."""
    before = F.cross_entropy(module(x), y)
    layers = [part for part in module if isinstance(part, nn.Linear)]
    rises = []
    for layer in range(len(layers) - 1):
        for j in range(layers[layer].out_features):
            without = copy.deepcopy(module)
            own = [part for part in without if isinstance(part, nn.Linear)]
            own[layer].weight[j] = 0
            own[layer].bias[j] = 0
            own[layer + 1].weight[:, j] = 0
            rises.append(F.cross_entropy(without(x), y) - before)
    return torch.stack(rises)


def train(module: nn.Sequential, x: Tensor, y: Tensor, batches: list[np.ndarray], lr: float) -> nn.Sequential:
    """Mini-batch SGD by autograd and torch's own optimiser; the module is left as it was."""
    module = copy.deepcopy(module)
    optimiser = torch.optim.SGD(module.parameters(), lr=lr)
    for rows in batches:
        optimiser.zero_grad()
        F.cross_entropy(module(x[rows]), y[rows]).backward()
        optimiser.step()
    return module


def worst(ours: Tensor, theirs: Tensor) -> float:
    """The largest difference, relative to the largest value."""
    return float((ours - theirs).abs().max() / theirs.abs().max())
