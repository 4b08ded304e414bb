"""Joining a federation from the site's side: the key is made at the site, and only its public half leaves it.

The coordinator's `init` writes an invitation, which holds nothing secret. `fedsac federation join` makes the site's
folder from it, with a new key, and a request: the public key, and a signature with it over the site's name and the
coordinator's key, so that nobody can hand in somebody else's. The coordinator admits the site by that request.
"""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedsac.config import FORMAT_VERSION
from fedsac.errors import FedsacError
from fedsac.federation import identity
from fedsac.federation.folder import (
    RESERVED_SITE_NAMES,
    SITE_NAME,
    SiteSettings,
    read_json,
    write_json,
    write_owned,
)
from fedsac.federation.history import COORDINATOR_KEY_FILE, coordinator_keys
from fedsac.federation.identity import NoPublicKeyError
from fedsac.federation.ledger import canonical

INVITATION_FILE, REQUEST_FILE = "invitation.json", "request.json"
Invitation = dict[str, Any]
ADDRESS = re.compile(r"[A-Za-z0-9._:\[\]-]+:[0-9]+")


def join(folder: Path, invitation_file: Path) -> tuple[Path, str, str]:
    """Make a site's folder, named like the site, with a new key: returns the request to hand to the coordinator, and
    the fingerprints of the site's key and of the coordinator's."""
    invitation = read_json(invitation_file)
    _check_invitation(invitation, invitation_file)
    check_name(folder.name)
    if folder.exists():
        raise FedsacError(f"{folder} is there already; a site joins once, with one key: name another folder")
    coordinator = invitation["coordinator"].encode()
    identity.fingerprint(coordinator)
    public = new_site(folder, folder.name, invitation)
    proof = identity.sign((folder / "key").read_bytes(), request_digest(folder.name, public, invitation))
    request = {"site": folder.name, "public_key": public.decode(), "proof": proof}
    write_json(folder / REQUEST_FILE, request)
    return folder / REQUEST_FILE, identity.fingerprint(public), identity.fingerprint(coordinator)


def _check_invitation(invitation: Invitation, where: Path) -> None:
    """Raise unless it is an invitation. What it says is written to site.toml, which is the site's own."""
    types = {"address": str, "insecure": bool, "ca": str, "coordinator": str}
    if any(type(invitation.get(name)) is not wanted for name, wanted in types.items()):
        raise FedsacError(f"{where}: it is no invitation; fedsac federation init writes one, invitation.json")
    if not ADDRESS.fullmatch(invitation["address"]):
        raise FedsacError(f"{where}: {invitation['address']!r} is no address; ask the coordinator for the file again")


def new_site(folder: Path, name: str, invitation: Invitation) -> bytes:
    """Make a site's folder with a new key: returns the public key."""
    folder.mkdir(mode=0o700, parents=True)
    private, public = identity.new_key()
    write_owned(folder / "key", private)
    write_owned(folder / "key.pub", public)
    write_owned(folder / "ca.pem", invitation["ca"].encode())
    write_owned(folder / COORDINATOR_KEY_FILE, invitation["coordinator"].encode())
    write_owned(folder / "site.toml", _site_toml(name, invitation).encode())
    return public


def proven_key(request: Mapping[str, Any], name: str, invitation: Invitation, where: Path) -> bytes:
    """The public key in a request, if it is for this name and federation and signed with its private key."""
    if request.get("site") != name:
        if "proof" not in request:
            raise FedsacError(f"{where}: it is no request; fedsac federation join writes one at the site, request.json")
        raise FedsacError(f"{where}: the request of {request.get('site')!r}, not of {name}; add the site by that name")
    public, proof = str(request.get("public_key")).encode(), str(request.get("proof"))
    identity.fingerprint(public)
    if not identity.signed(public, request_digest(name, public, invitation), proof):
        raise FedsacError(
            f"{where}: not signed with its key for this federation; was another invitation used? Have the site join "
            "with this one's invitation.json"
        )
    return public


