"""Theorem 2 (convergence), tested on quadratics whose optimum, constants and limit points are known.

The theorem: under L-smoothness, mu-strong convexity, gradient noise of variance sigma_i^2 and gradients bounded by G
(Assumptions 1 to 4), neurons allotted equally often (Assumption 5), and eta_t = 2 / (mu (gamma + t)) with
gamma = max(8 L/mu, E) - 1,

    E F(theta_T) - F* <= L / (gamma + T) (2 B / mu^2 + (gamma + 1) / 2 Delta_1),
    B = sum_i w_i^2 sigma_i^2 + 6 L Gamma + 8 (E - 1)^2 G^2,    Gamma = F* - sum_i w_i F_i*.

T counts SGD steps from t = 1. The paper writes 1/p_i for the weights w_i; the proof needs them to add up to 1, as in
FedAvg's analysis that it follows, so they are 1/N here, which is Eq. 9 where every client holds the whole model.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from scipy.linalg import solve_discrete_lyapunov
from torch import Tensor

from fedsac.core.aggregation import aggregate_unchecked
from fedsac.core.allocation import allocate, reputation
from fedsac.paper.theorem1 import random_hessian
from fedsac.rng import stream

CLIENTS = 10
DIMENSION = 10
MU, SMOOTH = 1.0, 4.0
NOISE = 0.5  # standard deviation of each entry of a stochastic gradient: sigma_i^2 = DIMENSION NOISE^2
SPREAD = 0.5  # standard deviation of the clients' optima around their common centre, where they differ
BETA = 5.0
RUNS = 16  # of the same problem with other noise; expectations are estimated by means over them

EVERYTHING, NESTED, ALLOTTED, TURNING = "everything", "nested", "allotted", "turning"
HOLDINGS = {
    EVERYTHING: "everybody holds everything",
    NESTED: "nested submodels, cut once",
    ALLOTTED: "nested submodels, cut every round by importance (FedSAC)",
    TURNING: "nested submodels, each parameter held equally often (Assumption 5)",
}


@dataclass(frozen=True)
class Problem:
    """F = sum_i F_i / N with F_i(theta) = (theta - a_i)' A_i (theta - a_i) / 2: A [N, d, d], a [N, d]."""

    hessians: Tensor
    optima: Tensor

    @cached_property
    def hessian(self) -> Tensor:
        return self.hessians.mean(0)

    @cached_property
    def best(self) -> Tensor:
        """theta*, the minimum of F."""
        target = torch.einsum("nij,nj->i", self.hessians, self.optima) / len(self.optima)
        solution: Tensor = torch.linalg.solve(self.hessian, target)
        return solution

    def gap(self, models: Tensor) -> Tensor:
        """F - F* of models [..., d]."""
        difference = models - self.best
        return ((difference @ self.hessian) * difference).sum(-1) / 2

    @property
    def least(self) -> float:
        """F*. Every F_i* is 0, so this is Gamma, too."""
        difference = self.best - self.optima
        return float(torch.einsum("ni,nij,nj->", difference, self.hessians, difference) / (2 * len(difference)))

    def weighted_gap(self, samples: Sequence[int]) -> float:
        """How far theta*, the optimum of the unweighted mean, is above the optimum of sum_i (n_i / n) F_i (Eq. 1)."""
        weighted = self.hessians * (torch.tensor(samples, dtype=torch.float64) / sum(samples)).view(-1, 1, 1)
        total = weighted.sum(0)
        difference = self.best - torch.linalg.solve(total, torch.einsum("nij,nj->i", weighted, self.optima))
        return float(difference @ total @ difference) / 2

    def importance(self, models: Tensor) -> Tensor:
        """Rise of F when each parameter of models [..., d] is set to 0 (Eq. 3)."""
        return models * ((self.best - models) @ self.hessian) + self.hessian.diagonal() * models.square() / 2

    def limit(self, held: Tensor) -> Tensor:
        """The limit of local SGD with decreasing steps when the submodels `held` [rounds, N, d] are assigned in turn,
        over and over: the point at which the holders' gradients, each at its own submodel, average to 0."""
        mask = held.to(self.optima.dtype)
        share = 1 / mask.sum(1)
        matrix = torch.einsum("rj,rnj,njk,rnk->jk", share, mask, self.hessians, mask)
        target = torch.einsum("rj,rnj,njk,nk->j", share, mask, self.hessians, self.optima)
        solution: Tensor = torch.linalg.solve(matrix, target)
        return solution


def problem(seed: int, *, coupled: bool, differ: bool) -> Problem:
    """Ten clients with Hessians of their own, eigenvalues MU to SMOOTH; whether parameters are coupled and whether the
    clients' optima differ are what the study varies."""
    rng = stream(seed, "theorem 2", "problem")
    optima = rng.standard_normal(DIMENSION) + SPREAD * differ * rng.standard_normal((CLIENTS, DIMENSION))
    hessians = [random_hessian(rng, DIMENSION, MU, SMOOTH, coupled=coupled) for _ in range(CLIENTS)]
    return Problem(torch.from_numpy(np.stack(hessians)), torch.from_numpy(optima))


def reputations() -> Tensor:
    """The reputations of ten clients with contributions evenly spaced from .6 to .95."""
    return reputation(np.linspace(0.6, 0.95, CLIENTS).tolist(), BETA)


