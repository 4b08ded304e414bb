"""How exactly models' scores are known: their standard errors, for the samples that happened to be drawn."""

import numpy as np
import torch
from torch import Tensor

from fedsac.compute import evaluation
from fedsac.compute.samples import Samples
from fedsac.core.metrics import Metric, accuracy
from fedsac.core.module_layout import AnyLayout

JACKKNIFE_GROUPS = 20  # of samples: the error is then 15 to 20 % off by chance


def standard_errors(
    layout: AnyLayout, models: Tensor, samples: Samples, scores: Tensor, *, metric: Metric, rng: np.random.Generator
) -> Tensor:
    """Standard errors [S], float64 on the CPU, of the models' [S, parameters] `scores` [S] on these samples.

    Accuracy is a share p of n samples, with the error sqrt(p (1 - p) / n). Other metrics have no formula in common:
    theirs is the jackknife's over g groups of samples, drawn by `rng`, sqrt((g - 1) / g sum_j (s_j - mean s)^2), where
    s_j is the score without group j. Neither sees an error where everything is right.
    """
    n = len(samples.y)
    if metric is accuracy:
        return (scores * (1 - scores) / n).sqrt()
    groups = min(JACKKNIFE_GROUPS, n)
    if groups < 2:
        return torch.zeros_like(scores)
    group = torch.from_numpy(rng.permutation(n) % groups).to(samples.y.device)
    without = []
    for j in range(groups):
        rest = group != j
        part = Samples(samples.x[rest], samples.y[rest], samples.scale, samples.shift)
        without.append(evaluation.evaluate(layout, models, None, part, metric=metric)[0])
    return ((groups - 1) * torch.stack(without).var(0, correction=0)).sqrt()