def require_signer(site: SiteSettings) -> None:
    """Raise unless the key that orders must be signed with is the one that site.toml pins."""
    file = site.path / COORDINATOR_KEY_FILE
    try:
        key = coordinator_keys(site.path)[-1]
        identity.fingerprint(key)
    except (IndexError, NoPublicKeyError):
        raise FedsacError(f"{file}: it has no public key; bring the coordinator's server/receipts.pub") from None
    if site.signer and identity.fingerprint(key) != site.signer:
        raise FedsacError(
            f"{site.path / COORDINATOR_KEY_FILE}: {identity.fingerprint(key)} is not the signer in site.toml; if the "
            "coordinator has a new key, compare its fingerprint by telephone, then write it there"
        )


def require_keys(site: SiteSettings) -> None:
    """Raise unless the site has its own key and, with TLS, the authority's certificate."""
    key, public = site.path / "key", site.path / "key.pub"
    again = "bring it back from a backup, or join anew under another name: fedsac federation join"
    try:
        proof = identity.sign(key.read_bytes(), bytes(32))
        if not identity.signed(public.read_bytes(), bytes(32), proof):
            raise FedsacError(f"{key}: not the key that key.pub is of: another site's? {again}")
        if not site.insecure:
            require_certificate(site.path / "ca.pem", "bring the coordinator's server/ca.pem")
    except OSError as error:
        raise FedsacError(f"{error.filename}: cannot be read ({error.strerror}); {again}") from None
    except ValueError:
        raise FedsacError(f"{key}, or key.pub: it is no key in OpenSSH's format; {again}") from None


def require_certificate(path: Path, remedy: str) -> None:
    """Raise unless the file is a certificate."""
    try:
        identity.require_certificate(path.read_bytes())
    except OSError as error:
        raise FedsacError(f"{path}: cannot be read ({error.strerror}); {remedy}") from None
    except ValueError:
        raise FedsacError(f"{path}: it is no certificate; {remedy}") from None


def require_certificates(pem: bytes, where: Path) -> None:
    """Raise unless these are certificates, one after the other."""
    ends = pem.split(b"-----BEGIN")[1:]
    try:
        for part in ends:
            identity.require_certificate(b"-----BEGIN" + part)
    except ValueError:
        ends = []
    if not ends:
        raise FedsacError(f"{where}: what should be the authority's certificate is none; ask for the file again")


def request_digest(name: str, public: bytes, invitation: Mapping[str, Any]) -> bytes:
    """What a site signs, with the key that it wants to be known by, to the coordinator of an invitation."""
    coordinator = str(invitation["coordinator"]).encode()
    said = ["fedsac join", name, public.decode(), identity.fingerprint(coordinator)]
    return hashlib.sha256(canonical(said)).digest()


def check_name(name: str) -> None:
    if not SITE_NAME.fullmatch(name) or name in RESERVED_SITE_NAMES:
        raise FedsacError(f"{name!r} cannot be a site's name; use letters, digits, dots, dashes (and not server)")


def _site_toml(name: str, invitation: Invitation) -> str:
    d, signer = SiteSettings, identity.fingerprint(invitation["coordinator"].encode())
    return f"""format_version = {FORMAT_VERSION}
name = "{name}"
data = "data.csv"               # beside this file: .npz, .csv or .parquet; or module:function, which returns x and y
label = "label"                 # the label column
address = "{invitation["address"]}"
port = 0                        # of Flower's own server on this host's loopback; 0: any free one
model = ""                      # module:factory, if the federation has its own network: code that you have and trust
threads = 0                     # CPU threads; 0: all cores
device = "cpu"
log = "text"                    # of site.log; "json": one object a line
insecure = {str(invitation["insecure"]).lower()}

# Whom this site answers, and what. Orders beyond these limits are declined, by a code; why is in site.log.
signer = "{signer}"  # of orders: the key in coordinator.pub
least_samples = {d.least_samples}              # with fewer samples the site does not take part
least_batch = {d.least_batch}                # samples that a step of training takes the mean of
least_steps = {d.least_steps}                 # steps of training in a round
highest_lr = {d.highest_lr}                # learning rate
most_rounds = {d.most_rounds}              # times that the site trains, all in all
least_rows = {d.least_rows}                 # samples that must activate a unit, or its change is kept back
blur = {d.blur}                     # noise on what is sent, as a share of the change; 0: none
clip = {d.clip}                      # differential privacy: the length a sample's gradient is clipped to; 0: off
noise = {d.noise}                     # its noise, as a multiple of clip
delta = {d.delta}
most_epsilon = {d.most_epsilon}              # orders that would spend more are declined; 0: no limit
"""
