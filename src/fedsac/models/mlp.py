"""The perceptron of the paper: fully connected layers with ReLU between them, and its starting weights."""

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from fedsac.core.units import Layout
from fedsac.models.network import Network
from fedsac.models.start import Wanted
from fedsac.rng import stream


def mlp(wanted: Wanted) -> Network:
    """`hidden` layers between features and classes."""
    layout = Layout((wanted.features, *wanted.hidden, wanted.classes))
    return Network(layout, initial(layout, wanted.seed, wanted.dtype))


def initial(layout: Layout, seed: int, dtype: torch.dtype) -> Tensor:
    """Starting weights [parameters]: torch's default for Linear, U(-1/sqrt(in), 1/sqrt(in)), from a named stream.

    Drawn by us and not by `nn.Linear`, so that they do not depend on torch's version or its global generator.
    """
    rng = stream(seed, "initial weights")
    pieces = []
    for fan_in, fan_out in pairwise(layout.sizes):
        bound = 1 / np.sqrt(fan_in)
        pieces += [rng.uniform(-bound, bound, fan_in * fan_out), rng.uniform(-bound, bound, fan_out)]
    return torch.from_numpy(np.concatenate(pieces)).to(dtype)
