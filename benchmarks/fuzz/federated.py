"""What coordinator and sites read of each other: ledger, receipts, heads, settings, invitations, messages."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from benchmarks.fuzz.readers import Reader, of_file
from fedsac.core.units import Layout
from fedsac.errors import FedsacError
from fedsac.federation import identity, ledger
from fedsac.federation.asking import _admitted
from fedsac.federation.declining import DECLINED
from fedsac.federation.flower_internals import BUNDLE, framed
from fedsac.federation.folder import Federation, SiteSettings, read_json, write_json
from fedsac.federation.guard import Asked, Raw, Reply
from fedsac.federation.history import History, signed_order, signed_receipt
from fedsac.federation.joining import join, proven_key
from fedsac.federation.link import ARRAYS, ORDER, REPLY, TRAIN, packed, packed_reply, read_order, read_reply
from fedsac.federation.renewing import admit_new_key, prepare
from fedsac.federation.renewing_site import new_key, take_renewal
from fedsac.federation.setup import init, invitation
from fedsac.federation.site import Site
from fedsac.federation.verifying import verify, verify_site
from fedsac.federation.wire import Order, arrays_of, digest, shapes
from fedsac.models.network import Network

APART = b"\0\0arrays\0\0"  # between a message's text and an array of it
LAYOUT = Layout((3, 2, 2))


def federated(folder: Path) -> Iterator[Reader]:
    """The readers; a federation of one site, with a ledger, heads and a receipt, is made in the folder."""
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1  # Flower sets them in its own processes
    init(folder, ["a", "z"], "127.0.0.1:9092")
    site, federation = folder / "a", Federation.load(folder)
    key = (federation.server / "receipts.key").read_bytes()
    entries, order = _written(federation, site, key)
    (folder / "empty.npz").write_bytes(b"")
    yield of_file("ledger", federation.ledger, ledger.read)
    yield Reader("ledger, chained anew", _lines(entries), lambda lines: _chained_anew(federation, site, lines))
    yield of_file("receipt", site / "receipt.json", lambda path: verify_site(site, None))
    receipt = json.dumps(read_json(site / "receipt.json")).encode()
    yield Reader("receipt, signed anew", receipt, lambda text: _signed_anew(site, key, text))
    yield of_file("heads", site / "heads.jsonl", lambda path: verify_site(site, None))
    yield of_file("federation.toml", folder / "federation.toml", lambda path: Federation.load(folder))
    yield of_file("site.toml", site / "site.toml", lambda path: SiteSettings.load(site))
    yield of_file("invitation", folder / "invitation.json", lambda path: _joined(folder / "joined", path))
    asked = invitation(federation)
    join(folder / "b", folder / "invitation.json")
    request = folder / "b" / "request.json"
    yield of_file("request", request, lambda path: proven_key(read_json(path), "b", asked, path))
    renewal, signer = prepare(federation, "signer")
    site_z = SiteSettings.load(folder / "z")
    yield of_file("renewal", renewal, lambda path: take_renewal(site_z, path, signer))
    new_key(SiteSettings.load(site))
    yield of_file("request for a new key", site / "request.json", lambda path: _key_admitted(federation, path))
    yield of_file("sites.json", folder / "sites.json", lambda path: verify(federation))
    yield from _messages(site, order)


def _key_admitted(federation: Federation, request: Path) -> None:
    """A site's new key, admitted; everything is then as it was."""
    before = federation.sites()
    admit_new_key(federation, request)
    federation.set_sites(before)


def _written(federation: Federation, site: Path, key: bytes) -> tuple[list[ledger.Entry], Order]:
    """A ledger of a short run, what the site has seen of it, its reward's receipt."""
    arrays = arrays_of(Network(LAYOUT, torch.ones(LAYOUT.parameters)))
    own = ledger.Ledger(federation.ledger)
    own.append("begun", sites=["a"])
    order = signed_order("a", Order("round", 0, "t" * 32, arrays=arrays, contribution=0.5), own, 0, key)
    history = History(site)
    history.take("a", order)
    reply = Reply("a", "round", 0, order.token, head=history.head)
    signature = identity.sign((site / "key").read_bytes(), reply.digest())
    said = {"a": {"token": reply.token, "content": reply.content(), "signature": signature}}
    own.append("signed", what="round", round=0, length=1, head=history.head[1], sites=said)
    own.append("round", round=1, answered=["a"])
    body = {"site": "a", "contribution": 0.5, "rounds": [1], "extra_epoch": False, "method": "fedsac"}
    own.append("reward", **body, sha256=digest(arrays))
    history.take("a", signed_order("a", Order("reward", 1, "u" * 32, contribution=0.5), own, 1, key))
    write_json(site / "receipt.json", signed_receipt(own.entries[-1], key))
    return own.entries, order


def _lines(entries: list[ledger.Entry]) -> bytes:
    return b"\n".join(json.dumps({name: e[name] for name in ("at", "kind", "body")}).encode() for e in entries)


