"""Assumptions and conclusions of the theorems, measured on a network that FedSAC has trained on the digits."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsac.compute import evaluation
from fedsac.compute.samples import Samples
from fedsac.config import Config
from fedsac.core.module_layout import perceptron_layout
from fedsac.core.units import Layout
from fedsac.models.network import Network
from fedsac.paper.curvature import Curvature, curvature
from fedsac.paper.theorem1 import Count, gradient_bound, pairs, prefixes
from fedsac.rng import stream
from fedsac.runs.local import LocalEngine
from fedsac.runs.loop import play
from fedsac.runs.prepared import Prepared
from fedsac.runs.running import Running
from fedsac.runs.setup import prepare
from fedsac.runs.start import nobody_absent
from fedsac.runs.watcher import RunInfo, Watcher

DISTANCES_NEURONS = (1, 5, 20)  # by which the lengths of two prefixes differ


@dataclass(frozen=True)
class PairCounts:
    """Pairs of nested submodels on one set of samples: in how many the larger one has the higher loss, in how many the
    lower accuracy; `worst` is the largest such rise of the loss."""

    loss: Count
    accuracy: Count
    worst: float


@dataclass(frozen=True)
class OnSamples:
    """Theorem 1's conclusion on one set of samples and, where F's curvature was measured, its assumptions.

    `near` counts the pairs of neighbouring prefixes for which the gradient exceeds the bound of Eq. 16, with the
    largest eigenvalue of the Hessian for L, the smallest L that is possible.
    """

    name: str
    samples: int
    prefixes: PairCounts
    prefixes_at_random: PairCounts
    clients: PairCounts
    curvature: Curvature | None
    near: Count | None


@dataclass(frozen=True)
class PrefixPairs:
    """Pairs of prefixes whose lengths differ by `neurons`, on the clients' data: all of them, and those that are no
    shorter than the smallest client's submodel."""

    neurons: int
    everywhere: Count
    among_clients: Count


@dataclass(frozen=True)
class NetworkStudy:
    """The network after `rounds` rounds: Theorem 1 on it, and how its clients' submodels meet Assumption 5."""

    rounds: int
    samples: tuple[int, ...]  # n_i
    neurons: int
    parameters: int
    delta: Count
    on: tuple[OnSamples, ...]
    apart: tuple[PrefixPairs, ...]
    shortest: int  # neurons of the smallest client's submodel
    peak_length: int  # of the prefix with the highest loss on the clients' data
    peak_loss: float
    first_loss: float  # of the shortest prefix
    last_loss: float  # of the whole model
    every_round: PairCounts  # pairs of clients after each round, on the clients' data
    held_least: float  # shares of all (client, round) in which a neuron was held: least, median, most
    held_median: float
    held_most: float
    size_shares: tuple[float, ...]  # p_i: mean share of the parameters that client i held


