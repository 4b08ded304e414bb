"""`Link`: how the coordinator sends orders to sites and receives replies; `GridLink` does it on Flower's grid."""

import json
import struct
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import httpx
import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from google.protobuf.message import DecodeError

from fedsac.errors import FedsacError
from fedsac.federation.flower_internals import bundled, message_bytes, unbundled
from fedsac.federation.guard import NO_HEADER, Raw, RefusedError, Reply, printable
from fedsac.federation.wire import WIRE_FORMAT, Order

ORDER, REPLY, ARRAYS = "order", "reply", "arrays"  # the records of a message
POLL_SECONDS = 0.3  # between two checks for replies
PUSHES = 5  # of one message, while the server answers that it cannot
SERVER_ERROR = 500
PULL_SECONDS = 2.0  # that the others wait for one reply to be fetched
UNDECODABLE = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    DecodeError,
    struct.error,
)
"""What decoding a malformed message may raise; a network failure raises something else."""
TRAIN = "train"  # Flower's type of all our messages; what to do is in the order


@dataclass(frozen=True)
class Exchange:
    """The outcome of a set of orders, by site: replies; why a message was refused before it could be read as a reply;
    why there was no answer (lost); and the bytes of each message sent."""

    replies: dict[str, Reply] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)


class Link(Protocol):
    """The coordinator's connection to the sites."""

    def present(self) -> set[str]:
        """The sites that are connected now."""
        ...

    def exchange(self, orders: Mapping[str, Order], timeout: float) -> Exchange:
        """Send each site its order, and wait for all replies, at most `timeout` seconds."""
        ...


class GridLink:
    """Sites as nodes on Flower's grid. `nodes` returns each site's node."""

    def __init__(self, grid: Grid, nodes: Callable[[], Mapping[str, int]], sleep: Callable[[float], None] = time.sleep):
        self._grid, self._nodes, self._sleep = grid, nodes, sleep

    def present(self) -> set[str]:
        connected = set(self._grid.get_node_ids())
        return {site for site, node in self._nodes().items() if node in connected}

    def exchange(self, orders: Mapping[str, Order], timeout: float) -> Exchange:
        nodes = self._nodes()
        exchange = Exchange()
        waiting: dict[str, str] = {}  # id of a message without a reply yet -> site
        for site, order in orders.items():
            message = Message(bundled(packed(order)), nodes[site], TRAIN, ttl=timeout, group_id=str(order.round))
            exchange.sent[site] = message_bytes(message)
            # One by one: a large federation's models together may be too much for one request.
            if id := self._push(message):
                waiting[id] = site
        end = time.monotonic() + timeout
        pulls: dict[str, Pull] = {}  # replies that are being fetched
        while waiting and time.monotonic() < end:
            for id in list(waiting):
                seconds = 0.0 if id in pulls else min(PULL_SECONDS, end - time.monotonic())
                pull = pulls[id] = pulls.get(id) or Pull(self._grid, id)
                if pull.done(seconds):
                    del pulls[id]
                    self._take(exchange, pull, waiting, nodes)
            if waiting:
                self._sleep(POLL_SECONDS)
        silent = set(orders) - set(exchange.replies) - set(exchange.refused) - set(exchange.lost)
        exchange.lost.update(dict.fromkeys(silent, f"no answer in {timeout:g} s"))
        return exchange

    def _push(self, message: Message) -> str:
        """Hand a message to Flower's server; returns its id, empty if it was not taken. The server answers 500 where
        its database is locked for too long; the same message may be handed over again."""
        for _ in range(PUSHES - 1):
            try:
                return next(iter(self._grid.push_messages([message])), "") or ""
            except httpx.HTTPStatusError as error:
                if error.response.status_code < SERVER_ERROR:
                    raise
            self._sleep(POLL_SECONDS)
        return next(iter(self._grid.push_messages([message])), "") or ""

    def _take(self, exchange: Exchange, pull: "Pull", waiting: dict[str, str], nodes: Mapping[str, int]) -> None:
        """Add what was fetched to the exchange."""
        try:
            messages = pull.result()
        except httpx.HTTPStatusError as error:
            if error.response.status_code < SERVER_ERROR:
                raise
            return  # its database was locked: asked again
        except UNDECODABLE as error:
            exchange.refused[waiting.pop(pull.id)] = f"format: it cannot be decoded ({printable(error)[:80]})"
            return
        for message in messages:
            if message.metadata.reply_to_message_id == pull.id and pull.id in waiting:
                site = waiting.pop(pull.id)
                self._sort(exchange, site, nodes[site], message)

    def _sort(self, exchange: Exchange, site: str, node: int, message: Message) -> None:
        """Add a message to the exchange: as a reply, as refused or as lost."""
        if message.has_error():
            exchange.lost[site] = f"error {message.error.code}: {printable(message.error.reason)[:300]}"
        elif message.metadata.src_node_id != node:
            exchange.refused[site] = f"identity: it comes from node {message.metadata.src_node_id}, not from {site}'s"
        else:
            try:
                exchange.replies[site] = read_reply(site, message)
            except RefusedError as error:
                exchange.refused[site] = str(error)


