"""Who takes part: what the coordinator knows of each site, and how a method's state follows when that changes."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch

from fedsac.contributions.standalone import Contributions
from fedsac.methods.base import Method, State, Task
from fedsac.runs.setup import Prepared


@dataclass
class Member:
    """A site that has joined. `samples` was fixed then; `rounds` are those it took part in."""

    samples: int
    validation: float
    test: float
    diverged: bool = False
    refused: int = 0  # in a row
    aside: bool = False
    rounds: list[int] = field(default_factory=list)


def packed(members: dict[str, Member]) -> dict[str, Any]:
    return {name: asdict(member) for name, member in members.items()}


def unpacked(content: dict[str, Any]) -> dict[str, Member]:
    return {name: Member(**member) for name, member in content.items()}


def contributions(members: dict[str, Member]) -> Contributions:
    """By site, in the order of their names."""
    ordered = [members[name] for name in sorted(members)]
    diverged = tuple(name for name in sorted(members) if members[name].diverged)
    return Contributions(tuple(m.validation for m in ordered), tuple(m.test for m in ordered), diverged)


def task(prepared: Prepared, members: dict[str, Member]) -> Task:
    """The server's task with these members. Sample counts are those fixed at joining."""
    config, names = prepared.config, tuple(sorted(members))
    samples = tuple(members[name].samples for name in names)
    return Task(
        layout=prepared.layout,
        initial=prepared.initial,
        clients=names,
        samples=samples,
        contributions=contributions(members).given(config.contribution_on),
        validation=prepared.validation,
        rounds=config.rounds,
        seed=config.seed,
        lr=config.lr,
        batch=config.batch,
        size_shares=tuple(n / max(samples) for n in samples),
    )


def carried_over(method: Method, task: Task, state: State, clients: Sequence[str]) -> State:
    """A method's state for a new set of clients (`task.clients`, after `clients`).

    The method starts again from the model it has, so that all rewards follow from the new contributions. Where clients
    have models of their own, they keep them, and a newcomer begins from the public initial weights. What a method
    remembers of clients beyond that (running reputations) begins anew.
    """
    fresh = method.start(replace(task, initial=state.get("model", task.initial)))
    if "models" in fresh and "models" in state:
        rows = [
            state["models"][clients.index(name)] if name in clients else task.initial.to(state["models"])
            for name in task.clients
        ]
        fresh["models"] = torch.stack(rows)
    if "removed" in state:
        gone = {clients[i] for i in state["removed"]}
        fresh["removed"] = [i for i, name in enumerate(task.clients) if name in gone]
    return fresh
