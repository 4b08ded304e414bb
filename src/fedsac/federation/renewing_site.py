"""Renewing at a site: its own key, and what it has pinned of the coordinator.

The site's new key waits beside the old one (`key.next`) until the server knows it; the running site then changes to it
by itself. What the coordinator renews comes as `renewal.json`, signed with the key that this site has pinned; a new
signer counts only with its fingerprint, compared by telephone.
"""

import re
from pathlib import Path
from typing import Any

from fedsac.atomic import write_atomic
from fedsac.errors import FedsacError
from fedsac.federation import identity
from fedsac.federation.folder import SiteSettings, public_keys, read_json, write_json, write_owned
from fedsac.federation.history import COORDINATOR_KEY_FILE, coordinator_keys
from fedsac.federation.joining import REQUEST_FILE, request_digest, require_certificates
from fedsac.federation.renewing import keep_former, renewal_digest
from fedsac.federation.site_lock import locked

NEXT_KEY_FILE, FORMER_FILE = "key.next", "former.pub"


def new_key(site: SiteSettings) -> tuple[Path, str]:
    """Make the site's next key, and the request that the coordinator admits it by: returns that, and the key's
    fingerprint."""
    if site.insecure:
        raise FedsacError(f"{site.path}: without TLS no key is registered, and there is none to renew")
    waiting = site.path / NEXT_KEY_FILE
    if waiting.exists():
        raise FedsacError(
            f"{waiting}: a new key waits there already; send {REQUEST_FILE} to the coordinator, or delete that file"
        )
    private, public = identity.new_key()
    coordinator = {"coordinator": coordinator_keys(site.path)[-1].decode()}
    digest = request_digest(site.name, public, coordinator)
    said = {"site": site.name, "public_key": public.decode(), "proof": identity.sign(private, digest)}
    said["by"] = identity.sign((site.path / "key").read_bytes(), digest)
    write_owned(waiting, private)
    write_json(site.path / REQUEST_FILE, said)
    return site.path / REQUEST_FILE, identity.fingerprint(public)


def use_next_key(folder: Path) -> None:
    """Put the next key in the place of the present one. Killed in between, `mend` does the rest."""
    keep_former(folder / FORMER_FILE, (folder / "key.pub").read_bytes())
    (folder / NEXT_KEY_FILE).replace(folder / "key")
    mend(folder)


def mend(folder: Path) -> None:
    """Write key.pub anew where the key was renewed, and the site killed before it could."""
    key, public = folder / "key", folder / "key.pub"
    if key.is_file() and public.is_file() and public.read_bytes().strip() in public_keys(folder / FORMER_FILE):
        write_atomic(public, identity.public_key(key.read_bytes()))


def own_keys(folder: Path) -> list[bytes]:
    """The public keys that this site has signed with, the present one last."""
    return [*public_keys(folder / FORMER_FILE), (folder / "key.pub").read_bytes().strip()]


def take_renewal(site: SiteSettings, file: Path, signer: str) -> list[str]:
    """Take in a renewal of the coordinator's authority or key; `signer` is the new key's fingerprint, by telephone.
    Returns a line on each thing that is new."""
    said = read_json(file)
    types = {"ca": str, "coordinator": str, "signatures": list}
    if any(type(said.get(name)) is not wanted for name, wanted in types.items()):
        raise FedsacError(f"{file}: it is no renewal; fedsac federation renew writes one at the coordinator")
    pinned = coordinator_keys(site.path)[-1]
    if not any(identity.signed(pinned, renewal_digest(said), str(signature)) for signature in said["signatures"]):
        raise FedsacError(
            f"{file}: not signed with the coordinator's key that this site has pinned, {identity.fingerprint(pinned)}; "
            "ask the coordinator for its renewal.json"
        )
    known = said["coordinator"].strip().encode() == pinned.strip()
    new = identity.fingerprint(said["coordinator"].encode())
    if not known and signer != new:
        raise FedsacError(
            f"{file}: the coordinator's key becomes {new}; compare it by telephone, then add: --signer {new}"
        )
    require_certificates(said["ca"].encode(), file)
    with locked(site):
        return _taken_in(site, said, None if known else new)


def _taken_in(site: SiteSettings, said: dict[str, Any], signer: str | None) -> list[str]:
    """Write a renewal that was checked to the site's folder; `signer` is the fingerprint of a key that is new."""
    told = []
    if (site.path / "ca.pem").read_text() != said["ca"]:
        write_atomic(site.path / "ca.pem", said["ca"].encode())
        told.append("ca.pem: the coordinator's certificate may be of the authority in the renewal")
    if signer is not None:
        # site.toml first: killed in between, the same command goes on, for the old key is the one still pinned.
        _pin(site.path / "site.toml", signer)
        keys = [*coordinator_keys(site.path), said["coordinator"].strip().encode()]
        write_atomic(site.path / COORDINATOR_KEY_FILE, b"".join(key + b"\n" for key in keys))
        told.append(f"coordinator.pub: orders may be signed with {signer}, and then with no earlier key")
    return told or ["nothing is new: this site has taken it in already"]


def _pin(toml: Path, signer: str) -> None:
    text = toml.read_text(encoding="utf-8")
    write_atomic(toml, re.sub(r'^signer\s*=\s*"[^"]*"', f'signer = "{signer}"', text, flags=re.MULTILINE).encode())