class _AssignmentRecorder(Watcher):
    """Records, round by round, the global model [parameters] and the neurons of each client [clients, neurons]."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self.running: Running | None = None
        self.states: list[tuple[Tensor, Tensor]] = []

    def round(self, run: RunInfo, record: dict[str, Any]) -> None:
        assert self.running is not None
        given, rounds = self.running.assignment, run.config.rounds
        self.states.append((given.models[0], given.neurons))
        if record["round"] % 10 == 0 or record["round"] == rounds:
            self._note(f"network on digits: round {record['round']} of {rounds}")


def train_network(
    rounds: int, hidden: tuple[int, ...], seed: int, note: Callable[[str], None]
) -> tuple[Running, list[tuple[Tensor, Tensor]]]:
    """Train FedSAC on the digits, as `fedsac.run` does, in float64; returns the run and, for each round, the global
    model [parameters] and the neurons that each client holds [clients, neurons]."""
    config = Config(rounds=rounds, eval_every=rounds, hidden=hidden, dtype="float64", threads=1, seed=seed)
    running, watcher = Running(prepare([config])[0]), _AssignmentRecorder(note)
    watcher.running = running
    play([running], LocalEngine(watcher, nobody_absent), watcher)
    return running, watcher.states


def clients_samples(prepared: Prepared) -> Samples:
    """The data of all clients, on which the mean loss is F = sum_i (n_i / n) F_i (Eq. 1)."""
    pool, rows = prepared.clients.pool, torch.from_numpy(np.concatenate(prepared.clients.rows))
    return Samples(pool.x[rows], pool.y[rows], pool.scale, pool.shift)


def inputs(samples: Samples) -> Tensor:
    """The normalised inputs of samples, [n, features]."""
    return samples.x.to(samples.scale.dtype) * samples.scale + samples.shift


def study_network(
    rounds: int, hidden: tuple[int, ...], steps: int, seed: int, note: Callable[[str], None]
) -> NetworkStudy:
    """Train the network, then measure F on the clients' data, which is the theorem's F, on V and on the test set."""
    running, states = train_network(rounds, hidden, seed, note)
    prepared, layout = running.prepared, perceptron_layout(running.prepared.layout)
    model, neurons = states[-1]
    by_importance, shortest = prefixes(running.state["importance"]), int(neurons.sum(1).min())
    training = clients_samples(prepared)
    on, curves = [], []
    for name, samples in (("clients' data", training), ("V", prepared.validation), ("test set", prepared.test)):
        note(f"network on digits: nested submodels, {name}")
        measured = None if name == "test set" else _curvature(layout, model, samples, steps, seed)
        curve = evaluation.evaluate(layout, model.unsqueeze(0), by_importance, samples)
        curves.append(curve[1])
        on.append(
            OnSamples(
                name,
                len(samples.y),
                prefixes=_count_pairs(*curve, *neighbours(curve[1])),
                prefixes_at_random=_random_order(layout, model, samples, seed),
                clients=_clients(layout, model, neurons, samples),
                curvature=measured,
                near=None if measured is None else _beyond_bound(layout, model, by_importance, measured),
            )
        )
    losses = curves[0]
    all_held = torch.stack([held for _, held in states])  # [rounds, clients, neurons]
    shares = all_held.double().mean((0, 1))
    sizes = [[submodel.parameters for submodel in layout.submodels(held)] for _, held in states]
    return NetworkStudy(
        rounds=rounds,
        samples=running.task.samples,
        neurons=layout.neurons,
        parameters=layout.parameters,
        delta=_deltas(layout, model, by_importance),
        on=tuple(on),
        apart=tuple(
            PrefixPairs(gap, rises(losses, gap), rises(losses[shortest - 1 :], gap)) for gap in DISTANCES_NEURONS
        ),
        shortest=shortest,
        peak_length=int(losses.argmax()) + 1,
        peak_loss=float(losses.max()),
        first_loss=float(losses[0]),
        last_loss=float(losses[-1]),
        every_round=_summed([_clients(layout, *state, training) for state in states]),
        held_least=float(shares.min()),
        held_median=float(shares.median()),
        held_most=float(shares.max()),
        size_shares=tuple((torch.tensor(sizes).double().mean(0) / layout.parameters).tolist()),
    )


def neighbours(curve: Tensor) -> tuple[Tensor, Tensor]:
    """Pairs of neighbouring prefixes: indices of the longer and of the shorter one."""
    longer = torch.arange(1, len(curve))
    return longer, longer - 1


def _count_pairs(accuracy: Tensor, loss: Tensor, larger: Tensor, smaller: Tensor) -> PairCounts:
    rise = loss[larger] - loss[smaller]
    return PairCounts(
        loss=Count(len(rise), int((rise > 0).sum())),
        accuracy=Count(len(rise), int((accuracy[larger] < accuracy[smaller]).sum())),
        worst=max([0.0, *rise.tolist()]),
    )


def _random_order(layout: Layout, model: Tensor, samples: Samples, seed: int) -> PairCounts:
    """Pairs of neighbouring prefixes with the neurons in a random order."""
    order = torch.from_numpy(stream(seed, "theorem 1", "network").permutation(layout.neurons))
    accuracy, loss = evaluation.evaluate(layout, model.unsqueeze(0), prefixes(order), samples)
    return _count_pairs(accuracy, loss, *neighbours(loss))


def _clients(layout: Layout, model: Tensor, neurons: Tensor, samples: Samples) -> PairCounts:
    """All pairs of clients whose submodels differ."""
    return _count_pairs(*evaluation.evaluate(layout, model.unsqueeze(0), neurons, samples), *pairs(neurons))


def rises(losses: Tensor, apart: int) -> Count:
    """Pairs of prefixes whose lengths differ by `apart` neurons, given the losses by length: in how many the longer one
    has the higher loss."""
    rise = losses[apart:] > losses[:-apart]
    return Count(len(rise), int(rise.sum()))


def _summed(parts: list[PairCounts]) -> PairCounts:
    loss, accuracy = (sum(counts, Count()) for counts in ([p.loss for p in parts], [p.accuracy for p in parts]))
    return PairCounts(loss, accuracy, max(part.worst for part in parts))


def _curvature(layout: Layout, model: Tensor, samples: Samples, steps: int, seed: int) -> Curvature:
    x = inputs(samples)

    def loss(params: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(Network(layout, params).logits(x), samples.y)

    return curvature(loss, model, steps, seed)


def _beyond_bound(layout: Layout, model: Tensor, held: Tensor, measured: Curvature) -> Count:
    parameters = layout.held(held)
    bound = gradient_bound(model, measured.largest, parameters[1:], parameters[:-1])
    return Count(len(bound), int((measured.gradient_norm > bound).sum()))


def _deltas(layout: Layout, model: Tensor, held: Tensor) -> Count:
    """Pairs of neighbouring prefixes: in how many the larger one is further from the global model (none, by
    construction)."""
    delta = torch.where(layout.held(held), 0, model.square()).sum(1).sqrt()
    return Count(len(delta) - 1, int((delta[1:] > delta[:-1]).sum()))
