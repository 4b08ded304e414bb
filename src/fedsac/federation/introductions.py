"""Which node is which site, where Flower does not know the sites' keys: without TLS, and in a simulation."""

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

WHO = "who"  # the record of a message that asks a node which site it is, and of the answer
SECONDS = 120.0  # for an answer


class Introductions:
    """Asks every node that is new which site it is; the site's signature over a fresh text proves it."""

    def __init__(self, grid: Grid, federation: Federation) -> None:
        self._grid, self._federation = grid, federation
        self._asked: set[int] = set()
        self._found: dict[str, int] = {}

    def __call__(self) -> Mapping[str, int]:
        new = set(self._grid.get_node_ids()) - self._asked
        self._asked |= new
        texts = {node: secrets.token_hex(16) for node in new}
        asking = [
            Message(RecordDict({WHO: ConfigRecord({"text": t})}), n, TRAIN, ttl=SECONDS) for n, t in texts.items()
        ]
        for reply in self._grid.send_and_receive(asking, timeout=SECONDS) if asking else ():
            node = reply.metadata.src_node_id
            if reply.has_content() and (site := self._proved(reply, texts.get(node, ""))) is not None:
                self._found[site] = node  # a site that was restarted is another node now
        return dict(self._found)

    def _proved(self, reply: Message, text: str) -> str | None:
        try:
            said: Any = reply.content[WHO]
            site, signature = str(said["site"]), str(said["signature"])
            public = self._federation.sites()[site]["public_key"].encode()
        except UNDECODABLE:
            return None
        return site if text and identity.signed(public, _digest(text), signature) else None


def introduce(site: Site, message: Message) -> Message:
    """A site's answer."""
    text = str(message.content.config_records[WHO]["text"])
    signature = identity.sign((site.settings.path / "key").read_bytes(), _digest(text))
    said = ConfigRecord({"site": site.settings.name, "signature": signature})
    return Message(RecordDict({WHO: said}), reply_to=message)


def _digest(text: str) -> bytes:
    return hashlib.sha256(f"who {text}".encode()).digest()
