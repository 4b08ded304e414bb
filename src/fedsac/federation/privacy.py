"""Training with differential privacy at a site: clipped gradients, noise, and the epsilon that was spent.

DP-SGD (Abadi et al. 2016): each step draws every sample with probability q, clips each sample's gradient to the length
`clip`, adds noise of `noise` x `clip` to their sum, and divides by the expected batch (`core.accountant` says what that
spends). Draws and noise come from the system's secure generator: the coordinator knows the run's seed.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedsac.core.accountant import ORDERS, epsilon, step_divergence
from fedsac.federation.declining import DeclinedError
from fedsac.federation.disclosure import secure_normal
from fedsac.federation.folder import SiteSettings, read_json, write_json
from fedsac.models.network import Network

SPENT_FILE = "privacy.json"


@dataclass(frozen=True)
class PrivateTraining:
    """How DP-SGD trains; `batch` is the expected number of samples of a step, `noise` a multiple of `clip`."""

    steps: int
    batch: int
    lr: float
    clip: float
    noise: float


def train_privately(start: Network, x: Tensor, y: Tensor, how: PrivateTraining) -> Network:
    """The network after DP-SGD on inputs `x` [rows, features] and labels `y` [rows]."""

    def loss(params: Tensor, one: Tensor, label: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(Network(start.layout, params).logits(one[None]), label[None])

    gradients = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
    params, chance = start.params.clone(), min(1.0, how.batch / len(x))
    for _ in range(how.steps):
        drawn = np.flatnonzero(_secure_uniform(len(x)) < chance)
        total = how.noise * how.clip * secure_normal(params.numel()).to(params)
        if len(drawn):
            each = gradients(params, x[drawn], y[drawn])
            total += (each * (how.clip / each.norm(dim=1).clamp(min=how.clip))[:, None]).sum(0)
        params = params - how.lr * total / (chance * len(x))
    return Network(start.layout, params)


def _secure_uniform(count: int) -> np.ndarray:
    bits = np.frombuffer(os.urandom(8 * count), np.uint64)
    return np.asarray((bits >> np.uint64(11)) * 2.0**-53)


def spend(site: SiteSettings, samples: int, batch: int, steps: int) -> float:
    """Account for that many steps before they are taken: returns the epsilon spent in all, or raises if it is more
    than the site's `most_epsilon` (then nothing is spent)."""
    path = site.path / SPENT_FILE
    before = read_json(path)["divergences"] if path.exists() else [0.0] * len(ORDERS)
    step = step_divergence(min(1.0, batch / samples), site.noise)
    after = [old + steps * new for old, new in zip(before, step, strict=True)]
    spent = epsilon(after, site.delta)
    if site.most_epsilon and spent > site.most_epsilon:
        raise DeclinedError("epsilon", f"epsilon would be {spent:.2f}, and most_epsilon is {site.most_epsilon:g}")
    write_json(path, {"epsilon": spent, "delta": site.delta, "divergences": after})
    return spent


def spent(folder: Path) -> float | None:
    """The epsilon that a site has spent so far; None without differential privacy."""
    path = folder / SPENT_FILE
    return float(read_json(path)["epsilon"]) if path.exists() else None
