"""What the networks are trained on: the embedded digits, enlarged, and Python's own documentation."""

import functools
import runpy
from pathlib import Path
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from fedsac.models.shipped.transformer import TextTransformer, with_lora

EXAMPLE = Path(__file__).parents[2] / "examples" / "text_lora.py"  # which says how text becomes numbers
SHAPE, CLASSES = (1, 16, 16), 10
BASE, BASE_STEPS = 300, 200  # pieces of text that LoRA's base is trained on, and for how long
RANK = 8


def digits() -> tuple[Tensor, Tensor]:
    """Images [n, 1, 16, 16] and labels."""
    data = load_digits()
    x = torch.from_numpy(data.images).float().unsqueeze(1).repeat_interleave(2, 2).repeat_interleave(2, 3)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    return (x / 8 - 1)[order], torch.from_numpy(data.target)[order]


@functools.cache
def _example() -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLE))


def text() -> tuple[Tensor, Tensor]:
    """Token numbers [n, length] and topics, without the pieces that LoRA's base has seen."""
    x, y = _example()["corpus"]()
    return x[BASE:], y[BASE:]


@functools.cache
def _base() -> nn.Module:
    """A transformer that has learned from the first pieces; the same one every time."""
    x, y = (part[:BASE] for part in _example()["corpus"]())
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = TextTransformer(_example()["VOCABULARY"], len(_example()["TOPICS"]))
        trained: nn.Module = _example()["train"](model, x, y, BASE_STEPS)
    return trained


def transformer(shape: tuple[int, ...] = (), classes: int = 0) -> nn.Module:
    """For `fedsac run`, and without arguments: the text transformer of this vocabulary."""
    return TextTransformer(_example()["VOCABULARY"], classes or len(_example()["TOPICS"]))


def adapters(shape: tuple[int, ...] = (), classes: int = 0) -> nn.Module:
    """LoRA adapters beside the trained base."""
    return with_lora(_base(), RANK)
