"""What a site has been shown of the coordinator's ledger: nobody can rewrite what a site has signed.

Every order carries the ledger's head (its length and the hash of its last line) and the hashes of the contents of all
lines since the head that this site signed last. The coordinator signs it together with the order. The site follows the
chain from the line it knows to the new head, appends the statement to `heads.jsonl` in its folder, and signs the head
in its reply; an order whose ledger is not longer than the one it has seen, or does not continue it, is declined and
changes nothing. Contents are hashes because lines concern other sites, too.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedsac.errors import FedsacError
from fedsac.federation import identity
from fedsac.federation.ledger import FIRST_PREVIOUS, Entry, Ledger, canonical, content_hash, line_hash
from fedsac.federation.wire import Order, digest

HEADS_FILE, COORDINATOR_KEY_FILE = "heads.jsonl", "coordinator.pub"
RECEIPT_FIELDS = ("seq", "at", "kind", "body", "previous", "hash")

Head = tuple[int, str]  # the number of lines of a ledger, and the hash of the last one
Statement = dict[str, Any]


class HistoryError(FedsacError):
    """The coordinator says something about the ledger that contradicts what it signed before, or is not signed."""


def statement_of(site: str, order: Order) -> Statement:
    """What the coordinator signs when it sends a site an order; the site keeps it."""
    return {
        "site": site,
        "kind": order.kind,
        "round": order.round,
        "token": order.token,
        "contribution": order.contribution,
        "ledger": dict(order.ledger),
        "content": hashlib.sha256(canonical([dict(order.facts), digest(order.arrays)])).hexdigest(),
    }


def signed_order(site: str, order: Order, ledger: Ledger, since: int, key: bytes) -> Order:
    """The order with the ledger's head and what came after line `since`, signed by the coordinator."""
    contents = [content_hash(entry) for entry in ledger.entries[since:]]
    shown = {"length": len(ledger.entries), "head": ledger.head, "since": since, "contents": contents}
    order = replace(order, ledger=shown)
    return replace(order, signature=identity.sign(key, _digest(statement_of(site, order))))


def signed_receipt(entry: Entry, key: bytes) -> dict[str, Any]:
    """A receipt: a line of the ledger, signed by the coordinator."""
    line = {name: entry[name] for name in RECEIPT_FIELDS}
    return line | {"signature": identity.sign(key, _digest(line))}


def check_receipt(receipt: Mapping[str, Any], keys: list[bytes]) -> None:
    """Raise unless a receipt is signed with one of the coordinator's keys and its hash is that of its content."""
    line: dict[str, Any] = {name: receipt.get(name) for name in RECEIPT_FIELDS}
    if not _signed(keys, line, receipt.get("signature")):
        raise HistoryError("the receipt is not signed by the coordinator, or was changed since")
    if line["hash"] != line_hash(line["seq"], line["previous"], content_hash(line)):
        raise HistoryError("the receipt's hash is not that of its content")


def coordinator_keys(folder: Path) -> list[bytes]:
    """The public keys that a site has pinned as the coordinator's, the current one last."""
    try:
        lines = (folder / COORDINATOR_KEY_FILE).read_bytes().splitlines()
    except OSError as error:
        raise FedsacError(
            f"{folder / COORDINATOR_KEY_FILE}: cannot be read ({error.strerror}); bring the coordinator's "
            "server/receipts.pub, under this name"
        ) from None
    return [line for line in lines if line.strip()]


