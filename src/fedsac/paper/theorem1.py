"""Theorem 1 (fairness in training loss), tested where everything about F is known: quadratics and ridge regression.

The theorem: F is L-smooth (Eq. 10) and mu-strongly convex (Eq. 11) with L <= mu, and the global model is so close to a
stationary point that |grad F| <= L |delta_i^2 - delta_j^2| / (2 |theta_i - theta_j|) (Eq. 16). Then r_i >= r_j gives
nested submodels, delta_i <= delta_j and F(theta_i) <= F(theta_j). Here a parameter, or all weights of an input, plays
the part of a neuron; submodels are allocated by FedSAC's own `allocate`. `smooth` is L.
"""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from fedsac.core.allocation import allocate, reputation
from fedsac.rng import stream

DIMENSION = 20
CLIENTS = 10
BETA = 5.0
RATIOS = (1.0, 2.0, 5.0, 10.0, 100.0, 1000.0)  # L / mu
GRADIENT_BINS = (1.0, 3.0, 10.0, float("inf"))  # upper ends, of |grad F| divided by the bound of Eq. 16
RIDGES = (10.0, 1.0, 0.1, 0.01, 0.001)  # weights of the L2 penalty
RELATIVE_TOLERANCE = 1e-12  # losses closer than this count as equal


@dataclass(frozen=True)
class Count:
    """A number of pairs of nested submodels, and in how many of them the larger one has the higher loss."""

    pairs: int = 0
    reversed: int = 0

    def __add__(self, other: "Count") -> "Count":
        return Count(self.pairs + other.pairs, self.reversed + other.reversed)

    @property
    def share(self) -> float:
        return self.reversed / max(1, self.pairs)


@dataclass(frozen=True)
class Quadratic:
    """F(theta) - F(theta_g) = g'(theta - theta_g) + (theta - theta_g)' H (theta - theta_g) / 2, around theta_g [d]."""

    hessian: Tensor
    model: Tensor
    gradient: Tensor

    def loss(self, held: Tensor) -> Tensor:
        """F - F(theta_g) of the submodels that hold `held` [..., d]: the other parameters are 0."""
        away = torch.where(held, 0.0, -self.model)
        return away @ self.gradient + ((away @ self.hessian) * away).sum(-1) / 2

    def importance(self) -> Tensor:
        """Rise of F when each parameter is set to 0 (Eq. 3)."""
        return self.loss(~torch.eye(len(self.model), dtype=torch.bool))


def gradient_bound(model: Tensor, smooth: float, larger: Tensor, smaller: Tensor) -> Tensor:
    """The bound on |grad F| of Eq. 16 for pairs of submodels, given as masks of the parameters they hold [..., d].

    For nested ones it is L |theta_i - theta_j| / 2, because |theta_i - theta_j|^2 = delta_j^2 - delta_i^2.
    """
    squares = model.square()
    delta_i, delta_j = (torch.where(held, 0, squares).sum(-1) for held in (larger, smaller))
    return smooth * (delta_i - delta_j).abs() / (2 * torch.where(larger != smaller, squares, 0).sum(-1).sqrt())


def prefixes(importance: Tensor) -> Tensor:
    """Masks of the submodels with the 1, 2, ... least important neurons (ties by index), boolean [neurons, neurons]."""
    rank = importance.argsort(stable=True).argsort()
    return rank < torch.arange(1, len(rank) + 1).unsqueeze(1)


def pairs(held: Tensor) -> tuple[Tensor, Tensor]:
    """All pairs of different submodels among nested ones [N, neurons]: indices of the larger and of the smaller one."""
    size = held.sum(1)
    larger, smaller = (size.unsqueeze(1) > size).nonzero(as_tuple=True)
    return larger, smaller


def reversed_pairs(losses: Tensor, larger: Tensor, smaller: Tensor) -> Tensor:
    """In which pairs, boolean [pairs], the larger submodel has the higher loss."""
    return losses[larger] - losses[smaller] > RELATIVE_TOLERANCE * losses.abs().max()


def count_reversed(wrong: Tensor) -> Count:
    return Count(len(wrong), int(wrong.sum()))


@dataclass(frozen=True)
class Counterexample:
    """Three parameters at the exact minimum of F, with L > mu: client i holds more than client j and has a higher
    loss. `held` are the numbers of the parameters that each client holds."""

    mu: float
    smooth: float
    hessian: tuple[tuple[float, ...], ...]
    model: tuple[float, ...]
    importance: tuple[float, ...]
    reputations: tuple[float, ...]
    held: tuple[tuple[int, ...], ...]
    delta_squared: tuple[float, ...]
    losses: tuple[float, ...]


