"""How clients train beside the learning rate: momentum, weight decay, clipping, noise, augmentation, batch norm, class
weights. Loads no torch."""

import math
from dataclasses import dataclass

from fedsac.errors import FedsacError

AUGMENTATIONS = ("flip", "crop")
SCHEDULES = ("constant", "cosine", "step")
BATCH_NORMS = ("validation", "running", "frozen")
CLASS_WEIGHTS = ("none", "balanced")


@dataclass(frozen=True)
class Recipe:
    """`momentum` (its running mean begins anew in every round), `weight_decay` (added to the gradient, as torch's SGD
    does), `clip`: the longest gradient; `augment`: of flip and crop those that are wanted; `batch_norm`: where the
    statistics come from by which a model is scored (docs/any-network.md); `class_weights`: whether the samples of a
    batch weigh alike, or by `Batches.weight` (docs/decisions.md). `noise`, a multiple of `clip`, makes it
    differentially private: each sample's gradient is shortened to `clip` then, and noise is added to their sum."""

    momentum: float = 0.0
    weight_decay: float = 0.0
    clip: float | None = None
    augment: tuple[str, ...] = ()
    batch_norm: str = "validation"
    class_weights: str = "none"
    noise: float | None = None

    @property
    def plain(self) -> bool:
        """Whether it is SGD with nothing else, which the perceptrons' own code can do."""
        return not (self.momentum or self.weight_decay or self.clip or self.augment)


PLAIN = Recipe()


def augmentations(text: str | None) -> tuple[str, ...]:
    """The augmentations of a text like "flip+crop", in a fixed order.

    >>> augmentations("crop+flip")
    ('flip', 'crop')
    """
    named = [] if text is None else text.split("+")
    for name in named:
        if name not in AUGMENTATIONS:
            raise FedsacError(f"augment must be flip, crop or flip+crop, not {text!r}")
    return tuple(name for name in AUGMENTATIONS if name in named)


def rate_factor(schedule: str, progress: float) -> float:
    """What the learning rate is multiplied by after this share of the training, from 0 to below 1.

    >>> [round(rate_factor("cosine", p), 3) for p in (0, .5)], [rate_factor("step", p) for p in (.4, .5, .75)]
    ([1.0, 0.5], [1.0, 0.1, 0.01])
    """
    progress = min(max(progress, 0.0), 1.0)
    if schedule == "cosine":
        return 0.5 * (1 + math.cos(math.pi * progress))
    if schedule == "step":
        return 1.0 if progress < 0.5 else 0.1 if progress < 0.75 else 0.01
    return 1.0
