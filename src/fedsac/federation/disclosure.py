"""What of a trained model leaves a site: nothing that few samples decide, and everything a little blurred.

A unit that few samples activate carries those samples in its weights: its change is their sum. Such units go back as
they came. The difference of two units can carry one sample, too, if a coordinator makes up the model for that; `blur`
hides it below noise, as long as the coordinator does not ask for the same thing very often. Both together stop what is
tried in `benchmarks/inversion.py`; they prove nothing. `privacy.py` has noise with a proof.
"""

import math
import os

import numpy as np
import torch
from torch import Tensor

from fedsac.models.network import Network


def disclosed(start: Network, trained: Network, x: Tensor, least_rows: int, blur: float) -> Network:
    """The trained network as it may leave the site, which trained it from `start` on the inputs `x` [rows, features].

    Units that fewer than `least_rows` of the inputs activate keep their weights, in and out. Then every unit's
    incoming weights get Gaussian noise whose length is about `blur` times the length of the whole change.
    """
    few = [_few(start, x, least_rows), _few(trained, x, least_rows)]
    params = trained.params.clone()
    before, after = start.layout.views(start.params), start.layout.views(params)
    for layer in range(len(before) - 1):
        units = few[0][layer] | few[1][layer]
        (old, old_bias), (new, new_bias) = before[layer], after[layer]
        new[:, units], new_bias[units] = old[:, units], old_bias[units]
        after[layer + 1][0][units] = before[layer + 1][0][units]
    length = float((params.double() - start.params.double()).norm())
    if blur:
        for weight, bias in after:
            scale = blur * length / math.sqrt(len(weight) + 1)
            for part in (weight, bias):
                part += (scale * secure_normal(part.numel())).reshape(part.shape).to(part)
    return Network(trained.layout, params)


def _few(network: Network, x: Tensor, least_rows: int) -> list[Tensor]:
    """Of each hidden layer, which units fewer than `least_rows` inputs activate."""
    few = []
    for weight, bias in network.layout.views(network.params)[:-1]:
        x = torch.relu(torch.addmm(bias, x, weight))
        few.append((x > 0).sum(0) < least_rows)
    return few


def secure_normal(count: int) -> Tensor:
    """Standard normal numbers, float64 [count], from the system's secure generator: a coordinator knows the run's seed
    and could draw whatever a named stream gives, and take it off again."""
    half = -(-count // 2)
    bits = np.frombuffer(os.urandom(16 * half), np.uint64).reshape(2, half) >> np.uint64(11)
    u, v = (bits[0] + 1.0) * 2.0**-53, bits[1] * 2.0**-53  # u is above 0: its logarithm is finite
    radius = np.sqrt(-2 * np.log(u))
    both = np.concatenate([radius * np.cos(2 * np.pi * v), radius * np.sin(2 * np.pi * v)])
    return torch.from_numpy(both[:count])
