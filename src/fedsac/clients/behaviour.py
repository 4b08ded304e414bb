"""What clients do beside training honestly: stay away, answer late, attack.

A behaviour is a function of round, client and update, asked for every client after it has trained: it returns the model
[parameters] that the client sends back (`update.trained` is the honest answer) or None, if it sends nothing. How to
write one is in docs/extending.md.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedsac.clients.population import Clients
from fedsac.doors import BEHAVIOURS
from fedsac.errors import FedsacError
from fedsac.methods.base import Assignment, State
from fedsac.rng import stream


@dataclass(frozen=True)
class Update:
    """What a behaviour may look at. All models are [parameters]; entries outside the client's neurons have no meaning.

    `received` is the model the client was given, `trained` what honest training made of it. An attacker may know more:
    `everyone` [N, parameters] are all clients' honest models, in the order of `clients`. `memory` is the client's own:
    tensors and JSON values by name, kept from round to round and in checkpoints. `parameter` is the text behind the
    behaviour's name, as in `absent:0.2`; `rng` belongs to this client and round.
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
        self._named, self._parameter = named, BEHAVIOURS.parse(named)[1]
        self._behaviour: Behaviour = BEHAVIOURS.resolve(named)
        self.memory: State = dict(memory or {})

    def behave(
        self, clients: Clients, given: Assignment, round: int, trained: Tensor
    ) -> tuple[list[Tensor | None], State]:
        """What each client sends, from models trained honestly [N, parameters], and what clients remember after it.

        Nothing here changes until the round is over: the caller puts the new memory in the old one's place.
        """
        sent: list[Tensor | None] = []
        memory: State = {}
        for i, name in enumerate(clients.names):
            own = {k.partition("/")[2]: v for k, v in self.memory.items() if k.partition("/")[0] == name}
            update = Update(
                received=given.model(i),
                trained=trained[i],
                neurons=given.neurons[i],
                everyone=trained,
                clients=clients.names,
                memory=own,
                parameter=self._parameter,
                rng=stream(clients.seed, "behaviour", round, name),
            )
            sent.append(self._checked(self._behaviour(round, name, update), trained[i]))
            memory |= {f"{name}/{k}": v.clone() if isinstance(v, Tensor) else v for k, v in own.items()}
        return sent, memory

    def _checked(self, answer: Tensor | None, like: Tensor) -> Tensor | None:
        if answer is None:
            return None
        if not isinstance(answer, torch.Tensor) or answer.shape != like.shape:
            shape = tuple(getattr(answer, "shape", ()))
            raise FedsacError(
                f"behaviour {self._named} must return a model of shape {tuple(like.shape)} or None, not "
                f"{type(answer).__name__} of shape {shape}"
            )
        return answer.to(like)