def counterexample(mu: float = 1.0, smooth: float = 3.0) -> Counterexample:
    """A case for any L > mu in which the conclusion is reversed: L <= mu cannot be weakened.

    H has eigenvalues mu, mu, L; parameters 2 and 3 are coupled by -(L - mu)/2, and theta_g = (1, 1, c) with
    c = (L + mu)/(L - mu). The larger submodel {1, 2} has F = (L + mu) c^2 / 4; {1} has less by (L + mu)/4, because
    without parameter 2 the harm of parameter 3's absence is partly undone. (Below L/mu = 1.01, where c is in the
    hundreds, the tolerance of `allocate` no longer tells {1} from {1, 2}.)

    >>> counterexample().losses
    (3.0, 4.0, 0.0)
    """
    same, coupled = (smooth + mu) / 2, -(smooth - mu) / 2
    hessian = torch.tensor([[mu, 0, 0], [0, same, coupled], [0, coupled, same]], dtype=torch.float64)
    model = torch.tensor([1, 1, (smooth + mu) / (smooth - mu)], dtype=torch.float64)
    problem = Quadratic(hessian, model, torch.zeros(3, dtype=torch.float64))
    importance = problem.importance()
    cost = (importance / importance.sum() * 100).cumsum(0)
    # Reputations half way between the importance of a prefix and that of the next one.
    reputations = torch.stack([(cost[0] + cost[1]) / 2, (cost[1] + cost[2]) / 2, cost.new_tensor(100.0)])
    held = allocate(importance, reputations)
    return Counterexample(
        mu=mu,
        smooth=smooth,
        hessian=tuple(tuple(row) for row in hessian.tolist()),
        model=tuple(model.tolist()),
        importance=tuple(importance.tolist()),
        reputations=tuple(reputations.tolist()),
        held=tuple(tuple((row.nonzero().squeeze(1) + 1).tolist()) for row in held),
        delta_squared=tuple(torch.where(held, 0, model.square()).sum(1).tolist()),
        losses=tuple(problem.loss(held).tolist()),
    )


@dataclass(frozen=True)
class GradientBin:
    """L = mu: pairs of clients for which |grad F| divided by the bound of Eq. 16 lies in one bin, up to `at_most`."""

    at_most: float | None  # None: no upper end
    by_importance: Count
    at_random: Count


@dataclass(frozen=True)
class QuadraticPairs:
    """L / mu = `ratio`, at the exact minimum: pairs of neighbouring prefixes and of clients, with neurons ordered by
    importance or at random."""

    ratio: float
    prefixes_by_importance: Count
    prefixes_at_random: Count
    clients_by_importance: Count
    clients_at_random: Count
    uncoupled: Count  # neighbouring prefixes in both orders where H is diagonal, with the same eigenvalues


def isotropic(trials: int, seed: int) -> tuple[GradientBin, ...]:
    """The case that the theorem covers, L = mu = 1, with gradients from far below to far above Eq. 16's bound."""
    counts = [[Count(), Count()] for _ in GRADIENT_BINS]
    for trial in range(trials):
        rng = stream(seed, "theorem 1", "isotropic", trial)
        model, direction = torch.from_numpy(rng.standard_normal((2, DIMENSION)))
        gradient = direction / direction.norm() * 10 ** rng.uniform(-2, 1.5)
        problem = Quadratic(torch.eye(DIMENSION, dtype=torch.float64), model, gradient)
        for order, values in enumerate((problem.importance(), torch.from_numpy(rng.permutation(DIMENSION) + 1.0))):
            held = allocate(values, reputation(rng.uniform(0.5, 1, CLIENTS).tolist(), BETA))
            larger, smaller = pairs(held)
            wrong = reversed_pairs(problem.loss(held), larger, smaller)
            ratio = gradient.norm() / gradient_bound(model, 1.0, held[larger], held[smaller])
            least = 0.0
            for i, most in enumerate(GRADIENT_BINS):
                counts[i][order] += count_reversed(wrong[(ratio > least) & (ratio <= most)])
                least = most
    return tuple(
        GradientBin(None if np.isinf(most) else most, *both) for most, both in zip(GRADIENT_BINS, counts, strict=True)
    )


