"""GTG-Shapley (Liu et al., ACM TIST 2022): Shapley values from the updates of FedAvg's rounds, nothing trained again.

    U_t(S) = score of sum_S n_i theta_i / sum_S n_i, the round's models; U_t() = score of the model before it
    phi_i  = sum_t mean over orders of U_t(those before i, and i) - U_t(those before i)

A round whose whole gain is below `SKIP` counts for nobody. With up to `EXACT` clients all coalitions are evaluated;
with more, orders are drawn, each client first in as many as any other, and an order is cut off (truncated) where less
than `TRUNCATE` is left to gain. In place of the paper's test of convergence, the number of orders is fixed.
"""

from collections.abc import Callable
from math import comb

import numpy as np

from fedsac.compute.samples import Samples
from fedsac.contributions.coalitions import Coalitions
from fedsac.contributions.fedavg_rounds import fedavg
from fedsac.contributions.measurement import Measurement
from fedsac.rng import stream

SKIP = TRUNCATE = 1e-3  # of the score: the values in the authors' code
EXACT = 6  # clients: 64 coalitions, fewer than the orders would visit
ORDERS = 100  # at least: then up to a whole number for each client to be first in

Utility = Callable[[np.ndarray], np.ndarray]
"""The worth of each coalition, from boolean [S, n] to float64 [S]."""


def measure(run: Measurement, on: Samples) -> tuple[float, ...]:
    """Each client's Shapley value, summed over FedAvg's rounds; the utility is the score `on` these samples."""
    values = np.zeros(len(run.clients.names))
    for (played,) in fedavg([run.clients], run):
        n = len(played.clients)
        utility = Coalitions(run.clients.layout, played, on, run.metric)
        nobody, everybody = utility(np.array([[False] * n, [True] * n]))
        if abs(everybody - nobody) < SKIP:
            continue
        if n <= EXACT:
            found = exact(utility, n)
        else:
            # Drawn over sorted names, so that the draw does not depend on the order of the clients.
            sorted_by_name = np.argsort([run.clients.names[i] for i in played.clients])
            drawn = orders(n, ORDERS, stream(run.clients.seed, "shapley", played.number))
            found = sampled(utility, sorted_by_name[drawn], TRUNCATE)
        values[list(played.clients)] += found
    return tuple(values.tolist())


def exact(utility: Utility, n: int) -> np.ndarray:
    """Shapley values [n] from the worth of all 2^n coalitions.

    >>> exact(lambda s: np.array([float(a and (b or c)) for a, b, c in s]), 3).round(6).tolist()
    [0.666667, 0.166667, 0.166667]
    """
    number = np.arange(2**n)
    inside = (number[:, None] >> np.arange(n) & 1).astype(bool)
    worth, size = utility(inside), inside.sum(1)
    # |S|! (n - |S| - 1)! / n! for a coalition S that the client is not in; the full one is never such.
    weight = np.array([1 / (n * comb(n - 1, k)) for k in range(n)])
    values = np.empty(n)
    for i in range(n):
        without = number[~inside[:, i]]
        values[i] = weight[size[without]] @ (worth[without | 1 << i] - worth[without])
    return values


def orders(n: int, least: int, rng: np.random.Generator) -> np.ndarray:
    """Orders [at least `least`, n] of n clients: every client is first equally often, the others follow at random.

    Guided in this way a draw is still fair: the mean over all orders is the mean over who is first.
    """
    drawn = []
    for _ in range(-(-least // n)):
        for first in range(n):
            rest = np.delete(np.arange(n), first)
            drawn.append(np.concatenate([[first], rng.permutation(rest)]))
    return np.array(drawn)


def sampled(utility: Utility, orders: np.ndarray, truncate: float) -> np.ndarray:
    """Shapley values [n] estimated from `orders` [m, n]; all orders are walked side by side, a place at a time."""
    count, n = orders.shape
    known: dict[bytes, float] = {}

    def worth(coalitions: np.ndarray) -> np.ndarray:
        keys = [row.tobytes() for row in coalitions]
        new = [key for key in dict.fromkeys(keys) if key not in known]
        if new:
            rows = np.array([np.frombuffer(key, dtype=bool) for key in new])
            known.update(zip(new, utility(rows).tolist(), strict=True))
        return np.array([known[key] for key in keys])

    joined = np.zeros((count, n), dtype=bool)
    goal, before = worth(np.ones((1, n), dtype=bool)), worth(joined)
    values = np.zeros(n)
    for who in orders.T:
        joined[np.arange(count), who] = True
        going = np.abs(goal - before) >= truncate
        after = before.copy()
        after[going] = worth(joined[going])
        np.add.at(values, who, after - before)
        before = after
    return values / count
