"""The ledger: an append-only log in which every line hashes the one before it.

A line is JSON: `format_version`, `seq`, `at` (UTC), `kind`, `body`, `previous` and `hash`, the SHA-256 over all the
others in canonical form. Whoever changes, removes or inserts a line breaks the chain behind it; whoever cuts the end
off contradicts the receipts that name a line there. Lines are synced to disk before anything is built on them. A server
that was killed appends what it does again; lines of a round that was never committed stay, and `resumed` says so.
"""

import hashlib
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedsac.config import FORMAT_VERSION, check_version
from fedsac.errors import FedsacError

START = "0" * 64  # what the first line has as `previous`
FIELDS = {"format_version", "seq", "at", "kind", "body", "previous", "hash"}

Entry = dict[str, Any]


def canonical(value: object) -> bytes:
    """One spelling for one value: what is hashed and what is signed."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


class Ledger:
    """A ledger that is written: opened, it is checked from the first line to the last."""

    def __init__(self, path: Path) -> None:
        self.path = path
        content = path.read_bytes() if path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:
            # A kill in the middle of a line: it was never an entry, nothing was built on it.
            with path.open("r+b") as file:
                file.truncate(len(whole))
        self.entries = checked(whole, path)

    @property
    def head(self) -> str:
        """The hash of the last line."""
        return str(self.entries[-1]["hash"]) if self.entries else START

    def append(self, kind: str, **body: Any) -> Entry:
        """One more line; when this returns, it is on disk."""
        entry = {
            "format_version": FORMAT_VERSION,
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
            raise FedsacError(f"{self.path}: cannot be written ({error.strerror}); put that right and go on") from None
        self.entries.append(entry)
        return entry

    def of_kind(self, kind: str) -> list[Entry]:
        return [entry for entry in self.entries if entry["kind"] == kind]


def read(path: Path) -> list[Entry]:
    """A ledger's entries, every one checked; the file is only read."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FedsacError(f"{path}: cannot be read ({error.strerror})") from None
    return checked(content[: content.rfind(b"\n") + 1], path)


def checked(content: bytes, path: Path) -> list[Entry]:
    """The entries in a ledger's bytes; a line that does not follow from those before it is refused with its number."""
    entries: list[Entry] = []
    previous = START
    for seq, line in enumerate(content.splitlines()):
        where = f"{path}: line {seq + 1}"
        try:
            entry = json.loads(line)
        except ValueError:
            raise FedsacError(f"{where} is not JSON: the ledger was changed or is damaged") from None
        if not isinstance(entry, dict) or set(entry) != FIELDS:
            raise FedsacError(f"{where} is not an entry: the ledger was changed or is damaged")
        check_version(entry["format_version"], where)
        if entry["seq"] != seq or entry["previous"] != previous:
            raise FedsacError(f"{where} does not follow the line before it: lines were removed, added or moved")
        if entry["hash"] != _hash(entry):
            raise FedsacError(f"{where} was changed: its hash does not match")
        previous = entry["hash"]
        entries.append(entry)
    return entries


def _hash(entry: Entry) -> str:
    said = {name: value for name, value in entry.items() if name != "hash"}
    return hashlib.sha256(canonical(said)).hexdigest()
