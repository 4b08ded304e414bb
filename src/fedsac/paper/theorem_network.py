"""What the theorems assume and conclude, measured on a network that FedSAC has trained on the digits."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsac.compute import evaluation
from fedsac.compute.samples import Samples
from fedsac.config import Config
from fedsac.core.units import Layout
from fedsac.models.network import Network
from fedsac.paper.curvature import Curvature, curvature
from fedsac.paper.theorem1 import Count, nearness, pairs, prefixes
from fedsac.rng import stream
from fedsac.runs.local import LocalEngine
from fedsac.runs.loop import play
from fedsac.runs.running import Running
from fedsac.runs.setup import Prepared, prepare
from fedsac.runs.start import nobody_absent
from fedsac.runs.watcher import RunInfo, Watcher

APART = (1, 5, 20)  # neurons


@dataclass(frozen=True)
class Ordered:
    """Pairs of nested submodels on one set of samples: where the larger one has the higher loss, or is less
    accurate; `worst` is the largest such rise of the loss."""

    loss: Count
    accuracy: Count
    worst: float


@dataclass(frozen=True)
class OnSamples:
    """Theorem 1's conclusion on one set of samples; where F's curvature was measured, its assumptions, too.

    `near` counts the pairs of neighbouring prefixes whose bound on the gradient (Eq. 16) is exceeded, with the largest
    eigenvalue of the Hessian for L: no smaller L could do.
    """

    name: str
    samples: int
    prefixes: Ordered
    prefixes_at_random: Ordered
    clients: Ordered
    curvature: Curvature | None
    near: Count | None


@dataclass(frozen=True)
class Apart:
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
    apart: tuple[Apart, ...]
    shortest: int  # neurons of the smallest client's submodel
    peak_length: int  # of the prefix with the highest loss on the clients' data
    peak_loss: float
    first_loss: float  # of the shortest prefix
    last_loss: float  # of the whole model
    every_round: Ordered  # pairs of clients after each round, on the clients' data
    held_least: float  # shares of all (client, round) in which a neuron was held: least, median, most
    held_median: float
    held_most: float
    size_shares: tuple[float, ...]  # p_i: mean share of the parameters that client i held


class _Holders(Watcher):
    """Keeps, round by round, the global model and who holds what of it."""

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


def trained(
    rounds: int, hidden: tuple[int, ...], seed: int, note: Callable[[str], None]
) -> tuple[Running, list[tuple[Tensor, Tensor]]]:
    """FedSAC on the digits, as `fedsac.run` does it, in float64; and after each round the global model [parameters]
    and what everybody held of it [clients, neurons]."""
    config = Config(rounds=rounds, eval_every=rounds, hidden=hidden, dtype="float64", threads=1, seed=seed)
    running, watcher = Running(prepare([config])[0]), _Holders(note)
    watcher.running = running
    play([running], LocalEngine(watcher, nobody_absent), watcher)
    return running, watcher.states


def clients_samples(prepared: Prepared) -> Samples:
    """The data of all clients together, on which the mean loss is F = sum_i (n_i / n) F_i (Eq. 1)."""
    pool, rows = prepared.clients.pool, torch.from_numpy(np.concatenate(prepared.clients.rows))
    return Samples(pool.x[rows], pool.y[rows], pool.scale, pool.shift)


def inputs(samples: Samples) -> Tensor:
    """Samples as the network sees them, [n, features]."""
    return samples.x.to(samples.scale.dtype) * samples.scale + samples.shift


def study_network(
    rounds: int, hidden: tuple[int, ...], steps: int, seed: int, note: Callable[[str], None]
) -> NetworkStudy:
    """Train, then measure: F on the clients' data, which the theorem speaks of, on V and on the test set."""
    running, states = trained(rounds, hidden, seed, note)
    prepared, layout = running.prepared, running.prepared.layout
    model, neurons = states[-1]
    by_importance, shortest = prefixes(running.state["importance"]), int(neurons.sum(1).min())
    training = clients_samples(prepared)
    found, curves = [], []
    for name, samples in (("clients' data", training), ("V", prepared.validation), ("test set", prepared.test)):
        note(f"network on digits: nested submodels, {name}")
        bent = None if name == "test set" else _bent(layout, model, samples, steps, seed)
        curve = evaluation.evaluate(layout, model.unsqueeze(0), by_importance, samples)
        curves.append(curve[1])
        found.append(
            OnSamples(
                name,
                len(samples.y),
                prefixes=_ordered(*curve, *neighbours(curve[1])),
                prefixes_at_random=_shuffled(layout, model, samples, seed),
                clients=_clients(layout, model, neurons, samples),
                curvature=bent,
                near=None if bent is None else _near(layout, model, by_importance, bent),
            )
        )
    losses = curves[0]
    everybody = torch.stack([held for _, held in states])
    shares = everybody.double().mean((0, 1))
    sizes = [[submodel.parameters for submodel in layout.submodels(held)] for _, held in states]
    return NetworkStudy(
        rounds=rounds,
        samples=running.task.samples,
        neurons=layout.neurons,
        parameters=layout.parameters,
        delta=_deltas(layout, model, by_importance),
        on=tuple(found),
        apart=tuple(Apart(gap, rises(losses, gap), rises(losses[shortest - 1 :], gap)) for gap in APART),
        shortest=shortest,
        peak_length=int(losses.argmax()) + 1,
        peak_loss=float(losses.max()),
        first_loss=float(losses[0]),
        last_loss=float(losses[-1]),
        every_round=_together([_clients(layout, *state, training) for state in states]),
        held_least=float(shares.min()),
        held_median=float(shares.median()),
        held_most=float(shares.max()),
        size_shares=tuple((torch.tensor(sizes).double().mean(0) / layout.parameters).tolist()),
    )


