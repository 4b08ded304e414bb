"""The guard: admits a site's reply, or refuses it with the reason. How replies travel is not its matter.

It checks, in this order, before any array is decoded: who sent it, which message it answers, how large it is, and the
names, types and shapes of its arrays; then that all numbers are finite and that the model did not move further than
`max_step` allows. A refused reply has no effect on the run.
"""

import hashlib
import io
import json
import tokenize
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedsac.errors import FedsacError

MAX_STEP = 10.0
"""How far training may move a model (Euclidean norm), as a multiple of 1 + the norm of the model that was sent.
Generous: a round moves a model by a small fraction of its norm, standalone training by about its norm. What is refused
are replies that would dominate the aggregate."""

MAX_HEADER_BYTES = 1024  # of an .npy file's header, before the numbers
NO_HEADER = (ValueError, EOFError, TypeError, SyntaxError, tokenize.TokenError, RecursionError, MemoryError)
"""What numpy raises, or lets through from Python's own parser, where an .npy file's header is none."""


class RefusedError(FedsacError):
    """A reply that is refused; the text says why."""


@dataclass(frozen=True)
class Raw:
    """An array as it arrived: the type and shape that the message claims, and an .npy file's bytes, not yet decoded."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    @classmethod
    def of(cls, array: np.ndarray) -> "Raw":
        buffer = io.BytesIO()
        np.save(buffer, np.asarray(array, order="C"), allow_pickle=False)
        return cls(str(array.dtype), array.shape, buffer.getvalue())


@dataclass(frozen=True)
class Asked:
    """What a reply must match: `arrays` are the names, shapes and types of its arrays, `start` is the model that the
    site trained from.

    `check(digest, signature)` tells whether the signature is the site's; None if sites have no keys. `head` is the
    ledger's head (lines, hash of the last) that the order carried and the reply must sign; None: any.
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
    head: tuple[int, str] | None = None


@dataclass(frozen=True)
class Reply:
    """A site's reply. `site` is the sender as identified by the transport, never as claimed in the message; `extra` are
    the names of records in the message that do not belong there; `head` is the ledger's head that the site signs."""

    site: str
    kind: str
    round: int
    token: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, Raw] = field(default_factory=dict)
    size: int = 0
    extra: tuple[str, ...] = ()
    signature: str = ""
    head: tuple[int, str] = (0, "")

    def content(self) -> str:
        """The hash of the facts and of every byte of the arrays."""
        arrays = {
            name: [raw.dtype, list(raw.shape), hashlib.sha256(raw.data).hexdigest()]
            for name, raw in self.arrays.items()
        }
        return hashlib.sha256(json.dumps([dict(self.facts), arrays], sort_keys=True).encode()).hexdigest()

    def digest(self) -> bytes:
        """What the site signs."""
        return reply_digest(self.kind, self.round, self.token, self.head, self.content())


def reply_digest(kind: str, round: int, token: str, head: tuple[int, str], content: str) -> bytes:
    """What a site signs: the message it answers, the ledger's head that came with it, and the reply's content."""
    return hashlib.sha256(json.dumps([kind, round, token, *head, content]).encode()).digest()


def admit(asked: Asked, reply: Reply) -> dict[str, np.ndarray]:
    """The reply's arrays, if it passes every check; else `RefusedError`."""
    _origin(asked, reply)
    _description(asked, reply)
    arrays = {name: _read(name, raw, *asked.arrays[name]) for name, raw in reply.arrays.items()}
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise RefusedError(f"finite: {name} holds NaN or infinity")
        if name.rpartition(".")[2] == "running_var" and (array < 0).any():
            raise RefusedError(f"range: {name} is below 0, and a variance is not")
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
    if asked.head is not None and reply.head != asked.head:
        raise RefusedError(f"history: it signs line {reply.head[0]} of the ledger, and was sent line {asked.head[0]}")


def _is_signed(check: Callable[[bytes, str], bool], reply: Reply) -> bool:
    try:
        return check(reply.digest(), reply.signature)
    except (RecursionError, ValueError):  # facts that can be decoded from JSON, but not encoded again
        return False


def printable(text: object) -> str:
    """Text from a site on one line, without unprintable characters."""
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
    """Decode an array. The .npy header is compared with the expected shape and type before memory is allocated."""
    expected = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if len(raw.data) > expected + MAX_HEADER_BYTES:
        raise RefusedError(f"size: {name} has {len(raw.data)} bytes for {expected} bytes of numbers")
    try:
        file = io.BytesIO(raw.data)
        version = np.lib.format.read_magic(file)
        if version != (1, 0):
            raise ValueError("an unexpected version")
        file_shape, fortran, file_dtype = np.lib.format.read_array_header_1_0(file)
    except NO_HEADER as error:
        raise RefusedError(f"format: {name} cannot be read ({' '.join(str(error).split())[:80]})") from None
    if file_shape != shape or file_dtype != np.dtype(dtype) or fortran:
        raise RefusedError(f"shape: inside, {name} is {file_dtype} {list(file_shape)[:8]}, not {dtype} {list(shape)}")
    body = raw.data[file.tell() :]
    if len(body) != expected:
        raise RefusedError(f"size: {name} has {len(body)} bytes of numbers, not {expected}")
    return np.frombuffer(body, dtype=dtype).reshape(shape)


def _step(asked: Asked, arrays: Mapping[str, np.ndarray]) -> None:
    if not asked.start:
        return
    moved = _norm(arrays[name].astype(np.float64) - start for name, start in asked.start.items())
    limit = asked.max_step * (1 + _norm(start.astype(np.float64) for start in asked.start.values()))
    if not moved <= limit:
        raise RefusedError(f"step: the model moved by {moved:.3g}, and at most {limit:.3g} is taken")


def _norm(arrays: Any) -> float:
    with np.errstate(over="ignore"):  # infinity is refused like any other step that is too long
        return float(np.sqrt(sum(float(np.square(array).sum()) for array in arrays)))


def _shown(names: Any) -> str:
    return ", ".join(repr(str(name)[:40]) for name in list(names)[:3])
