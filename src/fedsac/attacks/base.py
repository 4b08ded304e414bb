"""What an attack is: up to five places at which a hostile client does otherwise than an honest one.

Before it joins (`deal`: what data it brings, under how many names), when its contribution is measured (`submit`, and
`claims`), in every round (`send`), by leaving and coming back (`rejoins`), and at the end (`keep`: the model it walks
away with). An attack overrides the places it needs; the others are honest.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedsac.clients.population import Clients
from fedsac.compute import evaluation
from fedsac.compute.samples import Samples
from fedsac.core.module_layout import AnyLayout
from fedsac.data.split import Split
from fedsac.doors import ATTACKS
from fedsac.errors import FedsacError
from fedsac.methods.base import Assignment, State
from fedsac.rng import stream


@dataclass(frozen=True)
class Standing:
    """What there is when contributions are measured: all clients, the `hostile` ones by index, the public `initial`
    weights [parameters], and the models [N, parameters] that honest clients would hand in."""

    clients: Clients
    hostile: tuple[int, ...]
    initial: Tensor
    models: Tensor

    def rng(self, client: int) -> np.random.Generator:
        return stream(self.clients.seed, "attack alone", self.clients.names[client])


@dataclass(frozen=True)
class Sight:
    """What a hostile client may look at in a round. It is told more than a real one would know: figures are then for
    the worst case.

    `client` is the one that acts, `hostile` all of its kind, by index. `assignment` is what everybody was given,
    `trained` [N, parameters] what honest training made of it, the hostile clients' own included: to be read only.
    `memory` is the client's own, tensors and JSON values by name, and part of every checkpoint.
    """

    round: int
    client: int
    hostile: tuple[int, ...]
    clients: Clients
    assignment: Assignment
    trained: Tensor
    memory: State
    rng: np.random.Generator

    @property
    def layout(self) -> AnyLayout:
        return self.clients.layout

    @property
    def received(self) -> Tensor:
        """The model [parameters] that the client was given; entries outside `held` have no meaning."""
        return self.assignment.model(self.client)

    @property
    def honest_answer(self) -> Tensor:
        """The model [parameters] that the client would send if it were honest."""
        return self.trained[self.client]

    @property
    def neurons(self) -> Tensor:
        """The neurons that the client holds, boolean [neurons]."""
        return self.assignment.neurons[self.client]

    @property
    def held(self) -> Tensor:
        """The parameters that the client holds, boolean [parameters]."""
        return self.layout.held(self.neurons)

    @property
    def others(self) -> list[int]:
        """The honest clients."""
        return [i for i in range(len(self.clients.names)) if i not in self.hostile]

    def step(self, client: int) -> Tensor:
        """The honest step [parameters] of any client from what it was given; 0 where it holds nothing."""
        moved = self.trained[client] - self.assignment.model(client)
        return torch.where(self.layout.held(self.assignment.neurons[client]), moved, 0)


@dataclass(frozen=True)
class Holding:
    """A model [parameters] that somebody has: 0 in every entry that belongs to none of its `neurons` [neurons]."""

    model: Tensor
    neurons: Tensor


@dataclass(frozen=True)
class End:
    """What there is when a run is over: `models` [N, parameters] are the rewards, 0 in every entry that a client does
    not hold, and `neurons` [N, neurons] theirs; `memories` are what the hostile clients remember, by index."""

    clients: Clients
    hostile: tuple[int, ...]
    initial: Tensor
    models: Tensor
    neurons: Tensor
    memories: Mapping[int, State]

    def held(self, client: int) -> Tensor:
        """The parameters of the client's reward, boolean [parameters]."""
        return self.clients.layout.held(self.neurons[client])

    def reward(self, client: int) -> Holding:
        return Holding(self.models[client], self.neurons[client])

    def best_for(self, client: int, candidates: Sequence[Holding]) -> Holding:
        """The one of these with the lowest loss on the client's own data, which is all it has to choose by."""
        pool, rows = self.clients.pool, torch.from_numpy(self.clients.rows[client]).to(self.models.device)
        own = Samples(pool.x[rows], pool.y[rows], pool.scale, pool.shift)
        models, neurons = (torch.stack([getattr(one, part) for one in candidates]) for part in ("model", "neurons"))
        losses = evaluation.evaluate(self.clients.layout, models, neurons, own)[1]
        return candidates[int(losses.nan_to_num(nan=math.inf).argmin())]


class Attack:
    """An honest client. Attacks derive from it; the docstring of each says what the adversary knows and does.

    `default`: the number behind the name, as in `sybils:3`, where none is given; None: the attack has no such number.
    `parties`: how many clients are hostile, and `who`: which by size, unless the run says who. `one_party`: the hostile
    clients are, or stand for, one party, whose gain is that of the best of them. `believed`: the server takes `claims`
    at their word. `rejoins`: hostile clients leave after half of the rounds and come back with another model trained
    "alone".
    """

    default: float | None = None
    parties: int = 2
    who: str = "median"
    one_party: bool = False
    believed: bool = False
    rejoins: bool = False

    def __init__(self, parameter: str | None = None) -> None:
        self.number = self.default if parameter is None else _number(parameter)

    @property
    def deals(self) -> bool:
        """Whether the attack changes the clients' data or names."""
        return type(self).deal is not Attack.deal

    def deal(self, split: Split, hostile: tuple[str, ...]) -> Split:
        """The split with what hostile clients bring; `split.hostile` names them where the names change."""
        return split

    def submit(self, standing: Standing, client: int) -> Tensor:
        """The model [parameters] that a hostile client hands in as trained alone."""
        return standing.models[client]

    def claims(self) -> float | None:
        """The contribution that a hostile client says it has; None: it says nothing."""
        return None

    def send(self, sight: Sight) -> Tensor | None:
        """The model [parameters] that a hostile client sends in a round; None: nothing."""
        return sight.honest_answer

    def resubmit(self, end: End, common: Tensor | None, client: int) -> Tensor:
        """The model [parameters] that a hostile client hands in when it rejoins; `end` is how things stand then."""
        return end.models[client]

    def keep(self, end: End) -> list[Holding] | None:
        """What each hostile client ends with; None: what it was paid."""
        return None


def made(named: str) -> Attack:
    """The attack of this name, with the number behind it."""
    parameter = ATTACKS.parse(named)[1]
    kind = ATTACKS.resolve(named)
    if not isinstance(kind, type) or not issubclass(kind, Attack):
        raise FedsacError(f"attack {named} must be a class derived from fedsac.attacks.Attack (docs/attacks.md)")
    attack: Attack = kind(parameter)
    return attack


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value <= 0:
        raise FedsacError(f"an attack's parameter is a number above 0, as in sybils:3, not {text!r}")
    return value