class Pull:
    """Fetches the reply to one message, if it has come, from a thread of its own.

    Flower decodes replies while it fetches them, so they are fetched one by one: a reply that cannot be decoded then
    fails one site only. And it waits for a reply that was announced and not uploaded yet, some 200 s, whatever the
    round's timeout: in a thread that keeps nobody else waiting, and is left to itself when the round is over.
    """

    def __init__(self, grid: Grid, id: str) -> None:
        self._grid, self.id = grid, id
        self._messages: list[Message] = []
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._fetch, daemon=True)
        self._thread.start()

    def _fetch(self) -> None:
        try:
            self._messages = list(self._grid.pull_messages([self.id]))
        except Exception as error:  # noqa: BLE001  raised where the result is read
            self._error = error

    def done(self, seconds: float) -> bool:
        """Whether the server has answered, after this many seconds at most."""
        self._thread.join(max(seconds, 0.0))
        return not self._thread.is_alive()

    def result(self) -> list[Message]:
        if self._error is not None:
            raise self._error
        return self._messages


def packed(order: Order) -> RecordDict:
    """An order as the content of a message: a JSON text, and the arrays if there are any."""
    text = {
        **{"kind": order.kind, "round": order.round, "token": order.token, "facts": dict(order.facts)},
        **{"ledger": dict(order.ledger), "contribution": order.contribution, "signature": order.signature},
    }
    # Beside the text, so that it can be read whatever the text has become; a site of before ignores it.
    version: dict[str, Any] = {"wire": order.wire, "fedsac": order.fedsac}
    records: dict[str, Any] = {ORDER: ConfigRecord({"json": json.dumps(text, allow_nan=False), **version})}
    if order.arrays:
        records[ARRAYS] = ArrayRecord({name: Array(np.ascontiguousarray(a)) for name, a in order.arrays.items()})
    return RecordDict(records)


def read_order(message: Message) -> Order:
    """The order in a message; whether the coordinator has signed it is checked by the site. Of an order in another wire
    format only what an answer needs is read."""
    try:
        content = unbundled(message.content)
        record = content.config_records[ORDER]
        text = json.loads(str(record["json"]))
        if not isinstance(text["kind"], str) or type(text["round"]) is not int:
            raise ValueError("an unexpected text")
        wire, fedsac = int(str(record.get("wire", 1))), printable(record.get("fedsac", "of before"))[:40]
        if wire != WIRE_FORMAT:
            return Order(text["kind"], text["round"], str(text["token"]), wire=wire, fedsac=fedsac)
        arrays = content.array_records[ARRAYS] if ARRAYS in content else ArrayRecord()
        return Order(**text, wire=wire, fedsac=fedsac, arrays={name: array.numpy() for name, array in arrays.items()})
    except (*NO_HEADER, *UNDECODABLE) as error:
        raise FedsacError(f"a message is no order ({printable(error)[:80]})") from None


def packed_reply(reply: Reply) -> RecordDict:
    """A site's reply as the content of a message."""
    text = {
        **{"kind": reply.kind, "round": reply.round, "token": reply.token, "facts": dict(reply.facts)},
        "head": list(reply.head),
    }
    record = ConfigRecord({"json": json.dumps(text, allow_nan=False), "signature": reply.signature})
    records: dict[str, Any] = {REPLY: record}
    if reply.arrays:
        arrays = {name: Array(raw.dtype, raw.shape, "numpy.ndarray", raw.data) for name, raw in reply.arrays.items()}
        records[ARRAYS] = ArrayRecord(arrays)
    return RecordDict(records)


def read_reply(site: str, message: Message) -> Reply:
    """The reply in a message from a site's node. Nothing in it is trusted: what is not a reply is refused."""
    try:
        content = unbundled(message.content)
        record = content[REPLY]
        if not isinstance(record, ConfigRecord) or set(record) != {"json", "signature"}:
            raise ValueError("an unexpected record")
        text = json.loads(str(record["json"]))
        if set(text) != {"kind", "round", "token", "facts", "head"} or not isinstance(text["facts"], dict):
            raise ValueError("an unexpected text")
        kind, round, token = str(text["kind"]), int(text["round"]), str(text["token"])
        length, last = text["head"]
        head = int(length), str(last)
        arrays = content[ARRAYS] if ARRAYS in content else ArrayRecord()
        if not isinstance(arrays, ArrayRecord) or any(a.stype != "numpy.ndarray" for a in arrays.values()):
            raise ValueError("arrays of an unexpected kind")
        raw = {str(name): Raw(str(a.dtype), tuple(a.shape), a.data) for name, a in arrays.items()}
    except UNDECODABLE as error:
        raise RefusedError(f"format: it is no reply ({printable(error)[:80]})") from None
    extra = tuple(sorted(str(name) for name in content if name not in (REPLY, ARRAYS)))
    size, signature = message_bytes(message), str(record["signature"])
    return Reply(site, kind, round, token, text["facts"], raw, size, extra, signature, head)
