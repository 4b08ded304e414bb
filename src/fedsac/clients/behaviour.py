"""What clients do beside training honestly: stay away, answer late, attack.

A behaviour is a function of round, client and update, asked for every client after it has trained: it returns the model
[parameters] that the client sends back (`update.trained` is the honest answer) or None, if it sends nothing. How to
write one is in docs/extending.md.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from fedsac.clients.population import Clients
from fedsac.doors import BEHAVIOURS
from fedsac.errors import FedsacError
from fedsac.methods.base import Assignment, State
from fedsac.rng import stream


@dataclass(frozen=True)
class Update:
    """What a behaviour may look at. All models are [parameters]; entries outside the client's neurons have no meaning.

    `received` is the model the client was given, `trained` what honest training made of it; both are copies, the
    client's own. An attacker may know more: `everyone` [N, parameters] are all clients' honest models, in the order of
    `clients`, to be read only. `memory` is the client's own: tensors and JSON values by name, kept from round to round
    and in checkpoints. `parameter` is the text behind the behaviour's name, as in `absent:0.2`; `rng` belongs to this
    client and round.
    """

    received: Tensor
    trained: Tensor
    neurons: Tensor
    everyone: Tensor
    clients: tuple[str, ...]
    memory: State
    parameter: str | None
    rng: np.random.Generator


Behaviour = Callable[[int, str, Update], Tensor | None]
"""From round (0 is the first), client's name and update to what is sent; None: nothing."""


def absent(round: int, client: str, update: Update) -> Tensor | None:
    """Misses a round with a probability."""
    return None if update.rng.random() < float(update.parameter or "") else update.trained


def late(round: int, client: str, update: Update) -> Tensor | None:
    """With a probability, sends the model it trained in the round before."""
    before = update.memory.get("trained")
    update.memory["trained"] = update.trained
    return before if before is not None and update.rng.random() < float(update.parameter or "") else update.trained


class Conduct:
    """A run's behaviour, and what its clients remember: `memory` has flat names, `client/name`."""

    def __init__(self, named: str, memory: State | None = None) -> None:
        self._label, self._parameter = f"behaviour {named}", BEHAVIOURS.parse(named)[1]
        self._behaviour: Behaviour = BEHAVIOURS.resolve(named)
        self.memory: State = dict(memory or {})

    def behave(
        self, clients: Clients, given: Assignment, round: int, trained: Tensor
    ) -> tuple[list[Tensor | None], State]:
        """What each client sends, from models trained honestly [N, parameters], and what clients remember after it.

        Neither the arguments nor `self.memory` change: the caller puts the new memory in the old one's place when the
        round is over.
        """
        sent: list[Tensor | None] = []
        memory: State = {}
        version = trained._version  # torch counts changes made in place
        for i, name in enumerate(clients.names):
            own = of_client(self.memory, name)
            update = Update(
                received=given.model(i).clone(),
                trained=trained[i].clone(),
                neurons=given.neurons[i].clone(),
                everyone=trained,
                clients=clients.names,
                memory={k: kept(self._label, k, v) for k, v in own.items()},
                parameter=self._parameter,
                rng=stream(clients.seed, "behaviour", round, name),
            )
            sent.append(checked(self._label, self._behaviour(round, name, update), trained[i]))
            memory |= {f"{name}/{k}": kept(self._label, k, v) for k, v in update.memory.items()}
            if trained._version != version:
                raise FedsacError(f"{self._label} changes update.everyone in place; let it work on a clone")
        return sent, memory


def of_client(memory: State, client: str) -> State:
    """What one client remembers, of the flat names `client/name`."""
    return {name.partition("/")[2]: value for name, value in memory.items() if name.partition("/")[0] == client}


def kept(label: str, name: str, value: Any) -> Any:
    """A copy of something remembered, as a checkpoint would give it back: a tensor, or what JSON can hold."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError):
        raise FedsacError(
            f"{label} remembers {name!r} as {type(value).__name__}; memory holds tensors and JSON values"
        ) from None


def checked(label: str, answer: Tensor | None, like: Tensor) -> Tensor | None:
    """What a client sends, if it is a model like the honest one, or nothing."""
    if answer is None:
        return None
    if not isinstance(answer, Tensor) or answer.shape != like.shape:
        got = f"a tensor of shape {tuple(answer.shape)}" if isinstance(answer, Tensor) else type(answer).__name__
        raise FedsacError(f"{label} must return a model of shape {tuple(like.shape)}, or None, not {got}")
    return answer.detach().to(like)
