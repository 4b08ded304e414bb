"""From stored samples to what a network takes: normalised, in shape, and augmented where a batch says how."""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedsac.compute.samples import Samples
from fedsac.core.module_layout import ModuleLayout

CROP_SHARE = 8  # an image is shifted by up to this part of its side: by 4 of 32 pixels, as is usual on CIFAR-10


def inputs(layout: ModuleLayout, samples: Samples, rows: Tensor, member: int, dtype: torch.dtype) -> Tensor:
    """Inputs [n, ...] of these rows [n] of the samples, normalised as a member does."""
    stored = samples.x[rows]
    if layout.input.tokens:
        return layout.input.inputs(stored.long())
    k = member if len(samples.scale) > 1 else 0
    return layout.input.inputs(torch.addcmul(samples.shift[k], stored.to(dtype), samples.scale[k]))


def draw_changes(layout: ModuleLayout, steps: int, batch: int, rng: np.random.Generator) -> np.ndarray:
    """How the images of one client's batches are changed, [steps, batch, 3]: turned left to right (0 or 1), and moved
    by so many pixels down and to the right."""
    changes = np.zeros((steps, batch, 3), dtype=np.int64)
    if "flip" in layout.recipe.augment:
        changes[..., 0] = rng.integers(2, size=(steps, batch))
    if "crop" in layout.recipe.augment:
        for axis, side in enumerate(layout.input.shape[1:], 1):
            most = side // CROP_SHARE
            changes[..., axis] = rng.integers(-most, most + 1, size=(steps, batch))
    return changes


def augmented(images: Tensor, how: Tensor) -> Tensor:
    """Images [n, channels, height, width], each turned left to right where `how` [n, 3] says 1 first, and shifted by
    the other two numbers of pixels (down, to the right); what comes in at the borders is 0, the mean colour."""
    flip, down, right = how.unbind(1)
    images = torch.where(flip.bool().view(-1, 1, 1, 1), images.flip(-1), images)
    n, _, height, width = images.shape
    pad_y, pad_x = height // CROP_SHARE, width // CROP_SHARE
    padded = functional.pad(images, (pad_x, pad_x, pad_y, pad_y))
    y = torch.arange(height, device=images.device) + (pad_y - down).unsqueeze(1)
    x = torch.arange(width, device=images.device) + (pad_x - right).unsqueeze(1)
    each = torch.arange(n, device=images.device).view(-1, 1, 1)
    return padded.movedim(1, -1)[each, y.unsqueeze(2), x.unsqueeze(1)].movedim(-1, 1)
