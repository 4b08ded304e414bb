"""How a loss bends at a point: the extreme eigenvalues of its Hessian, from products with vectors alone."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedsac.rng import stream

Loss = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Curvature:
    """A loss at a point: its value, the norm of its gradient, and the extreme eigenvalues of its Hessian.

    `largest` and `smallest` are v'Hv of unit vectors v, so a negative `smallest` shows that the loss is not convex,
    however well Lanczos has converged. Some eigenvalue lies within `largest_error` (`smallest_error`) of each.
    """

    loss: float
    gradient_norm: float
    largest: float
    smallest: float
    largest_error: float
    smallest_error: float


def curvature(loss: Loss, params: Tensor, steps: int = 60, seed: int = 0) -> Curvature:
    """Measure `loss` at `params` [parameters] with at most `steps` Hessian-vector products.

    >>> bent = curvature(lambda p: 3 * p[0] ** 2 - p[1] ** 2, torch.tensor([1.0, 0.0], dtype=torch.float64))
    >>> round(bent.largest, 6), round(bent.smallest, 6), bent.gradient_norm
    (6.0, -2.0, 6.0)
    """
    point = params.detach().clone().requires_grad_()
    value = loss(point)
    gradient = torch.autograd.grad(value, point, create_graph=True)[0]

    def product(vector: Tensor) -> Tensor:
        return torch.autograd.grad(gradient, point, vector, retain_graph=True)[0]

    start = torch.from_numpy(stream(seed, "Lanczos").standard_normal(len(params))).to(params)
    (smallest, largest), (smallest_error, largest_error) = extremes(product, start, steps)
    return Curvature(
        float(value.detach()), float(gradient.detach().norm()), largest, smallest, largest_error, smallest_error
    )


def extremes(
    product: Callable[[Tensor], Tensor], start: Tensor, steps: int
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Smallest and largest eigenvalue of the symmetric matrix behind `product`, and how far off each may be (Lanczos).

    Every vector is made orthogonal to all before it, twice: without that, rounding brings found eigenvalues back.
    """
    basis = [start / start.norm()]
    diagonal: list[float] = []
    beside: list[float] = []
    for _ in range(min(steps, len(start))):
        image = product(basis[-1])
        diagonal.append(float(image @ basis[-1]))
        known = torch.stack(basis)
        for _ in range(2):
            image = image - known.T @ (known @ image)
        beside.append(float(image.norm()))
        if beside[-1] <= 1e-12 * max(map(abs, diagonal)):
            break  # the vectors so far span everything that the matrix makes of the start
        basis.append(image / beside[-1])
    inner = np.diag(diagonal) + np.diag(beside[:-1], 1) + np.diag(beside[:-1], -1)
    values, vectors = np.linalg.eigh(inner)
    errors = np.abs(vectors[-1] * beside[-1])
    return (float(values[0]), float(values[-1])), (float(errors[0]), float(errors[-1]))
