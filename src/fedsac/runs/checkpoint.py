"""A run between two rounds, as one file: safetensors with a hash over its own contents. No pickle; loads no torch."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from fedsac.config import FORMAT_VERSION, check_version
from fedsac.contributions.base import Contributions

MAX_CHECKPOINTS = 2  # kept: the newest, and the one before it in case the newest is damaged
SHOWN = "shown/"  # before the names of what only reports read
UNSOUND = (
    *(ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError),
    *(MemoryError, SafetensorError),
)
"""What reading bytes that are no checkpoint may raise."""


@dataclass(frozen=True)
class Checkpoint:
    """A run between two rounds: `state` is the method's, with what the engine adds to it. `shown` is what reports show:
    `neurons` [N, neurons] and `importance` [neurons], where the method has them.

    Tensors or arrays, and JSON values, by name. What was read from a file has arrays.
    """

    round: int
    state: dict[str, Any]
    contributions: Contributions
    fingerprint: str
    shown: dict[str, Any] = field(default_factory=dict)

    def tensors(self) -> dict[str, Any]:
        """The state with its arrays as torch's tensors."""
        import torch

        return {k: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for k, v in self.state.items()}


class DamagedError(Exception):
    """A checkpoint whose content is not what was written."""


def file_name(round: int) -> str:
    return f"checkpoints/round-{round:06d}.safetensors"


def pack(checkpoint: Checkpoint, log: bytes) -> bytes:
    """The file of a checkpoint. It names the length and the hash of the log up to it, so that the two cannot differ."""
    named = checkpoint.state | {f"{SHOWN}{name}": value for name, value in checkpoint.shown.items()}
    arrays = {k: array for k, v in named.items() if (array := _array(v)) is not None}
    facts = {
        "format_version": FORMAT_VERSION,
        "round": checkpoint.round,
        "values": {k: v for k, v in named.items() if k not in arrays},
        "contributions": asdict(checkpoint.contributions),
        "fingerprint": checkpoint.fingerprint,
        "log": {"bytes": len(log), "sha256": hashlib.sha256(log).hexdigest()},
    }
    text = json.dumps(facts, allow_nan=False)
    # One metadata entry: safetensors writes several in no fixed order, and equal runs must have equal bytes.
    return save_arrays(arrays, {"fedsac": json.dumps({"facts": text, "sha256": _digest(arrays, text)})})


def unpack(path: Path) -> tuple[Checkpoint, int, str]:
    """A checkpoint, and the length and hash of the log that it belongs to."""
    content = path.read_bytes()
    try:
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        outer = json.loads(header["__metadata__"]["fedsac"])
        arrays = load_arrays(content)
        if outer["sha256"] != _digest(arrays, outer["facts"]):
            raise DamagedError("its hash does not match")
        return _checkpoint(json.loads(outer["facts"]), arrays, path)
    except UNSOUND as error:
        raise DamagedError(f"{type(error).__name__}") from None


def _checkpoint(facts: dict[str, Any], arrays: dict[str, Any], path: Path) -> tuple[Checkpoint, int, str]:
    check_version(facts["format_version"], path)
    c = facts["contributions"]
    # Missing from what was written before there was a choice of measures, and before errors were measured.
    deciding, standard_error = (None if c.get(name) is None else tuple(c[name]) for name in ("deciding", "error"))
    scores = tuple(c["validation"]), tuple(c["test"])
    contributions = Contributions(*scores, tuple(c["diverged"]), deciding, standard_error)
    named = arrays | facts["values"]
    shown = {name.removeprefix(SHOWN): value for name, value in named.items() if name.startswith(SHOWN)}
    state = {name: value for name, value in named.items() if not name.startswith(SHOWN)}
    checkpoint = Checkpoint(int(facts["round"]), state, contributions, str(facts["fingerprint"]), shown)
    return checkpoint, int(facts["log"]["bytes"]), str(facts["log"]["sha256"])


def listed(path: Path) -> list[Path]:
    """The checkpoints in a run's folder, newest first."""
    return sorted((path / "checkpoints").glob("round-*.safetensors"), reverse=True)


def newest(
    path: Path, candidates: Sequence[Path], note: Callable[[str], None]
) -> tuple[Path, Checkpoint, bytes] | None:
    """The first of the checkpoints that is sound and matches the run's log, and the log up to it."""
    log = path / "rounds.jsonl"
    written = log.read_bytes() if log.exists() else b""
    for candidate in candidates:
        try:
            checkpoint, length, digest = unpack(candidate)
        except DamagedError as error:
            note(f"{candidate.name} is damaged ({error}) and is passed over")
            continue
        except FileNotFoundError:  # a run at work has removed it, for it has newer ones
            continue
        if hashlib.sha256(written[:length]).hexdigest() != digest or len(written) < length:
            note(f"{candidate.name} does not match the log and is passed over")
            continue
        return candidate, checkpoint, written[:length]
    return None


def peek(path: Path) -> tuple[Checkpoint, list[dict[str, Any]]] | None:
    """The newest sound checkpoint of a run and the rounds before it, if there is one: the folder is only read, so that
    a run at work can be looked at, too."""
    if (sound := newest(path, listed(path), lambda text: None)) is None:
        return None
    return sound[1], [json.loads(line) for line in sound[2].splitlines()]


def _array(value: Any) -> np.ndarray | None:
    """A tensor or an array as an array; None of anything else."""
    # Asked by its methods, not by its type: torch is not loaded for those who only read.
    array = value.detach().cpu().numpy() if hasattr(value, "detach") else value
    # In C's order, and a single number stays one: np.ascontiguousarray would give it an axis.
    return np.asarray(array, order="C") if isinstance(array, np.ndarray) else None


def _digest(arrays: dict[str, np.ndarray], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        digest.update(f"{name} torch.{arrays[name].dtype} {arrays[name].shape}".encode())
        digest.update(arrays[name].tobytes())
    return digest.hexdigest()
