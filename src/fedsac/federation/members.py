"""Who takes part: what the coordinator knows of each site."""

from dataclasses import asdict, dataclass, fields
from typing import Any

from fedsac.contributions.base import Contributions
from fedsac.runs.setup import Members


@dataclass
class Member:
    """A site that has joined. `samples` was fixed then; `refused` counts refusals in a row."""

    samples: int
    validation: float
    test: float
    diverged: bool = False
    refused: int = 0
    aside: bool = False


def packed(members: dict[str, Member]) -> dict[str, Any]:
    return {name: asdict(member) for name, member in members.items()}


def unpacked(content: dict[str, Any]) -> dict[str, Member]:
    """The members in a checkpoint. Earlier versions kept more of them than this one needs."""
    known = {field.name for field in fields(Member)}
    return {
        name: Member(**{key: value for key, value in member.items() if key in known})
        for name, member in content.items()
    }


def contributions(members: dict[str, Member]) -> Contributions:
    """By site, in the order of their names."""
    ordered = [members[name] for name in sorted(members)]
    diverged = tuple(name for name in sorted(members) if members[name].diverged)
    return Contributions(tuple(m.validation for m in ordered), tuple(m.test for m in ordered), diverged)


def members_of(members: dict[str, Member]) -> Members:
    """The same as the round loop knows them. Sample counts are those fixed at joining."""
    names = tuple(sorted(members))
    return Members.of(names, tuple(members[name].samples for name in names))
