"""`fedsac federation verify`: at the coordinator everything in its folder, at a site what the site has."""

from pathlib import Path
from typing import Any

from fedsac.errors import FedsacError
from fedsac.federation import identity
from fedsac.federation.folder import Federation, SiteSettings, read_json
from fedsac.federation.guard import printable, reply_digest
from fedsac.federation.history import History, check_receipt
from fedsac.federation.ledger import Entry, read
from fedsac.federation.renewing import former_signers
from fedsac.federation.renewing_site import own_keys
from fedsac.federation.wire import arrays_of, digest
from fedsac.models.files import ModelFile

MISSHAPEN = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
"""What comes of lines whose hashes hold and that say something else than such a line says."""


def verify(federation: Federation) -> list[str]:
    """Check the ledger, the sites' signatures in it, and all receipts and rewards in the folder: a line on each that is
    right, `FedsacError` at the first that is wrong."""
    try:
        return _verified(federation)
    except MISSHAPEN as error:
        raise _misshapen(federation.path, error) from error


def _misshapen(path: Path, error: Exception) -> FedsacError:
    what = f"{type(error).__name__}: {printable(error)[:80]}"
    return FedsacError(f"{path}: ledger, heads or receipt say what no fedsac writes ({what}): changed, or damaged")


def _verified(federation: Federation) -> list[str]:
    if not federation.ledger.exists():
        raise FedsacError(
            f"{federation.ledger}: there is none yet; the run writes it, which begins with: fedsac federation run "
            f"{federation.path}"
        )
    entries = read(federation.ledger)
    lines = [f"ledger: {_length_and_head(entries)}, and the chain holds", _check_signatures(federation, entries)]
    keys = [*former_signers(federation), (federation.server / "receipts.pub").read_bytes()]
    for path in sorted(federation.receipts.glob("*.json")) if federation.receipts.exists() else []:
        lines += _check_receipt(path, entries, keys, federation.path)
    for site in sorted(path.parent for path in federation.path.glob("*/site.toml")):
        if (site / "receipt.json").exists():
            lines += _check_receipt(site / "receipt.json", entries, keys, federation.path)
            lines += _check_reward(site, federation.path)
        History(site).check_ledger(entries, federation.ledger)
    return lines


def verify_site(folder: Path, ledger: Path | None) -> list[str]:
    """Check what a site has: the heads that the coordinator signed, its receipt and its reward; and, if there is a copy
    of it, the `ledger`. A line on each that is right, `FedsacError` at the first that contradicts the rest."""
    try:
        return _verified_site(folder, ledger)
    except MISSHAPEN as error:
        raise _misshapen(folder, error) from error


def _verified_site(folder: Path, ledger: Path | None) -> list[str]:
    site = SiteSettings.load(folder)
    history = History(site.path)
    history.check_statements()
    length, head = history.head
    lines = [f"heads.jsonl: {len(history.statements)} orders, each signed by the coordinator and after the one before"]
    lines += [f"ledger as this site has signed it: {length} lines, the last one's hash is {head}"]
    lines += [f"what this site saw before round {said['round'] + 1} is forgotten" for said in history.gaps]
    if ledger is not None:
        entries = read(ledger)
        history.check_ledger(entries, ledger)
        _check_own_signatures(site.name, own_keys(site.path), entries, ledger)
        lines.append(f"{ledger}: {_length_and_head(entries)}; the first {length} are those that this site has signed")
    else:
        entries = []
        lines.append("not compared with the ledger; with a copy of it: --ledger FILE")
    if not (site.path / "receipt.json").exists():
        return [*lines, "receipt.json: there is none yet"]
    return lines + _check_own_receipt(site, history, entries) + _check_reward(site.path, site.path)


def _check_own_receipt(site: SiteSettings, history: History, entries: list[Entry]) -> list[str]:
    """The receipt in a site's folder. One that was handed over as a file is of a line that the site has not seen; it
    takes a copy of the ledger to check that."""
    path, receipt = site.path / "receipt.json", read_json(site.path / "receipt.json")
    known = [*history.hashes, *(entry["hash"] for entry in entries[len(history.hashes) :])]
    try:
        history.check_receipt(site.name, receipt, known)
    except FedsacError as error:
        hint = "" if entries else "; if it was handed over as a file, a copy of the ledger shows it: --ledger FILE"
        raise FedsacError(f"{path}: {error}{hint}") from None
    lines = [f"receipt.json: line {receipt['seq'] + 1} of that ledger, signed by the coordinator"]
    if uncounted := sorted(set(history.rounds()) - set(receipt["body"]["rounds"])):
        lines.append(f"asked in, but not counted (lost or refused): round {', '.join(map(str, uncounted))}")
    return lines


