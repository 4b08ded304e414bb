"""The guard: admits or refuses one reply of a site, with the reason. Nothing here knows how replies travel.

In this order, and before a byte is taken for a number: who sent it, what it answers, how large it is, the names,
types and shapes of its arrays; then that all numbers are finite and that the model did not move further than `max_step`
allows. A refused reply is as if it had never come.
"""

import hashlib
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedsac.errors import FedsacError

MAX_STEP = 10.0
"""How far training may move a model, as a multiple of 1 + the length of the model that was sent. Generous: a round
moves a model by a small fraction of its length, standing alone by about its length. What is refused are replies that
would drown all others."""

HEADER = 1024  # bytes that an .npy header may take beside the numbers


class RefusedError(FedsacError):
    """This reply does not count; the text says why."""


@dataclass(frozen=True)
class Raw:
    """An array as it arrived: what it claims to be, and an .npy file's bytes that nobody has looked into yet."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    @classmethod
    def of(cls, array: np.ndarray) -> "Raw":
        buffer = io.BytesIO()
        np.save(buffer, np.ascontiguousarray(array), allow_pickle=False)
        return cls(str(array.dtype), array.shape, buffer.getvalue())


@dataclass(frozen=True)
class Asked:
    """What a site was asked: `arrays` are the shapes and types its reply must have, `start` the model it began from.

    `check` says whether a signature over the reply's digest is the site's; None where sites have no keys.
    """

    site: str
    kind: str
    round: int
    token: str
    arrays: Mapping[str, tuple[tuple[int, ...], str]] = field(default_factory=dict)
    start: Mapping[str, np.ndarray] = field(default_factory=dict)
    max_step: float = MAX_STEP
    max_bytes: int = 1 << 30
    check: Callable[[bytes, str], bool] | None = None


@dataclass(frozen=True)
class Reply:
    """What came back. `site` is the sender as the transport knows it, never what the message claims; `extra` names
    whatever else was in the message."""

    site: str
    kind: str
    round: int
    token: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, Raw] = field(default_factory=dict)
    size: int = 0
    extra: tuple[str, ...] = ()
    signature: str = ""

    def digest(self) -> bytes:
        """What the site signs: the question it answers, and every byte of the answer."""
        arrays = {
            name: [raw.dtype, list(raw.shape), hashlib.sha256(raw.data).hexdigest()]
            for name, raw in self.arrays.items()
        }
        said = [self.kind, self.round, self.token, dict(self.facts), arrays]
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).digest()


def admit(asked: Asked, reply: Reply) -> dict[str, np.ndarray]:
    """The reply's arrays, if it may count; else `RefusedError`."""
    _origin(asked, reply)
    _description(asked, reply)
    arrays = {name: _read(name, raw, *asked.arrays[name]) for name, raw in reply.arrays.items()}
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise RefusedError(f"finite: {name} holds NaN or infinity")
        if name not in asked.start and (array < 0).any():
            raise RefusedError(f"range: {name} is below 0, and a loss is not")
    _step(asked, arrays)
    return arrays


def _origin(asked: Asked, reply: Reply) -> None:
    if reply.site != asked.site:
        raise RefusedError(f"identity: it comes from {reply.site}, and {asked.site} was asked")
    if asked.check is not None and not _is_signed(asked.check, reply):
        raise RefusedError(f"identity: it is not signed with the key of {asked.site}")
    if reply.round != asked.round:
        raise RefusedError(f"round: it answers round {reply.round}, and this is round {asked.round}")
    if (reply.kind, reply.token) != (asked.kind, asked.token):
        raise RefusedError("round: it answers another message than the one that was sent")


def _is_signed(check: Callable[[bytes, str], bool], reply: Reply) -> bool:
    try:
        return check(reply.digest(), reply.signature)
    except (RecursionError, ValueError):  # facts that can be read, but not written again
        return False


def printable(text: object) -> str:
    """Text from outside on one line, without what a terminal or a file might choke on."""
    return " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())


def _description(asked: Asked, reply: Reply) -> None:
    if reply.size > asked.max_bytes:
        raise RefusedError(f"size: {reply.size} bytes, and at most {asked.max_bytes} are taken")
    if reply.extra:
        raise RefusedError(f"names: {_shown(reply.extra)} was not asked for")
    if unknown := sorted(set(reply.arrays) - set(asked.arrays)):
        raise RefusedError(f"names: there is no array {_shown(unknown)}")
    if missing := sorted(set(asked.arrays) - set(reply.arrays)):
        raise RefusedError(f"names: {_shown(missing)} is missing")
    for name, (shape, dtype) in asked.arrays.items():
        raw = reply.arrays[name]
        if raw.dtype != dtype:
            raise RefusedError(f"dtype: {name} is {raw.dtype[:40]}, not {dtype}")
        if raw.shape != shape:
            raise RefusedError(f"shape: {name} is {list(raw.shape)[:8]}, not {list(shape)}")


def _read(name: str, raw: Raw, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """The numbers. The file's own header is held against what was asked before memory is taken for it."""
    wanted = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if len(raw.data) > wanted + HEADER:
        raise RefusedError(f"size: {name} has {len(raw.data)} bytes for {wanted} bytes of numbers")
    try:
        file = io.BytesIO(raw.data)
        version = np.lib.format.read_magic(file)
        if version != (1, 0):
            raise ValueError("an unexpected version")
        found, fortran, found_dtype = np.lib.format.read_array_header_1_0(file)
    except (ValueError, EOFError) as error:
        raise RefusedError(f"format: {name} cannot be read ({' '.join(str(error).split())[:80]})") from None
    if found != shape or found_dtype != np.dtype(dtype) or fortran:
        raise RefusedError(f"shape: inside, {name} is {found_dtype} {list(found)[:8]}, not {dtype} {list(shape)}")
    body = raw.data[file.tell() :]
    if len(body) != wanted:
        raise RefusedError(f"size: {name} has {len(body)} bytes of numbers, not {wanted}")
    return np.frombuffer(body, dtype=dtype).reshape(shape)


def _step(asked: Asked, arrays: Mapping[str, np.ndarray]) -> None:
    if not asked.start:
        return
    # An overflow on the way is infinity, which is refused as any other step that is too long.
    with np.errstate(over="ignore"):
        moved = _length(arrays[name].astype(np.float64) - start for name, start in asked.start.items())
    limit = asked.max_step * (1 + _length(start.astype(np.float64) for start in asked.start.values()))
    if not moved <= limit:
        raise RefusedError(f"step: the model moved by {moved:.3g}, and at most {limit:.3g} is taken")


def _length(arrays: Any) -> float:
    with np.errstate(over="ignore"):
        return float(np.sqrt(sum(float(np.square(array).sum()) for array in arrays)))


def _shown(names: Any) -> str:
    return ", ".join(repr(str(name)[:40]) for name in list(names)[:3])
