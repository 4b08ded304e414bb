"""Creating a federation's folder (keys, certificates, configs), and adding and removing sites later."""

from pathlib import Path
from typing import Any

from fedsac.config import FORMAT_VERSION, Config
from fedsac.errors import FedsacError
from fedsac.federation import identity
from fedsac.federation.folder import (
    ACTIVE,
    LEFT,
    REVOKED,
    Federation,
    check_address,
    read_json,
    write_json,
    write_owned,
)
from fedsac.federation.joining import INVITATION_FILE, Invitation, check_name, new_site, proven_key, require_certificate

LOOPBACK_NAMES = ["localhost", "127.0.0.1", "::1"]


def init(path: Path, sites: list[str], address: str, *, insecure: bool = False) -> None:
    """Create a federation's folder, with these sites and their keys (none: sites make theirs and join later)."""
    if path.exists() and not path.is_dir():
        raise FedsacError(f"{path} is a file; name a new folder")
    if path.exists() and any(path.iterdir()):
        raise FedsacError(f"{path} is not empty; name a new folder")
    if len(sites) == 1:
        raise FedsacError("1 site; a federation takes at least 2, as in --sites a,b,c (or none: sites join later)")
    if len(set(sites)) < len(sites):
        raise FedsacError("two sites have the same name; give each its own in --sites")
    for name in sites:
        check_name(name)
    host = check_address(address)
    server = path / "server"
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    server.mkdir(mode=0o700)
    ca_key, ca = identity.authority()
    key, certificate = identity.server_certificate(ca_key, ca, list(dict.fromkeys([host, *LOOPBACK_NAMES])))
    receipts_key, receipts = identity.new_key()
    write_owned(server / "ca.key", ca_key)
    write_owned(server / "ca.pem", ca)
    write_owned(server / "server.key", key)
    write_owned(server / "server.pem", certificate)
    write_owned(server / "receipts.key", receipts_key)
    write_owned(server / "receipts.pub", receipts)
    write_owned(path / "federation.toml", _federation_toml(address, insecure).encode())
    federation = Federation.load(path)
    federation.set_sites({})
    write_json(path / INVITATION_FILE, invitation(federation))
    for name in sites:
        add(path, name)


def add(path: Path, name: str) -> Path:
    """Add a site and make its key here: returns its folder, which is to be carried to the site's host. (Better:
    `joining.py`, where the key never leaves the site.)"""
    federation = _open_to(path, name)
    folder = path / name
    if folder.exists():
        raise FedsacError(f"{folder} is there already; name another site")
    public = new_site(folder, name, invitation(federation))
    enter(federation, name, public)
    return folder


def admit(path: Path, name: str, request: Path) -> str:
    """Add a site whose key was made at the site: its public key is in the `request` that `join` has written there.
    Returns the key's fingerprint."""
    federation = _open_to(path, name)
    public = proven_key(read_json(request), name, invitation(federation), request)
    if public.decode() in [site["public_key"] for site in federation.sites().values()]:
        raise FedsacError(f"{request}: its key is another site's; make a new one with: fedsac federation join")
    enter(federation, name, public)
    return identity.fingerprint(public)


def _open_to(path: Path, name: str) -> Federation:
    """The federation, if a new site with this name can be added."""
    federation = Federation.load(path)
    check_name(name)
    _require_not_over(federation)
    if name in federation.sites():
        raise FedsacError(f"{path} has a site {name} already; name another one")
    return federation


def enter(federation: Federation, name: str, public: bytes) -> None:
    federation.set_sites(federation.sites() | {name: {"public_key": public.decode(), "status": ACTIVE}})


def invitation(federation: Federation) -> Invitation:
    """What a site needs to join: nothing secret."""
    return {
        "address": federation.address,
        "insecure": federation.insecure,
        "ca": (federation.server / "ca.pem").read_text(),
        "coordinator": (federation.server / "receipts.pub").read_text(),
    }


