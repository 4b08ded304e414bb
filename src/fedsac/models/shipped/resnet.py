"""ResNet-18 for small images (He et al., CVPR 2016): a 3 x 3 stem, no pooling after it; with batch or group norm."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from fedsac.errors import FedsacError

WIDTH = 64  # channels of the first stage; each further stage has twice as many
BLOCKS = (2, 2, 2, 2)
GROUPS = 2  # of group norm: as in FedRAC's code

Norm = Callable[[int], nn.Module]


class BasicBlock(nn.Module):
    """Two convolutions, and beside them the input itself, or a 1 x 1 convolution of it where the shape changes."""

    def __init__(self, channels: int, out: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False), norm(out)
        self.conv2, self.norm2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), norm(out)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != out:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), norm(out))

    def forward(self, x: Tensor) -> Tensor:
        inner = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(inner)) + self.shortcut(x))


def resnet18(shape: tuple[int, ...], classes: int, width: int = WIDTH) -> nn.Module:
    """With batch norm."""
    return _resnet(shape, classes, width, nn.BatchNorm2d)


def resnet18_groupnorm(shape: tuple[int, ...], classes: int, width: int = WIDTH) -> nn.Module:
    """With group norm, two groups in each layer: a group can only be cut whole."""
    return _resnet(shape, classes, width, lambda channels: nn.GroupNorm(GROUPS, channels))


def _resnet(shape: tuple[int, ...], classes: int, width: int, norm: Norm) -> nn.Module:
    if len(shape) != 3 or min(shape[1:]) < 8:
        raise FedsacError(f"resnet18 is for images [channels, height, width] of 8 x 8 at least, not for {shape}")
    layers: list[nn.Module] = [nn.Conv2d(shape[0], width, 3, 1, 1, bias=False), norm(width), nn.ReLU()]
    channels = width
    for stage, blocks in enumerate(BLOCKS):
        for block in range(blocks):
            out = width * 2**stage
            layers.append(BasicBlock(channels, out, 2 if stage and not block else 1, norm))
            channels = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))