def submodels(task: Problem, holding: str) -> Tensor:
    """Which parameters the clients hold, [rounds, N, d], in a cycle of rounds that is repeated."""
    if holding == EVERYTHING:
        return torch.ones(1, CLIENTS, DIMENSION, dtype=torch.bool)
    nested = allocate(task.importance(task.best), reputations())
    if holding == TURNING:
        # The order is rotated by one each round, so that in DIMENSION rounds every parameter has every rank once.
        return torch.stack([nested.roll(shift, 1) for shift in range(DIMENSION)])
    return nested.unsqueeze(0)


@dataclass(frozen=True)
class Trajectory:
    """F - F* (mean over runs) after these numbers of steps, at synchronisations; `gradient` is the largest mean square
    norm of a stochastic gradient that occurred: the G^2 of Assumption 4."""

    steps: tuple[int, ...]
    gaps: tuple[float, ...]
    gradient: float

    @property
    def slope(self) -> float:
        """The slope of log(F - F*) against log T, over the last factor of 10 in T."""
        steps, gaps = np.array(self.steps, dtype=float), np.array(self.gaps)
        late = steps >= steps[-1] / 10
        return float(np.polyfit(np.log(steps[late]), np.log(gaps[late]), 1)[0])

    def settled(self) -> float:
        """F - F*, mean over the last half of the steps."""
        late = [gap for step, gap in zip(self.steps, self.gaps, strict=True) if step > self.steps[-1] / 2]
        return sum(late) / len(late)


def decreasing_rate(local_steps: int) -> Callable[[int], float]:
    """The theorem's learning rate, eta_t = 2 / (mu (gamma + t))."""
    gamma = rate_offset(local_steps)
    return lambda t: 2 / (MU * (gamma + t))


def rate_offset(local_steps: int) -> float:
    """gamma = max(8 L/mu, E) - 1."""
    return max(8 * SMOOTH / MU, local_steps) - 1


def local_sgd(
    task: Problem,
    holding: str,
    rate: Callable[[int], float],
    *,
    steps: int,
    local_steps: int,
    seed: int,
    noise: float = NOISE,
    at_rounds: Sequence[int] | None = None,
) -> Trajectory:
    """Local SGD from theta = 0 with Eq. 9's aggregation, RUNS times at once; F - F* is recorded after about 60 rounds,
    evenly spaced on a log scale, or after the rounds in `at_rounds`."""
    rng = stream(seed, "theorem 2", "noise")
    rounds = steps // local_steps
    recorded = set(np.geomspace(1, rounds, 60).round().astype(int).tolist() if at_rounds is None else at_rounds)
    cycle = submodels(task, holding).unsqueeze(2).expand(-1, -1, RUNS, -1)
    shared = torch.zeros(RUNS, DIMENSION, dtype=torch.float64)
    optima = task.optima.unsqueeze(1)
    squares, at, gaps, t = 0.0, [], [], 0
    for round in range(1, rounds + 1):
        held = _fedsac_allocation(task, shared) if holding == ALLOTTED else cycle[round % len(cycle)]
        local = torch.where(held, shared, 0)
        drawn = torch.from_numpy(rng.standard_normal((local_steps, *local.shape))).mul_(noise)
        for disturbance in drawn:
            t += 1
            gradient = torch.where(held, torch.bmm(local - optima, task.hessians) + disturbance, 0)
            squares = max(squares, float(gradient.square().sum(2).mean(1).max()))
            local = local - rate(t) * gradient
        # Runs are appended as if they were further parameters: Eq. 9 treats each parameter separately.
        shared = aggregate_unchecked(local.flatten(1), held.flatten(1), shared.flatten()).view_as(shared)
        if round in recorded:
            at.append(t + 1)  # the start is theta_1
            gaps.append(float(task.gap(shared).mean()))
    return Trajectory(tuple(at), tuple(gaps), squares)


def _fedsac_allocation(task: Problem, models: Tensor) -> Tensor:
    """The parameters that FedSAC assigns to each client now, for each run: [N, runs, d]."""
    earned = reputations()
    return torch.stack([allocate(values, earned) for values in task.importance(models)], 1)


def bound(task: Problem, steps: Sequence[int], local_steps: int, gradient: float) -> tuple[float, ...]:
    """The theorem's bound on F(theta_T) - F* for each T in `steps`, from theta_1 = 0, where clients hold everything."""
    variance = DIMENSION * NOISE**2 / CLIENTS
    b = variance + 6 * SMOOTH * task.least + 8 * (local_steps - 1) ** 2 * gradient
    gamma, difference = rate_offset(local_steps), float(task.best.square().sum())
    return tuple(SMOOTH / (gamma + t) * (2 * b / MU**2 + (gamma + 1) / 2 * difference) for t in steps)


def constant_rate(task: Problem, rate: float, local_steps: int) -> tuple[float, float]:
    """The limit of E F - F* with a constant learning rate when everybody holds everything, exactly; and the part of it
    that remains without noise, because clients drift to their own optima between synchronisations.

    One round is theta <- P theta + q + noise of covariance Q: the mean ends at (1 - P)^-1 q, the covariance solves
    S = P S P' + Q.
    """
    identity = torch.eye(DIMENSION, dtype=torch.float64)
    powers = [torch.linalg.matrix_power(identity - rate * task.hessians, k) for k in range(local_steps + 1)]
    p = powers[-1].mean(0)
    q = torch.einsum("nij,nj->i", identity - powers[-1], task.optima) / CLIENTS
    drift = float(task.gap(torch.linalg.solve(identity - p, q)))
    noise = (rate * NOISE / CLIENTS) ** 2 * torch.stack([power @ power for power in powers[:-1]]).sum((0, 1))
    covariance = solve_discrete_lyapunov(p.numpy(), noise.numpy())
    return drift + float(np.trace(task.hessian.numpy() @ covariance)) / 2, drift