def quadratics(ratio: float, trials: int, seed: int) -> QuadraticPairs:
    """Random quadratics with eigenvalues from 1 to `ratio`, at their minimum: how often more neurons mean more loss."""
    by_prefix, by_client, uncoupled = [Count(), Count()], [Count(), Count()], Count()
    for trial in range(trials):
        rng = stream(seed, "theorem 1", "quadratic", f"{ratio:g}", trial)
        hessian = torch.from_numpy(random_hessian(rng, DIMENSION, 1.0, ratio))
        model = torch.from_numpy(rng.standard_normal(DIMENSION))
        problem = Quadratic(hessian, model, torch.zeros_like(model))
        diagonal = Quadratic(torch.linalg.eigvalsh(hessian).diag(), model, problem.gradient)
        at_random = torch.from_numpy(rng.permutation(DIMENSION) + 1.0)
        for values in (diagonal.importance(), at_random):
            uncoupled += neighbours(diagonal.loss(prefixes(values)))
        for order, values in enumerate((problem.importance(), at_random)):
            by_prefix[order] += neighbours(problem.loss(prefixes(values)))
            held = allocate(values, reputation(rng.uniform(0.5, 1, CLIENTS).tolist(), BETA))
            by_client[order] += count_reversed(reversed_pairs(problem.loss(held), *pairs(held)))
    return QuadraticPairs(ratio, by_prefix[0], by_prefix[1], by_client[0], by_client[1], uncoupled)


def neighbours(losses: Tensor) -> Count:
    """Pairs of neighbouring prefixes, given the losses of prefixes of growing length: in how many the loss rises."""
    longer = torch.arange(1, len(losses))
    return count_reversed(reversed_pairs(losses, longer, longer - 1))


def random_hessian(
    rng: np.random.Generator, size: int, mu: float, smooth: float, *, coupled: bool = True
) -> np.ndarray:
    """A symmetric matrix [size, size] with eigenvalues mu, L and others between them, uniform on a log scale: rotated
    at random, or diagonal if parameters are not to be coupled."""
    values = np.exp(rng.uniform(np.log(mu), np.log(smooth), size))
    values[:2] = mu, smooth
    if not coupled:
        return np.diag(rng.permutation(values))
    rotation, triangle = np.linalg.qr(rng.standard_normal((size, size)))
    rotation = rotation * np.sign(np.diag(triangle))  # so that every rotation is equally likely
    product: np.ndarray = (rotation * values) @ rotation.T
    symmetric: np.ndarray = (product + product.T) / 2
    return symmetric


@dataclass(frozen=True)
class Ridge:
    """Logistic regression with an L2 penalty (ridge) on the digits, at its minimum; an input with its weights plays the
    part of a neuron."""

    ridge: float
    ratio: float  # L / mu
    gradient_norm: float
    prefixes_by_importance: Count
    prefixes_at_random: Count


def ridge_regression(x: Tensor, y: Tensor, ridge: float, orders: int, seed: int) -> Ridge:
    """F = cross-entropy + ridge |W|^2 / 2 is mu-strongly convex with mu = ridge, and L-smooth with
    L = ridge + (largest eigenvalue of X'X/n)/2."""
    x = torch.cat([x, x.new_ones(len(x), 1)], 1)
    features, classes = x.shape[1], int(y.max()) + 1

    def value(weights: Tensor) -> Tensor:
        loss = torch.nn.functional.cross_entropy(x @ weights.view(features, classes), y)
        return loss + ridge * weights.square().sum() / 2

    def value_and_gradient(flat: np.ndarray) -> tuple[float, np.ndarray]:
        point = torch.from_numpy(flat).requires_grad_()
        loss = value(point)
        loss.backward()
        assert point.grad is not None
        return float(loss.detach()), point.grad.numpy()

    settings = {"maxiter": 5000, "maxfun": 10000, "ftol": 0, "gtol": 1e-9, "maxcor": 50}
    flat = minimize(value_and_gradient, np.zeros(features * classes), jac=True, method="L-BFGS-B", options=settings).x
    weights = torch.from_numpy(flat).view(features, classes)

    def losses(held: Tensor) -> Tensor:
        return torch.stack([value(torch.where(row.unsqueeze(1), weights, 0).flatten()) for row in held])

    def with_bias(held: Tensor) -> Tensor:  # every client holds the bias, as in a network
        return torch.cat([held, held.new_ones(len(held), 1)], 1)

    inputs = features - 1
    importance = losses(with_bias(~torch.eye(inputs, dtype=torch.bool))) - value(weights.flatten())
    rng = stream(seed, "theorem 1", "ridge", f"{ridge:g}")
    random_orders = [torch.from_numpy(rng.permutation(inputs)) for _ in range(orders)]
    smooth = ridge + float(torch.linalg.eigvalsh(x.T @ x / len(x))[-1]) / 2
    return Ridge(
        ridge,
        smooth / ridge,
        float(np.linalg.norm(value_and_gradient(flat)[1])),
        neighbours(losses(with_bias(prefixes(importance)))),
        sum((neighbours(losses(with_bias(prefixes(order)))) for order in random_orders), Count()),
    )
