"""A federation small enough to follow with a pencil: three clients, twelve parameters, updates made by hand.

Beside it, the protocol's formulas once more in plain loops over Python's own numbers, written from its text: one
network, one sample, one entry at a time. Vectors are lists; nothing here comes from the package but the types it is
handed.
"""

from collections.abc import Sequence
from itertools import pairwise
from math import ceil, exp, log, sqrt

import torch

from fedsac.compute.samples import Samples
from fedsac.core.units import Layout
from fedsac.methods.base import Method, State, Task, Updates

SIZES = (2, 2, 2)
# In the order of the layout: the first layer's weights by input (to neuron 0, to neuron 1), its biases, the second's.
INITIAL = [0.5, -0.4, 0.3, 0.8, 0.1, -0.1, 0.7, -0.6, -0.2, 0.9, 0.05, -0.05]
# What each client adds to the model it received: [round][client].
STEPS = [
    [
        [0.30, -0.10, 0.02, 0.05, 0.40, -0.20, 0.11, 0.07, -0.33, 0.21, 0.15, -0.12],
        [0.20, 0.15, -0.06, 0.12, -0.10, 0.35, 0.28, -0.17, 0.09, 0.31, -0.04, 0.22],
        [0.25, -0.05, 0.14, -0.22, 0.18, 0.06, -0.13, 0.45, -0.19, 0.08, 0.27, 0.03],
    ],
    [
        [-0.12, 0.31, 0.08, 0.17, 0.05, -0.26, 0.34, -0.02, 0.13, -0.21, 0.19, 0.07],
        [0.16, 0.23, -0.11, 0.04, -0.29, 0.14, 0.25, 0.10, -0.36, 0.03, 0.02, -0.24],
        [0.09, 0.28, 0.21, -0.13, 0.07, -0.32, 0.15, -0.27, 0.06, -0.18, -0.11, 0.20],
    ],
]
CONTRIBUTIONS = (0.3, 0.4, 0.5)
SAMPLES = (10, 30, 60)
SCALE, SHIFT = (0.5, 0.25), (-1.0, -0.75)
# The server's validation set as it is stored: 150 points on a grid, that is two batches of 64 and a short one.
POINTS = [[i % 11 * 0.5, i % 7 * 1.0] for i in range(150)]
LABELS = [int(3 * x + 2 * y > 15) if i % 9 else i % 2 for i, (x, y) in enumerate(POINTS)]


def task(sizes: Sequence[int] = SIZES, initial: Sequence[float] = INITIAL, **changes: object) -> Task:
    """The task of this federation, in float64."""
    double = torch.float64
    seen = Samples(
        torch.tensor(POINTS, dtype=double),
        torch.tensor(LABELS),
        torch.tensor([SCALE], dtype=double),
        torch.tensor([SHIFT], dtype=double),
    )
    settings = {"contributions": CONTRIBUTIONS, "samples": SAMPLES, "size_shares": (1 / 6, 0.5, 1.0)}
    return Task(
        layout=Layout(tuple(sizes)),
        initial=torch.tensor(initial, dtype=double),
        clients=("ann", "ben", "cem"),
        validation=seen,
        **settings | {"rounds": 2, "seed": 0, "lr": 0.1} | changes,  # type: ignore[arg-type]
    )


def answer(
    method: Method, given: Task, state: State, round: int, steps: dict[int, list[float]], **told: object
) -> State:
    """The state after a round in which the clients named in `steps` train: each adds its step to what it was given."""
    rewards = method.assign(given, state)
    received = rewards.models.expand(len(given.clients), -1)
    held = given.layout.held(rewards.neurons)
    who = tuple(steps)
    learned = torch.tensor([steps[i] for i in who], dtype=torch.float64).view(len(who), held.shape[1])
    # A client cannot train what it does not hold; what lies there must not matter.
    params = torch.where(held[list(who)], received[list(who)] + learned, -99.0)
    return method.learn(given, state, Updates(round, who, params, rewards, **told))  # type: ignore[arg-type]


def rounds(method: Method, given: Task, steps: list[list[list[float]]] = STEPS, **told: object) -> list[State]:
    """The state at the start and after each round that everybody answers."""
    states = [method.start(given)]
    for round, own in enumerate(steps):
        states.append(answer(method, given, states[-1], round, dict(enumerate(own)), **told))
    return states


