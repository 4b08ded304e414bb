"""The small CNN of CGSV and FedAVE: two convolutions and two hidden layers (on 32 x 32 images 800-120-84)."""

import torch
from torch import nn

from fedsac.errors import FedsacError

KERNEL, POOLED = 5, 2


def cnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Convolutions of 16 and 32 channels, 5 x 5, each with ReLU and a maximum over 2 x 2; then 120 and 84 neurons."""
    if len(shape) != 3:
        raise FedsacError(f"the network cnn is for images [channels, height, width], not for inputs of shape {shape}")
    channels, *sides = shape
    for _ in range(2):
        sides = [(side - KERNEL + 1) // POOLED for side in sides]
    if min(sides) < 1:
        raise FedsacError(f"the network cnn needs images of 16 x 16 at least, not {shape[1]} x {shape[2]}")
    return nn.Sequential(
        nn.Conv2d(channels, 16, KERNEL),
        nn.ReLU(),
        nn.MaxPool2d(POOLED),
        nn.Conv2d(16, 32, KERNEL),
        nn.ReLU(),
        nn.MaxPool2d(POOLED),
        nn.Flatten(),
        nn.Linear(32 * int(torch.Size(sides).numel()), 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, classes),
    )
