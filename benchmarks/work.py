"""The round that every candidate trains: ten clients, 2000 samples each, batch 32, one epoch of SGD.

One epoch is 62 steps; the incomplete 63rd batch is dropped. Nothing here needs more than torch, so that other
libraries' environments can import it.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

CLIENTS, SAMPLES, BATCH, STEPS, LR = 10, 2000, 32, 62, 0.05
HIDDEN, CLASSES = 200, 10
SCALE, SHIFT = 1 / 64, -2.0  # from the stored bytes to inputs around zero


def stored(features: int) -> tuple[Tensor, Tensor]:
    """Samples of all clients, one client's after the other's, as bytes, and their labels."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (CLIENTS * SAMPLES, features), dtype=np.uint8)
    return torch.from_numpy(x), torch.from_numpy(rng.integers(0, CLASSES, CLIENTS * SAMPLES))


def clients(features: int) -> list[tuple[Tensor, Tensor]]:
    """Inputs and labels of each client, ready to train on."""
    x, y = stored(features)
    inputs = x * SCALE + SHIFT
    return list(zip(inputs.split(SAMPLES), y.split(SAMPLES), strict=True))


def network(features: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(features, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES)
    )


def counted_steps() -> Callable[[], int]:
    """How many steps the optimisers of this process have taken from now on, whoever made them."""
    taken: list[None] = []  # appending is safe where several threads train; adding one is not
    register_optimizer_step_post_hook(lambda *_: taken.append(None))
    return lambda: len(taken)
