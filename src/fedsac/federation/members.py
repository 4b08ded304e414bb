"""The members of a federation: the sites that have joined, with their contributions."""

from dataclasses import asdict, dataclass, fields
from typing import Any

from fedsac.contributions.base import Contributions
from fedsac.runs.prepared import Members


@dataclass
class Member:
    """A site that has joined. `samples` was fixed then; `validation` and `test` are its contribution on the
    coordinator's two sets, and `error` is the standard error of the first (None: not known); `refused` counts
    successive failures (refusals, and orders without an answer); a site set `aside` is asked no more, until it was
    `readmitted` once more than before."""

    samples: int
    validation: float
    test: float
    diverged: bool = False
    error: float | None = None
    refused: int = 0
    aside: bool = False
    readmitted: int = 0


def packed(members: dict[str, Member]) -> dict[str, Any]:
    """The members as a checkpoint holds them."""
    return {name: asdict(member) for name, member in members.items()}


def unpacked(content: dict[str, Any]) -> dict[str, Member]:
    """The members in a checkpoint; fields that only earlier versions wrote are ignored."""
    known = {field.name for field in fields(Member)}
    return {
        name: Member(**{key: value for key, value in member.items() if key in known})
        for name, member in content.items()
    }


def contributions(members: dict[str, Member]) -> Contributions:
    """The members' contributions, in the order of the sites' names."""
    ordered = [members[name] for name in sorted(members)]
    diverged = tuple(name for name in sorted(members) if members[name].diverged)
    errors = [m.error for m in ordered if m.error is not None]
    return Contributions(
        validation=tuple(m.validation for m in ordered),
        test=tuple(m.test for m in ordered),
        diverged=diverged,
        error=tuple(errors) if len(errors) == len(ordered) else None,
    )


def members_of(members: dict[str, Member]) -> Members:
    """The members as the round loop's clients, with the sample counts fixed when they joined."""
    names = tuple(sorted(members))
    return Members.of(names, tuple(members[name].samples for name in names))
