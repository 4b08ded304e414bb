"""Between the coordinator and the sites: what any network must offer, and how it is done on Flower's grid."""

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
POLL = 1.0  # seconds between two looks for replies
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
"""What a hostile message may raise on its way to becoming a reply; a network that fails raises something else."""
TRAIN = "train"  # the one type of message: what is to be done stands in the order


@dataclass(frozen=True)
class Exchange:
    """What came of a set of orders, by site: replies; what was refused before it could be read as one; who was lost,
    and how; the bytes of each message sent."""

    replies: dict[str, Reply] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)


class Link(Protocol):
    def present(self) -> set[str]:
        """The sites that can be reached now."""
        ...

    def exchange(self, orders: Mapping[str, Order], timeout: float) -> Exchange:
        """Send each site its order, and wait for answers until all have come or the time is over."""
        ...


class GridLink:
    """Sites as nodes on Flower's grid. `nodes` says which node a site is: the one its key was registered for."""

    def __init__(self, grid: Grid, nodes: Callable[[], Mapping[str, int]], sleep: Callable[[float], None] = time.sleep):
        self._grid, self._nodes, self._sleep = grid, nodes, sleep

    def present(self) -> set[str]:
        there = set(self._grid.get_node_ids())
        return {site for site, node in self._nodes().items() if node in there}

    def exchange(self, orders: Mapping[str, Order], timeout: float) -> Exchange:
        nodes = self._nodes()
        found = Exchange()
        waiting: dict[str, str] = {}  # message -> site
        for site, order in orders.items():
            message = Message(packed(order), nodes[site], TRAIN, ttl=timeout, group_id=str(order.round))
            found.sent[site] = message_bytes(message)
            # One by one: the whole of a large federation's models need not lie in one request.
            for id in self._grid.push_messages([message]):
                if id:
                    waiting[id] = site
        end = time.monotonic() + timeout
        while waiting and time.monotonic() < end:
            for id in list(waiting):
                self._pull(found, id, waiting, nodes)
            if waiting:
                self._sleep(POLL)
        unheard = set(orders) - set(found.replies) - set(found.refused) - set(found.lost)
        found.lost.update(dict.fromkeys(unheard, f"no answer in {timeout:g} s"))
        return found

    def _pull(self, found: Exchange, id: str, waiting: dict[str, str], nodes: Mapping[str, int]) -> None:
        """Take what has come for one message. Flower decodes replies before anybody can look at them: what it cannot
        decode is that site's failure, and not everybody's."""
        try:
            messages = list(self._grid.pull_messages([id]))
        except UNDECODABLE as error:
            found.refused[waiting.pop(id)] = f"format: it cannot be decoded ({printable(error)[:80]})"
            return
        for message in messages:
            if message.metadata.reply_to_message_id == id and id in waiting:
                site = waiting.pop(id)
                self._take(found, site, nodes[site], message)

    def _take(self, found: Exchange, site: str, node: int, message: Message) -> None:
        if message.has_error():
            found.lost[site] = f"error {message.error.code}: {printable(message.error.reason)[:300]}"
        elif message.metadata.src_node_id != node:
            found.refused[site] = f"identity: it comes from node {message.metadata.src_node_id}, not from {site}'s"
        else:
            try:
                found.replies[site] = read_reply(site, message)
            except RefusedError as error:
                found.refused[site] = str(error)


def packed(order: Order) -> RecordDict:
    """An order as the content of a message: one text, and arrays where there are any."""
    said = {"kind": order.kind, "round": order.round, "token": order.token, "facts": dict(order.facts)}
    records: dict[str, Any] = {ORDER: ConfigRecord({"json": json.dumps(said, allow_nan=False)})}
    if order.arrays:
        records[ARRAYS] = ArrayRecord({name: Array(np.ascontiguousarray(a)) for name, a in order.arrays.items()})
    return RecordDict(records)


def read_order(message: Message) -> Order:
    """The order in a message; what a coordinator sends is trusted to be one."""
    said = json.loads(str(message.content.config_records[ORDER]["json"]))
    arrays = message.content.array_records[ARRAYS] if ARRAYS in message.content else ArrayRecord()
    return Order(**said, arrays={name: array.numpy() for name, array in arrays.items()})


def packed_reply(reply: Reply) -> RecordDict:
    """A site's reply as the content of a message."""
    said = {"kind": reply.kind, "round": reply.round, "token": reply.token, "facts": dict(reply.facts)}
    text = json.dumps(said, allow_nan=False)
    records: dict[str, Any] = {REPLY: ConfigRecord({"json": text, "signature": reply.signature})}
    if reply.arrays:
        arrays = {name: Array(raw.dtype, raw.shape, "numpy.ndarray", raw.data) for name, raw in reply.arrays.items()}
        records[ARRAYS] = ArrayRecord(arrays)
    return RecordDict(records)


def read_reply(site: str, message: Message) -> Reply:
    """What came back from a site's node. Nothing in it is trusted: whatever is not a reply is refused."""
    content = message.content
    try:
        record = content[REPLY]
        if not isinstance(record, ConfigRecord) or set(record) != {"json", "signature"}:
            raise ValueError("an unexpected record")
        said = json.loads(str(record["json"]))
        if set(said) != {"kind", "round", "token", "facts"} or not isinstance(said["facts"], dict):
            raise ValueError("an unexpected text")
        kind, round, token = str(said["kind"]), int(said["round"]), str(said["token"])
        arrays = content[ARRAYS] if ARRAYS in content else ArrayRecord()
        if not isinstance(arrays, ArrayRecord) or any(a.stype != "numpy.ndarray" for a in arrays.values()):
            raise ValueError("arrays of an unexpected kind")
        raw = {str(name): Raw(str(a.dtype), tuple(a.shape), a.data) for name, a in arrays.items()}
    except UNDECODABLE as error:
        raise RefusedError(f"format: it is no reply ({printable(error)[:80]})") from None
    extra = tuple(sorted(str(name) for name in content if name not in (REPLY, ARRAYS)))
    size, signature = message_bytes(message), str(record["signature"])
    return Reply(site, kind, round, token, said["facts"], raw, size, extra, signature)
