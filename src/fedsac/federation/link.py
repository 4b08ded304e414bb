"""`Link`: how the coordinator sends orders to sites and receives replies; `GridLink` does it on Flower's grid."""

import json
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from google.protobuf.message import DecodeError

from fedsac.federation.flower_internals import message_bytes
from fedsac.federation.guard import Raw, RefusedError, Reply, printable
from fedsac.federation.wire import Order

ORDER, REPLY, ARRAYS = "order", "reply", "arrays"  # the records of a message
POLL_SECONDS = 1.0  # between two checks for replies
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
            message = Message(packed(order), nodes[site], TRAIN, ttl=timeout, group_id=str(order.round))
            exchange.sent[site] = message_bytes(message)
            # One by one: a large federation's models together may be too much for one request.
            for id in self._grid.push_messages([message]):
                if id:
                    waiting[id] = site
        end = time.monotonic() + timeout
        while waiting and time.monotonic() < end:
            for id in list(waiting):
                self._pull(exchange, id, waiting, nodes)
            if waiting:
                self._sleep(POLL_SECONDS)
        silent = set(orders) - set(exchange.replies) - set(exchange.refused) - set(exchange.lost)
        exchange.lost.update(dict.fromkeys(silent, f"no answer in {timeout:g} s"))
        return exchange

    def _pull(self, exchange: Exchange, id: str, waiting: dict[str, str], nodes: Mapping[str, int]) -> None:
        """Fetch the reply to one message, if it has come. Flower decodes replies while it fetches them, so they are
        fetched one by one: a reply that cannot be decoded then fails one site only."""
        try:
            messages = list(self._grid.pull_messages([id]))
        except UNDECODABLE as error:
            exchange.refused[waiting.pop(id)] = f"format: it cannot be decoded ({printable(error)[:80]})"
            return
        for message in messages:
            if message.metadata.reply_to_message_id == id and id in waiting:
                site = waiting.pop(id)
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


def packed(order: Order) -> RecordDict:
    """An order as the content of a message: a JSON text, and the arrays if there are any."""
    text = {
        **{"kind": order.kind, "round": order.round, "token": order.token, "facts": dict(order.facts)},
        **{"ledger": dict(order.ledger), "contribution": order.contribution, "signature": order.signature},
    }
    records: dict[str, Any] = {ORDER: ConfigRecord({"json": json.dumps(text, allow_nan=False)})}
    if order.arrays:
        records[ARRAYS] = ArrayRecord({name: Array(np.ascontiguousarray(a)) for name, a in order.arrays.items()})
    return RecordDict(records)


def read_order(message: Message) -> Order:
    """The order in a message; whether the coordinator has signed it is checked by the site."""
    text = json.loads(str(message.content.config_records[ORDER]["json"]))
    arrays = message.content.array_records[ARRAYS] if ARRAYS in message.content else ArrayRecord()
    return Order(**text, arrays={name: array.numpy() for name, array in arrays.items()})


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
    content = message.content
    try:
        record = content[REPLY]
        if not isinstance(record, ConfigRecord) or set(record) != {"json", "signature"}:
            raise ValueError("an unexpected record")
        text = json.loads(str(record["json"]))
        if set(text) != {"kind", "round", "token", "facts", "head"} or not isinstance(text["facts"], dict):
            raise ValueError("an unexpected text")
        kind, round, token = str(text["kind"]), int(text["round"]), str(text["token"])
        length, head = text["head"]
        arrays = content[ARRAYS] if ARRAYS in content else ArrayRecord()
        if not isinstance(arrays, ArrayRecord) or any(a.stype != "numpy.ndarray" for a in arrays.values()):
            raise ValueError("arrays of an unexpected kind")
        raw = {str(name): Raw(str(a.dtype), tuple(a.shape), a.data) for name, a in arrays.items()}
    except UNDECODABLE as error:
        raise RefusedError(f"format: it is no reply ({printable(error)[:80]})") from None
    extra = tuple(sorted(str(name) for name in content if name not in (REPLY, ARRAYS)))
    size, signature = message_bytes(message), str(record["signature"])
    return Reply(site, kind, round, token, text["facts"], raw, size, extra, signature, (int(length), str(head)))
