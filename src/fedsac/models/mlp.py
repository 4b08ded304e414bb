"""The multilayer perceptron of the paper: fully connected layers with ReLU between them, and its initial weights."""

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from fedsac.core.units import Layout
from fedsac.models.network import Network
from fedsac.models.start import NetworkSpec
from fedsac.rng import stream


def mlp(spec: NetworkSpec) -> Network:
    """A perceptron with `spec.hidden` layers, and its initial weights."""
    layout = Layout((spec.features, *spec.hidden, spec.classes))
    return Network(layout, initial_weights(layout, spec.seed, spec.dtype))


def initial_weights(layout: Layout, seed: int, dtype: torch.dtype) -> Tensor:
    """Initial weights [parameters]: torch's default for Linear, U(-1/sqrt(in), 1/sqrt(in)), from a named random stream.

    Drawn here and not by `nn.Linear`, so that they do not depend on torch's version or its global generator.
    """
    rng = stream(seed, "initial weights")
    pieces = []
    for fan_in, fan_out in pairwise(layout.sizes):
        bound = 1 / np.sqrt(fan_in)
        pieces += [rng.uniform(-bound, bound, fan_in * fan_out), rng.uniform(-bound, bound, fan_out)]
    return torch.from_numpy(np.concatenate(pieces)).to(dtype)