def _length_and_head(entries: list[Entry]) -> str:
    return f"{len(entries)} lines" + (f" (head {entries[-1]['hash']})" if entries else "")


def _check_signatures(federation: Federation, entries: list[Entry]) -> str:
    """Every answer that a round counts must come with its site's signature over the ledger as it was then."""
    sites = federation.sites().items()
    keys = {name: [key.encode() for key in (*site.get("former_keys", []), site["public_key"])] for name, site in sites}
    counted, signed = 0, {}
    for entry in entries:
        body, where = entry["body"], f"{federation.ledger}: line {entry['seq'] + 1}"
        if entry["kind"] == "renewed" and body["site"] in keys:
            _next_key(keys[body["site"]], body, where)
        if entry["kind"] == "signed":
            _check_head(entry, entries, where)
            for name in body["sites"]:
                if name not in keys or not _is_signed(keys[name][0], name, entry):
                    raise FedsacError(f"{where}: not signed by {name}: the ledger was rewritten")
                counted += 1
            signed = {(body["what"], body["round"]): set(body["sites"])}
        if entry["kind"] == "round":
            missing = set(body["answered"]) - signed.get(("round", body["round"] - 1), set())
            if missing:
                raise FedsacError(f"{where}: counts an answer of {min(missing)}, who has not signed it")
    return f"ledger: {counted} signatures of {len(keys)} sites agree with it"


def _check_head(entry: Entry, entries: list[Entry], where: str) -> None:
    length, head = entry["body"]["length"], entry["body"]["head"]
    if not 0 < length <= entry["seq"] or entries[length - 1]["hash"] != head:
        raise FedsacError(f"{where}: what was signed is not the ledger's line {length}: it was rewritten")


def _is_signed(key: bytes, name: str, entry: Entry) -> bool:
    body = entry["body"]
    said = body["sites"][name]
    digest = reply_digest(body["what"], body["round"], said["token"], (body["length"], body["head"]), said["content"])
    return identity.signed(key, digest, said["signature"])


def _next_key(keys: list[bytes], body: dict[str, Any], where: str) -> None:
    """Go on to the key that a site has signed with from this line on: the first in `keys` is the one in use."""
    del keys[0]
    if not keys or identity.fingerprint(keys[0]) != body["key"]:
        raise FedsacError(f"{where}: {body['site']} had no such key in sites.json: one of the two was changed")


def _check_own_signatures(name: str, keys: list[bytes], entries: list[Entry], ledger: Path) -> None:
    for entry in entries:
        where = f"{ledger}: line {entry['seq'] + 1}"
        if entry["kind"] == "renewed" and entry["body"]["site"] == name:
            _next_key(keys, entry["body"], where)
        if entry["kind"] == "signed" and name in entry["body"]["sites"] and not _is_signed(keys[0], name, entry):
            raise FedsacError(f"{where} has a signature of {name} that {name} has not made")


def _check_receipt(path: Path, entries: list[Entry], keys: list[bytes], base: Path) -> list[str]:
    receipt = read_json(path)
    try:
        check_receipt(receipt, keys)
    except FedsacError as error:
        raise FedsacError(f"{path}: {error}") from None
    if not 0 <= int(receipt["seq"]) < len(entries):
        raise FedsacError(f"{path}: the ledger has no line {receipt['seq'] + 1}; its end was cut off")
    if entries[receipt["seq"]]["hash"] != receipt["hash"]:
        raise FedsacError(f"{path}: the ledger's line {receipt['seq'] + 1} says something else")
    return [f"{path.relative_to(base)}: agrees with line {receipt['seq'] + 1} of the ledger"]


def _check_reward(site: Path, base: Path) -> list[str]:
    """The reward beside a site's receipt; after an extra epoch at the site it is another model than the one sent."""
    reward, body = site / "reward.safetensors", read_json(site / "receipt.json")["body"]
    if not reward.exists() or body["extra_epoch"]:
        return []
    if digest(arrays_of(ModelFile.load(reward, SiteSettings.load(site).model or None).network)) != body["sha256"]:
        raise FedsacError(f"{reward}: not the model that the receipt is for")
    return [f"{reward.relative_to(base)}: the model that the receipt is for"]