def require_server_files(federation: Federation) -> None:
    """Raise unless the coordinator's keys and certificates are there."""
    remedy = "bring it back from the backup of this folder"
    for name in ("receipts.key", "receipts.pub", "server.key"):
        if not (federation.server / name).is_file():
            raise FedsacError(f"{federation.server / name}: there is no such file; {remedy}")
    for name in ("ca.pem", "server.pem"):
        require_certificate(federation.server / name, remedy)


def remove(path: Path, name: str, *, revoked: bool) -> None:
    """Let a site leave with the reward it has earned so far; or, if `revoked`, refuse its key and send it nothing."""
    federation = Federation.load(path)
    sites = _sites_with(federation, name)
    if not revoked:
        if federation.is_over:
            raise FedsacError(f"the run of {path} is over: {name} took part to its end, and nobody leaves any more")
        if sites[name]["status"] != ACTIVE:
            raise FedsacError(f"{name} does not take part in {path} any more: it {_GONE[sites[name]['status']]}")
    sites[name]["status"] = REVOKED if revoked else LEFT
    federation.set_sites(sites)


def readmit(path: Path, name: str) -> None:
    """Take a site that was set aside, or has left, in again before the next round."""
    federation = Federation.load(path)
    sites = _sites_with(federation, name)
    _require_not_over(federation)
    if sites[name]["status"] == REVOKED:
        raise FedsacError(f"the key of {name} was revoked; it can come back with a new key, under another name")
    sites[name]["status"] = ACTIVE
    sites[name]["readmitted"] = sites[name].get("readmitted", 0) + 1
    federation.set_sites(sites)


_GONE = {LEFT: "has left", REVOKED: "was revoked"}


def _sites_with(federation: Federation, name: str) -> dict[str, dict[str, Any]]:
    sites = federation.sites()
    if name not in sites:
        raise FedsacError(
            f"{federation.path} has no site {name}; name one that was added: {', '.join(sites) or 'none yet'}"
        )
    return sites


def _require_not_over(federation: Federation) -> None:
    if federation.is_over:
        raise FedsacError(
            f"the run of {federation.path} is over: there is no round that a site could join; found a new federation "
            "with: fedsac federation init"
        )


def _federation_toml(address: str, insecure: bool) -> str:
    defaults = Config()
    return f"""format_version = {FORMAT_VERSION}

[federation]
address = "{address}"           # where sites reach the server; it is in the server's certificate
validation = "validation.csv"   # the coordinator's data, beside this file: .npz, .csv, .parquet or module:function
test = ""                       # a test file, if there is one
label = "label"                 # the label column
classes = []                    # all classes, where the validation data does not have every one
model = ""                      # a network, by name or module:factory; else the perceptron of `hidden` below
min_answers = 2                 # a round with fewer answers is repeated
wait = 600                      # seconds for sites to come before the first round, and for rewards to be fetched
timeout = 600                   # seconds for an answer
repeats = 20                    # of a round with too few answers
aside_after = 3                 # refusals, or orders without an answer, in a row, and a site is asked no more
max_step = 10.0                 # how far a reply may move a model, as a multiple of 1 + its length
refuse = "harmful"              # also replies that would wreck the model on validation data; or "nothing"
pay = "taking-part"             # less for who trained in fewer than half of its rounds; "contribution": as in the paper
hardened = "all"                # defences against sites that cheat (docs/hardening.md); some, joined by +; or "nothing"
max_message_mb = 512
control_port = 9093             # on loopback: Flower's own server, which runs are submitted to
metrics_port = 0                # on loopback: http://127.0.0.1:PORT/metrics for Prometheus; 0: none
insecure = {str(insecure).lower()}                # true: no TLS and no node keys

[run]
method = "{defaults.method}"
rounds = 20
seed = 0
lr = {defaults.lr}
local_steps = {defaults.local_steps}
batch = {defaults.batch}
hidden = [200, 200]
dtype = "{defaults.dtype}"
"""