class History:
    """A site's copy of the ledger's chain, as hashes: `contents` and `hashes` have an entry for each line that it has
    been shown, `statements` one for each order. `gaps` are orders that went on from lines this site does not know: its
    folder was an old copy then, and what it was asked before is forgotten."""

    def __init__(self, folder: Path) -> None:
        self.path, self.keys = folder / HEADS_FILE, coordinator_keys(folder)
        self.contents: list[str] = []
        self.hashes: list[str] = []
        self.statements: list[Statement] = []
        self.gaps: list[Statement] = []
        content = self.path.read_bytes() if self.path.exists() else b""
        self._whole = content.rfind(b"\n") + 1  # after a kill, the last line may be a part of one
        for number, line in enumerate(content[: self._whole].splitlines()):
            try:
                said = json.loads(line)
                if _shown(said)[2] > len(self.hashes):
                    self.gaps.append(said)
                else:
                    self._adopt(said, *self._follow(said))
            except (ValueError, LookupError, TypeError, AttributeError, RecursionError, HistoryError) as error:
                raise FedsacError(f"{self.path}: line {number + 1} was changed or is damaged ({error})") from None

    @property
    def head(self) -> Head:
        return len(self.hashes), self.hashes[-1] if self.hashes else FIRST_PREVIOUS

    def take(self, site: str, order: Order) -> None:
        """Check an order's signature and its ledger against what this site has seen, and keep its statement; when this
        returns, it is on disk."""
        said = statement_of(site, order)
        if not _signed(self._signers(), said, order.signature):
            raise HistoryError("the order is not signed with the coordinator's key that this site has pinned")
        said["signature"] = order.signature
        if self.statements and _unsigned(self.statements[-1]) == _unsigned(said):
            return  # the same order once more
        before, (length, _, since, _) = self.head[0], _shown(said)
        if length <= before:
            raise HistoryError(
                f"the ledger has {length} lines, and this site has signed line {before} before: it was cut off or "
                "rewritten"
            )
        if since > before:
            self._append(said)
            self.gaps.append(said)
            raise HistoryError(
                f"this site knows {before} lines of the ledger, and is told what came after line {since}"
            )
        followed = self._follow(said)
        self._append(said)
        self._adopt(said, *followed)

    def _signers(self) -> list[bytes]:
        """The keys that an order may be signed with: the one that signed the last order, and later ones. So a new key
        counts as soon as it is pinned, and no earlier one any more once it was used."""
        known = [*self.statements, *self.gaps]
        last = max(known, key=lambda said: int(said["ledger"]["length"]), default=None)
        if last is None or len(self.keys) == 1:
            return self.keys
        used = [i for i, key in enumerate(self.keys) if _signed([key], _unsigned(last), last.get("signature"))]
        return self.keys[used[-1] :] if used else self.keys[-1:]

    def _follow(self, said: Statement) -> tuple[list[str], list[str]]:
        """Follow the chain from a line that is known to the head in a statement: all contents and hashes up to it."""
        length, head, since, contents = _shown(said)
        known = len(self.hashes)
        for line in range(since, min(known, length)):
            if contents[line - since] != self.contents[line]:
                raise HistoryError(f"line {line + 1} of the ledger is not the one that this site has signed")
        new, hashes = contents[known - since :], list(self.hashes)
        for content in new:
            hashes.append(line_hash(len(hashes), hashes[-1] if hashes else FIRST_PREVIOUS, content))
        if head != (hashes[length - 1] if length else FIRST_PREVIOUS):
            raise HistoryError(f"the ledger's line {length} does not follow line {known}, which this site has signed")
        return self.contents + new, hashes

    def _adopt(self, said: Statement, contents: list[str], hashes: list[str]) -> None:
        self.contents, self.hashes = contents, hashes
        self.statements.append(said)

    def _append(self, said: Statement) -> None:
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
            with os.fdopen(descriptor, "r+b") as file:
                file.truncate(self._whole)
                file.seek(self._whole)
                file.write(canonical(said) + b"\n")
                file.flush()
                os.fsync(file.fileno())
                self._whole = file.tell()
        except OSError as error:
            raise FedsacError(f"{self.path}: cannot be written ({error.strerror})") from None

    def rounds(self) -> list[int]:
        """The rounds that this site was asked to train, numbered from 1 as in receipts."""
        return sorted({said["round"] + 1 for said in self.statements if said["kind"] == "round"})

    def check_statements(self) -> None:
        """Raise at the first kept statement that the coordinator has not signed."""
        for said in [*self.statements, *self.gaps]:
            if not _signed(self.keys, _unsigned(said), said.get("signature")):
                what = f"the order {said['kind']} (round {said['round'] + 1})"
                raise HistoryError(f"{self.path}: {what} is not signed by the coordinator")

    def check_receipt(self, site: str, receipt: Mapping[str, Any], hashes: list[str] | None = None) -> None:
        """Raise unless a receipt is signed, is this site's, and agrees with everything that this site has seen.
        `hashes` are those of all lines, where more of the ledger is at hand than this site has been shown."""
        hashes = self.hashes if hashes is None else hashes
        check_receipt(receipt, self.keys)
        body, seq = receipt["body"], receipt["seq"]
        if receipt["kind"] != "reward" or body["site"] != site:
            raise HistoryError(f"the receipt is not for {site}'s reward")
        if not 0 <= seq < len(hashes) or hashes[seq] != receipt["hash"]:
            raise HistoryError(f"the receipt is not line {seq + 1} of the ledger that this site has seen")
        told = [said["contribution"] for said in self.statements if said["contribution"] is not None]
        if told and told[-1] != body["contribution"]:
            raise HistoryError(f"the receipt says contribution {body['contribution']}, and orders said {told[-1]}")
        forgotten = max((said["round"] for said in self.gaps), default=0)
        if unknown := sorted({n for n in body["rounds"] if n > forgotten} - set(self.rounds())):
            raise HistoryError(f"the receipt counts round {unknown[0]}, in which this site was not asked")

    def check_ledger(self, entries: list[Entry], where: Path) -> None:
        """Raise at the first line of a ledger that is not the one that this site has seen."""
        for line, (entry, content) in enumerate(zip(entries, self.contents, strict=False)):
            if content_hash(entry) != content or entry["hash"] != self.hashes[line]:
                said = next(said for said in self.statements if said["ledger"]["length"] > line)
                what = f"{said['kind']} (round {said['round'] + 1})"
                raise HistoryError(
                    f"{where}: line {line + 1} was rewritten: it is not the line that the coordinator signed to "
                    f"{said['site']} with the order {what}"
                )
        if len(entries) < len(self.hashes):
            raise HistoryError(
                f"{where}: it ends after line {len(entries)}, and the coordinator has signed line {len(self.hashes)} "
                "to this site: its end was cut off, or it is an old copy"
            )


def _shown(said: Statement) -> tuple[int, str, int, list[str]]:
    """Length, head, first line and contents of the ledger in a statement."""
    ledger = said["ledger"]
    try:
        length, since, contents = int(ledger["length"]), int(ledger["since"]), [str(c) for c in ledger["contents"]]
        head = str(ledger["head"])
    except (LookupError, TypeError, ValueError):
        raise HistoryError("the order does not say how far the ledger is") from None
    if not 0 <= since <= length == since + len(contents):
        raise HistoryError("the order does not say how far the ledger is")
    return length, head, since, contents


def _unsigned(said: Statement) -> Statement:
    return {name: value for name, value in said.items() if name != "signature"}


def _digest(content: object) -> bytes:
    return hashlib.sha256(canonical(content)).digest()


def _signed(keys: list[bytes], content: object, signature: object) -> bool:
    return any(identity.signed(key, _digest(content), str(signature)) for key in keys)
