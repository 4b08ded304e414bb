"""Finding out which node is which site where Flower does not know the sites' keys: without TLS, and in a simulation."""

import hashlib
import secrets
from collections.abc import Mapping
from typing import Any

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from fedsac.federation import identity
from fedsac.federation.folder import Federation
from fedsac.federation.link import TRAIN, UNDECODABLE
from fedsac.federation.site import Site

INTRODUCTION = "who"  # the record of a message that asks a node which site it is, and of its answer
ANSWER_TIMEOUT_SECONDS = 120.0


class Introductions:
    """Called, asks every new node which site it is and returns each site's node. A node proves which site it is by the
    site's signature over a random text."""

    def __init__(self, grid: Grid, federation: Federation) -> None:
        self._grid, self._federation = grid, federation
        self._asked: set[int] = set()
        self._nodes: dict[str, int] = {}

    def __call__(self) -> Mapping[str, int]:
        new = set(self._grid.get_node_ids()) - self._asked
        self._asked |= new
        texts = {node: secrets.token_hex(16) for node in new}
        messages = [
            Message(RecordDict({INTRODUCTION: ConfigRecord({"text": t})}), n, TRAIN, ttl=ANSWER_TIMEOUT_SECONDS)
            for n, t in texts.items()
        ]
        for reply in self._grid.send_and_receive(messages, timeout=ANSWER_TIMEOUT_SECONDS) if messages else ():
            node = reply.metadata.src_node_id
            if reply.has_content() and (site := self._verified_site(reply, texts.get(node, ""))) is not None:
                self._nodes[site] = node  # a site that was restarted has another node now
        return dict(self._nodes)

    def _verified_site(self, reply: Message, text: str) -> str | None:
        """The site named in a reply, if the signature is valid."""
        try:
            record: Any = reply.content[INTRODUCTION]
            site, signature = str(record["site"]), str(record["signature"])
            public = self._federation.sites()[site]["public_key"].encode()
        except UNDECODABLE:
            return None
        return site if text and identity.signed(public, _digest(text), signature) else None


def introduce(site: Site, message: Message) -> Message:
    """A site's answer to the question which site it is."""
    text = str(message.content.config_records[INTRODUCTION]["text"])
    signature = identity.sign((site.settings.path / "key").read_bytes(), _digest(text))
    record = ConfigRecord({"site": site.settings.name, "signature": signature})
    return Message(RecordDict({INTRODUCTION: record}), reply_to=message)


def _digest(text: str) -> bytes:
    return hashlib.sha256(f"who {text}".encode()).digest()
