"""Transformers for images (ViT, Dosovitskiy et al., ICLR 2021) and for text, whose heads and hidden units can be cut;
and LoRA adapters (Hu et al., ICLR 2022), whose ranks can."""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedsac.errors import FedsacError

TEXT_TOKENS = 512  # positions that a text transformer knows
LORA_RANK, LORA_SCALE = 8, 2.0  # the scale is alpha / rank


@dataclass(frozen=True)
class Size:
    width: int
    heads: int
    depth: int


VIT_TINY = Size(192, 3, 12)
TEXT_SMALL = Size(128, 4, 2)


class Attention(nn.Module):
    """Attention with as many heads as its tensors have: `head_width` is all it remembers, so a smaller one is an
    ordinary module, too."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.head_width = width // heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        parts = [layer(x).unflatten(-1, (-1, self.head_width)) for layer in (self.query, self.key, self.value)]
        q, k, v = (part.transpose(-2, -3) for part in parts)
        mixed = functional.scaled_dot_product_attention(q, k, v)
        joined: Tensor = self.out(mixed.transpose(-2, -3).flatten(-2))
        return joined


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.norm2, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        inner: Tensor = self.down(functional.gelu(self.up(self.norm2(x))))
        return x + inner


class ViT(nn.Module):
    """Patches as tokens, mean over tokens."""

    def __init__(self, shape: tuple[int, ...], classes: int, size: Size) -> None:
        super().__init__()
        channels, height, width = shape
        patch = 4 if max(height, width) <= 64 else 16
        self.patches = nn.Conv2d(channels, size.width, patch, patch)
        self.position = nn.Parameter(0.02 * torch.randn((height // patch) * (width // patch), size.width))
        self.blocks = nn.Sequential(*(Block(size.width, size.heads) for _ in range(size.depth)))
        self.norm, self.head = nn.LayerNorm(size.width), nn.Linear(size.width, classes)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2) + self.position
        logits: Tensor = self.head(self.norm(self.blocks(tokens)).mean(1))
        return logits


class TextTransformer(nn.Module):
    """Token numbers [n, length] to classes; token 0 is padding and left out of the mean."""

    def __init__(self, vocabulary: int, classes: int, size: Size = TEXT_SMALL) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, size.width)
        self.position = nn.Parameter(0.02 * torch.randn(TEXT_TOKENS, size.width))
        self.blocks = nn.Sequential(*(Block(size.width, size.heads) for _ in range(size.depth)))
        self.norm, self.head = nn.LayerNorm(size.width), nn.Linear(size.width, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.blocks(self.tokens(tokens) + self.position[: tokens.shape[1]])
        there = (tokens > 0).unsqueeze(-1).to(x.dtype)
        logits: Tensor = self.head(self.norm((x * there).sum(1) / there.sum(1).clamp_min(1)))
        return logits


def vit_tiny(shape: tuple[int, ...], classes: int) -> nn.Module:
    if len(shape) != 3 or min(shape[1:]) < 4:
        raise FedsacError(f"vit-tiny is for images [channels, height, width] of 4 x 4 at least, not for {shape}")
    return ViT(shape, classes, VIT_TINY)


def text(shape: tuple[int, ...], classes: int, tokens: int = 1000) -> nn.Module:
    return TextTransformer(tokens, classes)


def text_lora(shape: tuple[int, ...], classes: int, tokens: int = 1000) -> nn.Module:
    return with_lora(TextTransformer(tokens, classes), LORA_RANK)


class LoRALinear(nn.Module):
    """A linear layer that stays as it is, and beside it a product of two small ones, which is learned."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Linear(base.in_features, rank, bias=False)
        self.b = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.b.weight)  # at first, it adds nothing

    def forward(self, x: Tensor) -> Tensor:
        total: Tensor = self.base(x) + LORA_SCALE * self.b(self.a(x))
        return total


def with_lora(module: nn.Module, rank: int, layers: tuple[str, ...] = ("query", "value")) -> nn.Module:
    """A copy whose linear layers with these names have LoRA adapters of this rank; nothing else of it is learned but
    its `head`."""
    adapted = copy.deepcopy(module).requires_grad_(False)
    for parent in list(adapted.modules()):
        for name, child in list(parent.named_children()):
            if name in layers and isinstance(child, nn.Linear):
                setattr(parent, name, LoRALinear(child, rank))
            elif name == "head":
                child.requires_grad_(True)
    if not any(isinstance(layer, LoRALinear) for layer in adapted.modules()):
        raise FedsacError(f"the network has no linear layer named {' or '.join(layers)}")
    return adapted
