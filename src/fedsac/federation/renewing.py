"""Renewing the coordinator's certificates and keys, and admitting sites' new keys, in a federation that goes on.

The server's certificate comes from the same authority: sites notice nothing. A new authority, or a new key for orders
and receipts, is prepared in `server/next`; `renewal.json`, signed with the key that sites have pinned, is sent to them;
once they have taken it in (`renewing_site.py`), `switch` puts the new ones in the place of the old. A site's new key
comes by a request that the old key has signed, too. Former public keys are kept: what they have signed still verifies.
"""

import hashlib
from pathlib import Path
from typing import Any

from fedsac.atomic import write_atomic
from fedsac.errors import FedsacError
from fedsac.federation import identity
from fedsac.federation.folder import (
    REVOKED,
    Federation,
    check_address,
    public_keys,
    read_json,
    write_json,
    write_owned,
)
from fedsac.federation.joining import INVITATION_FILE, proven_key, request_digest
from fedsac.federation.ledger import canonical
from fedsac.federation.setup import LOOPBACK_NAMES, invitation

RENEWAL_FILE, NEXT = "renewal.json", "next"
FORMER_KEYS_FILE = "former.pub"  # in server/: the public keys that orders and receipts were signed with before
AUTHORITY, SIGNER = "authority", "signer"
MADE = {AUTHORITY: ("ca.key", "ca.pem", "server.key", "server.pem"), SIGNER: ("receipts.key", "receipts.pub")}


def renew_certificate(federation: Federation) -> None:
    """Make a new certificate and key for the server, from the same authority, for the address in federation.toml."""
    server = federation.server
    if not (server / "ca.key").is_file():
        raise FedsacError(
            f"{server / 'ca.key'}: there is no such file; bring the authority's key from where it is kept, or make a "
            f"new authority: fedsac federation renew {federation.path} authority"
        )
    ca_key, ca = (server / "ca.key").read_bytes(), (server / "ca.pem").read_bytes()
    if not identity.is_authority(ca_key, ca):
        raise FedsacError(f"{server / 'ca.key'}: it is not the key of ca.pem; bring the right one")
    key, certificate = identity.server_certificate(ca_key, ca, _names(federation))
    for name, content in (("server.key", key), ("server.pem", certificate)):  # killed in between: the same again
        write_owned(server / f"{name}.new", content)
        (server / f"{name}.new").replace(server / name)


def prepare(federation: Federation, what: str) -> tuple[Path, str]:
    """Make a new authority or a new key to sign with, beside those in use, and the file that tells sites: returns it,
    and the fingerprint of the key that orders will be signed with."""
    server = federation.server
    if any((server / NEXT / name).exists() for name in (*MADE[what], RENEWAL_FILE)):
        raise FedsacError(
            f"{server / NEXT}: a new {what} waits there already; use it (fedsac federation renew {federation.path} "
            f"switch), or delete that folder"
        )
    (server / NEXT).mkdir(mode=0o700, exist_ok=True)
    if what == AUTHORITY:
        ca_key, ca = identity.authority()
        made = [ca_key, ca, *identity.server_certificate(ca_key, ca, _names(federation))]
    else:
        made = [*identity.new_key()]
    for name, content in zip(MADE[what], made, strict=True):
        write_owned(server / NEXT / name, content)
    return _tell(federation, _in_use_or_next(server, "ca.pem"), federation.path / RENEWAL_FILE)


