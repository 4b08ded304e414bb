"""GTG-Shapley (Liu et al., ACM TIST 2022): Shapley values from the updates of FedAvg's rounds, nothing trained again.

    U_t(S) = score of sum_S n_i theta_i / sum_S n_i, the round's models; U_t() = score of the model before it
    phi_i  = sum_t mean over orders of U_t(those before i, and i) - U_t(those before i)

A round that changes the score by less than `SKIP_GAIN` is skipped. With up to `EXACT_CLIENTS` clients all coalitions
are evaluated; with more, random orders are drawn, each client first in as many as any other, and an order is truncated
where less than `TRUNCATE_GAIN` is left to gain. In place of the paper's test of convergence, the number of orders is
fixed.
"""

from collections.abc import Callable
from math import comb

import numpy as np

from fedsac.compute.samples import Samples
from fedsac.contributions.coalitions import CoalitionScores
from fedsac.contributions.fedavg_rounds import train_fedavg
from fedsac.contributions.measurement import Measurement
from fedsac.rng import stream

SKIP_GAIN = TRUNCATE_GAIN = 1e-3  # differences of the score: the values in the authors' code
EXACT_CLIENTS = 6  # they have 64 coalitions, fewer than the random orders would evaluate
MIN_ORDERS = 100  # rounded up to a multiple of the number of clients

Utility = Callable[[np.ndarray], np.ndarray]
"""The utilities of S coalitions of n clients: from their members, boolean [S, n], to float64 [S]."""


def measure(run: Measurement, on: Samples) -> tuple[float, ...]:
    """Each client's Shapley value, summed over rounds of FedAvg; the utility is the score `on` these samples."""
    values = np.zeros(len(run.clients.names))
    for (fedavg_round,) in train_fedavg([run.clients], run):
        n = len(fedavg_round.clients)
        utility = CoalitionScores(run.clients.layout, fedavg_round, on, run.metric)
        nobody, everybody = utility(np.array([[False] * n, [True] * n]))
        if abs(everybody - nobody) < SKIP_GAIN:
            continue
        if n <= EXACT_CLIENTS:
            shapley_values = exact_shapley(utility, n)
        else:
            # Drawn over names in sorted order, so that the draw does not depend on the order of the clients.
            sorted_by_name = np.argsort([run.clients.names[i] for i in fedavg_round.clients])
            drawn = draw_orders(n, MIN_ORDERS, stream(run.clients.seed, "shapley", fedavg_round.number))
            shapley_values = sampled_shapley(utility, sorted_by_name[drawn], TRUNCATE_GAIN)
        values[list(fedavg_round.clients)] += shapley_values
    return tuple(values.tolist())


def exact_shapley(utility: Utility, n: int) -> np.ndarray:
    """Shapley values [n] from the utilities of all 2^n coalitions.

    >>> exact_shapley(lambda s: np.array([float(a and (b or c)) for a, b, c in s]), 3).round(6).tolist()
    [0.666667, 0.166667, 0.166667]
    """
    number = np.arange(2**n)
    inside = (number[:, None] >> np.arange(n) & 1).astype(bool)
    worth, size = utility(inside), inside.sum(1)
    # |S|! (n - |S| - 1)! / n! for a coalition S without the client, so of at most n - 1 members.
    weight = np.array([1 / (n * comb(n - 1, k)) for k in range(n)])
    values = np.empty(n)
    for i in range(n):
        without = number[~inside[:, i]]
        values[i] = weight[size[without]] @ (worth[without | 1 << i] - worth[without])
    return values


def draw_orders(n: int, least: int, rng: np.random.Generator) -> np.ndarray:
    """Random orders of n clients, [at least `least`, n]: every client is first equally often, the others follow at
    random.

    The estimate stays unbiased: over all orders, too, every client is first equally often.
    """
    drawn = []
    for _ in range(-(-least // n)):
        for first in range(n):
            rest = np.delete(np.arange(n), first)
            drawn.append(np.concatenate([[first], rng.permutation(rest)]))
    return np.array(drawn)


def sampled_shapley(utility: Utility, orders: np.ndarray, truncate: float) -> np.ndarray:
    """Shapley values [n] estimated from `orders` [m, n]. Clients join position by position, in all orders at once; an
    order is truncated where less than `truncate` is left to gain."""
    count, n = orders.shape
    cache: dict[bytes, float] = {}

    def worth(coalitions: np.ndarray) -> np.ndarray:
        keys = [row.tobytes() for row in coalitions]
        new = [key for key in dict.fromkeys(keys) if key not in cache]
        if new:
            rows = np.array([np.frombuffer(key, dtype=bool) for key in new])
            cache.update(zip(new, utility(rows).tolist(), strict=True))
        return np.array([cache[key] for key in keys])

    joined = np.zeros((count, n), dtype=bool)
    goal, before = worth(np.ones((1, n), dtype=bool)), worth(joined)
    values = np.zeros(n)
    for who in orders.T:
        joined[np.arange(count), who] = True
        untruncated = np.abs(goal - before) >= truncate
        after = before.copy()
        after[untruncated] = worth(joined[untruncated])
        np.add.at(values, who, after - before)
        before = after
    means: np.ndarray = values / count
    return means
