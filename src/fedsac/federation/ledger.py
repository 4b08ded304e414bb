"""The ledger: an append-only log in which every line hashes the one before it.

A line is JSON: `format_version`, `seq`, `at` (UTC), `kind`, `body`, `previous` (the hash of the line before) and
`hash`. The hash is over the line's number, `previous` and the hash of its content (`at`, `kind`, `body`): whoever has a
line's hash can follow the chain by the hashes of contents alone, without reading what concerns others. That is how
sites follow it (`history.py`). Changing, removing or inserting a line breaks the chain after it; cutting off the end or
writing all of it anew contradicts what sites have signed. A line is synced to disk before the coordinator goes on.
After a kill, what is repeated is appended again: lines of a round that was never committed stay, and a line `resumed`
follows them.
"""

import hashlib
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedsac.errors import FedsacError

LEDGER_VERSION = 2  # version 1 hashed a line in one piece; it can be read, and not be gone on with
FIRST_PREVIOUS = "0" * 64  # `previous` of the first line
FIELDS = {"format_version", "seq", "at", "kind", "body", "previous", "hash"}

Entry = dict[str, Any]


def canonical(value: object) -> bytes:
    """A value as canonical JSON: the bytes that are hashed and signed."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


class Ledger:
    """A ledger to append to. Opening it checks every line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        content = path.read_bytes() if path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:
            # Killed in the middle of a line: the coordinator had not gone on, so drop it.
            with path.open("r+b") as file:
                file.truncate(len(whole))
        self.entries = checked(whole, path)
        if self.entries and self.entries[0]["format_version"] < LEDGER_VERSION:
            raise FedsacError(
                f"{path}: an earlier fedsac began this federation, and its sites could not follow the ledger; finish "
                "it with that version, or found a new one with: fedsac federation init"
            )

    @property
    def head(self) -> str:
        """The hash of the last line."""
        return str(self.entries[-1]["hash"]) if self.entries else FIRST_PREVIOUS

    def append(self, kind: str, **body: Any) -> Entry:
        """Append a line; when this returns, it is on disk."""
        entry = {
            "format_version": LEDGER_VERSION,
            "seq": len(self.entries),
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "kind": kind,
            "body": json.loads(canonical(body)),  # as it will be read
            "previous": self.head,
        }
        entry["hash"] = _hash(entry)
        try:
            with self.path.open("ab") as file:
                file.write(canonical(entry) + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise FedsacError(
                f"{self.path}: cannot be written ({error.strerror}); correct that, then go on with the same command"
            ) from None
        self.entries.append(entry)
        return entry

    def of_kind(self, kind: str) -> list[Entry]:
        return [entry for entry in self.entries if entry["kind"] == kind]


def read(path: Path) -> list[Entry]:
    """The entries of a ledger, every one checked; the file is not changed."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FedsacError(f"{path}: cannot be read ({error.strerror}); check the path and its permissions") from None
    return checked(content[: content.rfind(b"\n") + 1], path)


def checked(content: bytes, path: Path) -> list[Entry]:
    """The entries in a ledger's bytes; the first line that breaks the chain is an error with its number."""
    entries: list[Entry] = []
    previous = FIRST_PREVIOUS
    for seq, line in enumerate(content.splitlines()):
        where = f"{path}: line {seq + 1}"
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            raise FedsacError(f"{where} is not JSON: the ledger was changed or is damaged") from None
        if not isinstance(entry, dict) or set(entry) != FIELDS:
            raise FedsacError(f"{where} is not an entry: the ledger was changed or is damaged")
        _check_version(entry["format_version"], where)
        if entry["seq"] != seq or entry["previous"] != previous:
            raise FedsacError(f"{where} does not follow the line before it: lines were removed, added or moved")
        if entry["hash"] != _hash_if_any(entry):
            raise FedsacError(f"{where} was changed: its hash does not match")
        previous = entry["hash"]
        entries.append(entry)
    return entries


def content_hash(entry: Entry) -> str:
    """The hash of what a line says, without its place in the chain."""
    return hashlib.sha256(canonical({name: entry[name] for name in ("at", "kind", "body")})).hexdigest()


def line_hash(seq: int, previous: str, content: str) -> str:
    """The hash of the line with this number, after the line with the hash `previous`."""
    chained = {"format_version": LEDGER_VERSION, "seq": seq, "previous": previous, "content": content}
    return hashlib.sha256(canonical(chained)).hexdigest()


def _hash_if_any(entry: Entry) -> str | None:
    """The hash of a line that was read; None of one that was never written, for no JSON of ours says infinity."""
    try:
        return _hash(entry)
    except (ValueError, RecursionError):
        return None


def _hash(entry: Entry) -> str:
    if entry["format_version"] == 1:
        hashed = {name: value for name, value in entry.items() if name != "hash"}
        return hashlib.sha256(canonical(hashed)).hexdigest()
    return line_hash(entry["seq"], entry["previous"], content_hash(entry))


def _check_version(version: object, where: str) -> None:
    if type(version) is not int or not 1 <= version <= LEDGER_VERSION:
        raise FedsacError(f"{where}: version {version!r} of the ledger is unknown to this fedsac; update fedsac")