def _chained_anew(federation: Federation, site: Path, lines: bytes) -> object:
    """A ledger whose chain holds, whatever its lines say: what a coordinator can write."""
    sound, entries, previous = federation.ledger.read_bytes(), [], ledger.FIRST_PREVIOUS
    try:
        for seq, line in enumerate(lines.splitlines()):
            entry: dict[str, Any] = {"at": "", "kind": "", "body": {}} | json.loads(line)
            entry |= {"format_version": ledger.LEDGER_VERSION, "seq": seq, "previous": previous}
            previous = entry["hash"] = ledger.line_hash(seq, previous, ledger.content_hash(entry))
            entries.append(ledger.canonical(entry) + b"\n")
    except (ValueError, TypeError, RecursionError):
        return None  # not a line that anybody can write
    try:
        federation.ledger.write_bytes(b"".join(entries))
        said = []
        for check in (lambda: verify(federation), lambda: verify_site(site, federation.ledger)):
            try:
                said.append(check())
            except FedsacError as error:
                said.append([str(error)])
        return said
    finally:
        federation.ledger.write_bytes(sound)


def _signed_anew(site: Path, key: bytes, text: bytes) -> object:
    """A receipt that the coordinator has signed, whatever it says."""
    path = site / "receipt.json"
    sound = path.read_bytes()
    try:
        line = {"at": "", "kind": "", "body": {}, "seq": 0, "previous": "", "hash": ""} | json.loads(text)
        line["hash"] = ledger.line_hash(line["seq"], line["previous"], ledger.content_hash(line))
        path.write_text(json.dumps({"format_version": 1} | signed_receipt(line, key)))
    except (ValueError, TypeError, RecursionError):
        return None
    try:
        return verify_site(site, None)
    finally:
        path.write_bytes(sound)


def _joined(folder: Path, path: Path) -> object:
    shutil.rmtree(folder, ignore_errors=True)
    return join(folder, path)


def _messages(site: Path, order: Order) -> Iterator[Reader]:
    """Messages: the frame that carries them, and text and array inside it. Signatures are not checked at the
    coordinator's end, so that what comes after them is tried, too."""
    raw = {name: Raw.of(array) for name, array in order.arrays.items()}
    reply = Reply("a", "round", 0, order.token, {"samples": 3}, raw, head=(1, "h"))
    content, asked = packed_reply(reply), _asked(order)
    yield Reader("frame of a reply", framed(content), lambda frame: _answered(order, asked, _bundle(frame)))
    name = "0.weight"
    text = str(content.config_records[REPLY]["json"]).encode() + APART + raw[name].data
    yield Reader("reply", text, lambda text: _answered(order, asked, _with_parts(content, REPLY, name, text)))
    declined = str(packed_reply(replace(reply, facts={DECLINED: "data"})).config_records[REPLY]["json"]).encode()
    yield Reader(
        "reply that declines", declined, lambda text: _answered(order, asked, _with_parts(content, REPLY, name, text))
    )
    sent = packed(order)
    yield Reader("frame of an order", framed(sent), lambda frame: _carried_out(site, _bundle(frame)))
    text = str(sent.config_records[ORDER]["json"]).encode() + APART + raw[name].data
    yield Reader("order", text, lambda text: _carried_out(site, _with_parts(sent, ORDER, name, text)))


def _asked(order: Order) -> Asked:
    asked = Asked("a", order.kind, order.round, order.token, shapes(order.arrays), order.arrays)
    return replace(asked, max_bytes=1 << 20)


def _bundle(frame: bytes) -> Message:
    return _message(RecordDict({BUNDLE: ConfigRecord({"bytes": frame})}))


def _with_parts(content: RecordDict, record: str, name: str, parts: bytes) -> Message:
    """The message with another text, and other bytes of one array; without arrays where the parts have none."""
    text, apart, data = parts.partition(APART)
    said = dict(content.config_records[record]) | {"json": text.decode(errors="replace")}
    if not apart:
        return _message(RecordDict({record: ConfigRecord(said)}))
    arrays = dict(content.array_records[ARRAYS])
    claimed = arrays[name]
    arrays[name] = Array(claimed.dtype, claimed.shape, claimed.stype, data)
    return _message(RecordDict({record: ConfigRecord(said), ARRAYS: ArrayRecord(arrays)}))


def _message(content: RecordDict) -> Message:
    return Message(content, 1, TRAIN, ttl=60.0)


def _answered(order: Order, asked: Asked, message: Message) -> dict[str, np.ndarray]:
    return _admitted(asked, read_reply("a", message), order)


def _carried_out(site: Path, message: Message) -> Reply:
    """Nothing in these orders is signed by the coordinator: a site declines them all."""
    reply = Site(site).answer(read_order(message))
    if DECLINED not in reply.facts:
        raise AssertionError(f"not declined: {reply.facts}")
    return reply
