"""The curvature of a loss at a point: extreme eigenvalues of its Hessian, from Hessian-vector products (Lanczos)."""

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

    >>> measured = curvature(lambda p: 3 * p[0] ** 2 - p[1] ** 2, torch.tensor([1.0, 0.0], dtype=torch.float64))
    >>> round(measured.largest, 6), round(measured.smallest, 6), measured.gradient_norm
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
    """Smallest and largest eigenvalue of the symmetric matrix that `product` multiplies by, and the error of each
    (Lanczos).

    Every vector is orthogonalised against all before it, twice: otherwise rounding lets found eigenvalues reappear.
    """
    basis = [start / start.norm()]
    diagonal: list[float] = []
    off_diagonal: list[float] = []
    for _ in range(min(steps, len(start))):
        image = product(basis[-1])
        diagonal.append(float(image @ basis[-1]))
        known = torch.stack(basis)
        for _ in range(2):
            image = image - known.T @ (known @ image)
        off_diagonal.append(float(image.norm()))
        if off_diagonal[-1] <= 1e-12 * max(map(abs, diagonal)):
            break  # the basis spans the whole Krylov space of the start vector
        basis.append(image / off_diagonal[-1])
    inner = np.diag(diagonal) + np.diag(off_diagonal[:-1], 1) + np.diag(off_diagonal[:-1], -1)
    values, vectors = np.linalg.eigh(inner)
    errors = np.abs(vectors[-1] * off_diagonal[-1])
    return (float(values[0]), float(values[-1])), (float(errors[0]), float(errors[-1]))
