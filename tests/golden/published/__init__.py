"""Numbers that the authors' published code gave, and what is needed to hand them to our methods.

Each .json names the repository, commit and functions that its numbers come from, and how they were run. They are
inputs (models, local updates, draws) and outputs; no line of that code is here. Vectors of parameters are in our order:
weights [in, out] and biases, layer by layer.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from fedsac.compute.samples import Samples
from fedsac.core.units import Layout
from fedsac.methods.base import Method, State, Task, Updates


def numbers(method: str) -> dict[str, Any]:
    """The numbers of one method's published code."""
    read: dict[str, Any] = json.loads((Path(__file__).parent / f"{method}.json").read_text())
    return read


def validation(points: Sequence[Sequence[float]], labels: Sequence[int]) -> Samples:
    """A validation set, not normalised."""
    x = torch.tensor(points, dtype=torch.float64)
    return Samples(x, torch.tensor(labels), torch.ones(1, x.shape[1]).double(), torch.zeros(1, x.shape[1]).double())


def task(published: dict[str, Any], kind: type[Task] = Task, **changes: object) -> Task:
    """The task of a file of numbers; clients are named so that their order by name is that of the file."""
    c = published["contributions"]
    settings: dict[str, Any] = {
        "layout": Layout(tuple(published["sizes"])),
        "initial": torch.tensor(published["initial"], dtype=torch.float64),
        "clients": tuple(f"client-{i:02d}" for i in range(len(c))),
        "samples": tuple(published.get("samples", [1] * len(c))),
        "contributions": tuple(c),
        "validation": validation([[0.0] * published["sizes"][0]], [0]),
        "rounds": 100,
        "seed": 0,
    }
    return kind(**settings | changes)


def answer(
    method: Method,
    given: Task,
    state: State,
    round: int,
    steps: Sequence[Sequence[float]],
    who: Sequence[int],
    **told: Any,
) -> State:
    """The state after a round in which the clients `who` add their steps to what they were given."""
    assigned = method.assign(given, state)
    received = assigned.models.expand(len(given.clients), -1)[list(who)]
    params = received + torch.tensor([steps[i] for i in who], dtype=torch.float64)
    return method.learn(given, state, Updates(round, tuple(who), params, assigned, **told))