def switch(federation: Federation) -> str:
    """Put what was prepared in the place of what was in use. Killed in between, the same command goes on. Returns the
    fingerprint of the key that orders are signed with from now on."""
    server, waiting = federation.server, federation.server / NEXT
    if not waiting.is_dir():
        raise FedsacError(f"{waiting}: nothing is prepared; first: fedsac federation renew {federation.path} authority")
    if not (waiting / RENEWAL_FILE).exists():
        # For sites that come late, and for the others, who forget the old authority by it: signed with both keys.
        _tell(federation, _newest(server, "ca.pem").read_bytes(), waiting / RENEWAL_FILE)
    if (waiting / "receipts.pub").exists():
        keep_former(server / FORMER_KEYS_FILE, (server / "receipts.pub").read_bytes())
    for name in (*MADE[AUTHORITY], *MADE[SIGNER]):
        if (waiting / name).exists():
            (waiting / name).replace(server / name)
    write_json(federation.path / INVITATION_FILE, invitation(federation))
    (waiting / RENEWAL_FILE).replace(federation.path / RENEWAL_FILE)
    _remove_if_empty(waiting)
    return identity.fingerprint((server / "receipts.pub").read_bytes())


def admit_new_key(federation: Federation, request: Path) -> tuple[str, str]:
    """Take a site's new key, which the old one has signed, in the place of the old: returns the site's name and the
    key's fingerprint."""
    said, sites = read_json(request), federation.sites()
    name = str(said.get("site"))
    if name not in sites or "by" not in said:
        raise FedsacError(
            f"{request}: it is no request for a new key of a site of {federation.path}; fedsac federation renew FOLDER "
            "key writes one at the site"
        )
    if sites[name]["status"] == REVOKED:
        raise FedsacError(f"the key of {name} was revoked; it can come back with a new key, under another name")
    asked_of = invitation(federation)
    public = proven_key(said, name, asked_of, request)
    if any(public.decode() in (site["public_key"], *site.get("former_keys", [])) for site in sites.values()):
        raise FedsacError(f"{request}: its key is, or was, a site's already; make a new one at the site")
    before = sites[name]["public_key"]
    if not identity.signed(before.encode(), request_digest(name, public, asked_of), str(said["by"])):
        raise FedsacError(
            f"{request}: not signed with the present key of {name}; have the site make it with: fedsac federation "
            f"renew {name} key"
        )
    sites[name]["former_keys"] = [*sites[name].get("former_keys", []), before]
    sites[name]["public_key"] = public.decode()
    federation.set_sites(sites)
    return name, identity.fingerprint(public)


def former_signers(federation: Federation) -> list[bytes]:
    """The public keys that the coordinator has signed with before the one in use."""
    return public_keys(federation.server / FORMER_KEYS_FILE)


def keep_former(path: Path, public: bytes) -> None:
    """Add a public key to a file of former ones."""
    if public.strip() not in (kept := public_keys(path)):
        write_atomic(path, b"".join(key + b"\n" for key in [*kept, public.strip()]))


def renewal_digest(said: dict[str, Any]) -> bytes:
    """What is signed of a renewal."""
    return hashlib.sha256(canonical(["fedsac renewal", said["ca"], said["coordinator"]])).digest()


def _tell(federation: Federation, ca: bytes, file: Path) -> tuple[Path, str]:
    """Write a renewal with this authority, signed with the key in use and with the next one, if there is one."""
    server = federation.server
    said: dict[str, Any] = {"ca": ca.decode(), "coordinator": _newest(server, "receipts.pub").read_text()}
    keys = dict.fromkeys([server / "receipts.key", _newest(server, "receipts.key")])
    said["signatures"] = [identity.sign(key.read_bytes(), renewal_digest(said)) for key in keys]
    write_json(file, said)
    return file, identity.fingerprint(said["coordinator"].encode())


def _newest(server: Path, name: str) -> Path:
    return server / NEXT / name if (server / NEXT / name).exists() else server / name


def _in_use_or_next(server: Path, name: str) -> bytes:
    """The certificate in use and, if there is one, the next: sites trust both until they are told otherwise."""
    files = dict.fromkeys([server / name, _newest(server, name)])
    return b"".join(file.read_bytes() for file in files)


def _names(federation: Federation) -> list[str]:
    return list(dict.fromkeys([check_address(federation.address), *LOOPBACK_NAMES]))


def _remove_if_empty(folder: Path) -> None:
    if not any(folder.iterdir()):
        folder.rmdir()
