"""Who sends a request to the gate: Flower's nodes sign the time of each request with their key, in its headers."""

import base64
import binascii
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from fedsac.federation import identity
from fedsac.federation.folder import REVOKED, Federation

KEY_HEADER, TIME_HEADER, SIGNATURE_HEADER = b"flwr-public-key", b"flwr-timestamp", b"flwr-signature"
AHEAD_SECONDS, BEHIND_SECONDS = 5.0, 305.0  # that a clock may be off, as Flower has it
CLOCK, KEY = "clock", "key"  # how the text of a refusal begins


class UnknownCallerError(Exception):
    """A request that no site has signed; the text says why."""


class Callers:
    """Tells sites by their keys. A site that has left may still fetch what it is owed; one that was revoked is not
    known any more."""

    def __init__(self, federation: Federation) -> None:
        self._file, self._federation = federation.path / "sites.json", federation
        self._read: tuple[int, int] = (0, 0)
        self._sites: dict[bytes, tuple[str, bytes]] = {}

    def of(self, headers: Mapping[bytes, bytes]) -> str:
        """The site that has signed these headers."""
        try:
            key = base64.b64decode(headers[KEY_HEADER], validate=True)
            stamp, signature = headers[TIME_HEADER], headers[SIGNATURE_HEADER].decode()
            behind = (datetime.now(UTC) - datetime.fromisoformat(stamp.decode())).total_seconds()
        except (KeyError, ValueError, TypeError, binascii.Error):
            raise UnknownCallerError(f"{KEY}: the request is not signed") from None
        if key not in self._known():
            raise UnknownCallerError(f"{KEY}: no site has this key")
        name, public = self._known()[key]
        if not identity.signed(public, stamp, signature):
            raise UnknownCallerError(f"{KEY}: the signature is not the key's")
        if not -AHEAD_SECONDS < behind < BEHIND_SECONDS:
            raise UnknownCallerError(f"{CLOCK}: the request is {behind:.0f} s old")
        return name

    def _known(self) -> dict[bytes, tuple[str, bytes]]:
        """The sites, by their public keys as Flower's nodes send them; read anew when sites.json has changed."""
        about = self._file.stat()
        if (about.st_mtime_ns, about.st_ino) != self._read:
            self._read = (about.st_mtime_ns, about.st_ino)
            self._sites = {
                _pem(site["public_key"].encode()): (name, site["public_key"].encode())
                for name, site in self._federation.sites().items()
                if site["status"] != REVOKED
            }
        return self._sites


def _pem(public: bytes) -> bytes:
    from cryptography.hazmat.primitives import serialization as s

    key: Any = s.load_ssh_public_key(public)
    return bytes(key.public_bytes(s.Encoding.PEM, s.PublicFormat.SubjectPublicKeyInfo))