# --- the formulas, one number at a time


def add(*vectors: Sequence[float]) -> list[float]:
    return [sum(entries) for entries in zip(*vectors, strict=True)]


def times(factor: float, vector: Sequence[float]) -> list[float]:
    return [factor * entry for entry in vector]


def weighted(weights: Sequence[float], vectors: Sequence[Sequence[float]]) -> list[float]:
    return add(*(times(w, v) for w, v in zip(weights, vectors, strict=True)))


def length(vector: Sequence[float]) -> float:
    return sqrt(sum(entry**2 for entry in vector))


def cosine(a: Sequence[float], b: Sequence[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True)) / (length(a) * length(b))


def shares(values: Sequence[float]) -> list[float]:
    return [value / sum(values) for value in values]


def tensors(sizes: Sequence[int] = SIZES) -> list[range]:
    """The entries of each weight and each bias."""
    found, start = [], 0
    for n in [n for a, b in pairwise(sizes) for n in (a * b, b)]:
        found.append(range(start, start + n))
        start += n
    return found


def keep(update: Sequence[float], q: float, sizes: Sequence[int] = SIZES) -> list[float]:
    """Per tensor of n entries the k = ceil(n max(0, q)) largest by magnitude, ties kept, k at most n - 1."""
    kept = [0.0] * len(update)
    for entries in tensors(sizes):
        k = min(ceil(len(entries) * max(0.0, q)), len(entries) - 1)
        for p in entries:
            larger = sum(abs(update[o]) > abs(update[p]) for o in entries)
            if larger < k:
                kept[p] = update[p]
    return kept


def scores(params: Sequence[float], point: Sequence[float], without: Sequence[int] = (), sizes=SIZES) -> list[float]:
    """The outputs for one stored point, with some hidden neurons silenced (numbered through the layers)."""
    values = [x * a + b for x, a, b in zip(point, SCALE, SHIFT, strict=True)]
    start = neuron = 0
    for layer, (fan_in, fan_out) in enumerate(pairwise(sizes)):
        bias = start + fan_in * fan_out
        new = [
            sum(values[i] * params[start + i * fan_out + j] for i in range(fan_in)) + params[bias + j]
            for j in range(fan_out)
        ]
        start = bias + fan_out
        if layer < len(sizes) - 2:
            new = [0.0 if neuron + j in without else max(0.0, value) for j, value in enumerate(new)]
            neuron += fan_out
        values = new
    return values


def losses(params: Sequence[float], without: Sequence[int] = (), sizes=SIZES) -> list[float]:
    """Cross-entropy on each sample of V."""
    found = []
    for point, label in zip(POINTS, LABELS, strict=True):
        out = scores(params, point, without, sizes)
        found.append(log(sum(exp(s) for s in out)) - out[label])
    return found


def accuracy(params: Sequence[float], without: Sequence[int] = (), sizes=SIZES) -> float:
    right = 0
    for point, label in zip(POINTS, LABELS, strict=True):
        out = scores(params, point, without, sizes)
        right += out.index(max(out)) == label
    return right / len(LABELS)


def holds(neurons: Sequence[int], sizes: Sequence[int]) -> list[bool]:
    """Which parameters belong to some hidden neurons: a weight when both its ends do, a bias when its neuron does."""
    ends = [set(range(sizes[0]))]
    first = 0
    for width in sizes[1:-1]:
        ends.append({n - first for n in neurons if first <= n < first + width})
        first += width
    ends.append(set(range(sizes[-1])))
    held = []
    for (inputs, outputs), (fan_in, fan_out) in zip(pairwise(ends), pairwise(sizes), strict=True):
        held += [i in inputs and j in outputs for i in range(fan_in) for j in range(fan_out)]
        held += [j in outputs for j in range(fan_out)]
    return held


def merged(models: Sequence[Sequence[float]], held: Sequence[Sequence[bool]], previous: Sequence[float]) -> list[float]:
    """The mean of each parameter over those who held it; one that nobody held stays."""
    new = []
    for p, old in enumerate(previous):
        own = [model[p] for model, mine in zip(models, held, strict=True) if mine[p]]
        new.append(sum(own) / len(own) if own else old)
    return new
