"""What differentially private training spends: Renyi's divergence of its steps (Mironov, Talwar, Zhang 2019), for two
data sets of which one has one sample more, and the epsilon that follows. Loads no torch."""

import math
from collections.abc import Sequence
from functools import cache

ORDERS = range(2, 257)


@cache
def step_divergence(q: float, noise: float) -> tuple[float, ...]:
    """Renyi's divergence of one step at each of ORDERS, where each sample is drawn with probability q."""
    if q >= 1:
        return tuple(a / (2 * noise**2) for a in ORDERS)
    return tuple(_sampled_divergence(q, noise, a) for a in ORDERS)


def _sampled_divergence(q: float, noise: float, a: int) -> float:
    """Of the sampled Gaussian mechanism at an integer order: log of the sum over k of
    C(a, k) (1-q)^(a-k) q^k exp(k (k-1) / (2 noise^2)), divided by a - 1."""
    logs = [
        math.lgamma(a + 1)
        - math.lgamma(k + 1)
        - math.lgamma(a - k + 1)
        + (a - k) * math.log1p(-q)
        + k * math.log(q)
        + k * (k - 1) / (2 * noise**2)
        for k in range(a + 1)
    ]
    top = max(logs)
    return (top + math.log(math.fsum(math.exp(term - top) for term in logs))) / (a - 1)


def epsilon(divergences: Sequence[float], delta: float) -> float:
    """The epsilon at `delta` of a mechanism with these divergences at ORDERS (Balle et al. 2020, Theorem 21)."""
    found = [
        d + math.log1p(-1 / a) - (math.log(delta) + math.log(a)) / (a - 1)
        for a, d in zip(ORDERS, divergences, strict=True)
    ]
    return max(0.0, min(found))


def spent(samples: int, batch: int, steps: int, noise: float, delta: float) -> float:
    """The epsilon at `delta` of so many steps on so many samples, each drawn with probability batch / samples."""
    return epsilon([steps * d for d in step_divergence(min(1.0, batch / samples), noise)], delta)
