"""Small networks and data for tests of runs with any network."""

import numpy as np
import torch
from torch import Tensor, nn

from fedsac.models.shipped.transformer import Size, TextTransformer, with_lora


def tiny(shape, classes):
    """A convolutional network with batch norm and a residual sum."""
    return nn.Sequential(
        nn.Conv2d(shape[0], 6, 3, 2, 1),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        Residual(6, 5),
        nn.Flatten(),
        nn.Linear(6 * 16, 8),
        nn.Sigmoid(),
        nn.Linear(8, classes),
    )


class Residual(nn.Module):
    def __init__(self, channels: int, inner: int) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(channels, inner, 3, 1, 1, bias=False), nn.BatchNorm2d(inner)
        self.second = nn.Conv2d(inner, channels, 3, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(torch.relu(self.norm(self.first(x))))


def dropping(shape, classes):
    return nn.Sequential(
        nn.Flatten(), nn.Linear(torch.Size(shape).numel(), 9), nn.Tanh(), nn.Dropout(0.3), nn.Linear(9, classes)
    )


class Dropping(nn.Module):
    """Dropout that no layer shows: the forward function draws itself."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(features, 9), nn.Linear(9, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(nn.functional.dropout(torch.tanh(self.first(x.flatten(1))), 0.3, self.training))


def dropping_itself(shape, classes):
    return Dropping(torch.Size(shape).numel(), classes)


def small_text(shape, classes):
    return TextTransformer(20, classes, Size(16, 2, 1))


def small_lora(shape, classes):
    return with_lora(small_text(shape, classes), 3)


def sentences():
    """Sequences of 6 tokens, whose class is which of two tokens occurs; 0 is padding."""
    rng = np.random.default_rng(0)
    x, y = rng.integers(3, 20, (300, 6)), rng.integers(0, 2, 300)
    x[np.arange(300), rng.integers(0, 5, 300)] = y + 1
    x[::3, 5] = 0
    return x, y


def fractions():
    x, y = sentences()
    return x + 0.5, y