def neighbours(curve: Tensor) -> tuple[Tensor, Tensor]:
    """Every prefix but the first, and the one before it."""
    longer = torch.arange(1, len(curve))
    return longer, longer - 1


def _ordered(accuracy: Tensor, loss: Tensor, larger: Tensor, smaller: Tensor) -> Ordered:
    rise = loss[larger] - loss[smaller]
    return Ordered(
        loss=Count(len(rise), int((rise > 0).sum())),
        accuracy=Count(len(rise), int((accuracy[larger] < accuracy[smaller]).sum())),
        worst=max([0.0, *rise.tolist()]),
    )


def _shuffled(layout: Layout, model: Tensor, samples: Samples, seed: int) -> Ordered:
    """Neighbouring prefixes where the neurons stand in a random order."""
    order = torch.from_numpy(stream(seed, "theorem 1", "network").permutation(layout.neurons))
    accuracy, loss = evaluation.evaluate(layout, model.unsqueeze(0), prefixes(order), samples)
    return _ordered(accuracy, loss, *neighbours(loss))


def _clients(layout: Layout, model: Tensor, neurons: Tensor, samples: Samples) -> Ordered:
    """All pairs of clients whose submodels differ."""
    return _ordered(*evaluation.evaluate(layout, model.unsqueeze(0), neurons, samples), *pairs(neurons))


def rises(losses: Tensor, apart: int) -> Count:
    """Losses of prefixes, by length: how often one that is `apart` neurons longer has the higher loss."""
    rise = losses[apart:] > losses[:-apart]
    return Count(len(rise), int(rise.sum()))


def _together(parts: list[Ordered]) -> Ordered:
    loss, accuracy = (sum(counts, Count()) for counts in ([p.loss for p in parts], [p.accuracy for p in parts]))
    return Ordered(loss, accuracy, max(part.worst for part in parts))


def _bent(layout: Layout, model: Tensor, samples: Samples, steps: int, seed: int) -> Curvature:
    x = inputs(samples)

    def loss(params: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(Network(layout, params).logits(x), samples.y)

    return curvature(loss, model, steps, seed)


def _near(layout: Layout, model: Tensor, held: Tensor, bent: Curvature) -> Count:
    parameters = layout.held(held)
    bound = nearness(model, bent.largest, parameters[1:], parameters[:-1])
    return Count(len(bound), int((bent.gradient_norm > bound).sum()))


def _deltas(layout: Layout, model: Tensor, held: Tensor) -> Count:
    """Neighbouring prefixes in which the larger one is further from the global model: none, by construction."""
    delta = torch.where(layout.held(held), 0, model.square()).sum(1).sqrt()
    return Count(len(delta) - 1, int((delta[1:] > delta[:-1]).sum()))
