"""Creating a federation's folder (keys, certificates, configs), and adding and removing sites later."""

from pathlib import Path
from typing import Any

from fedsac.atomic import write_atomic
from fedsac.config import FORMAT_VERSION, Config
from fedsac.errors import FedsacError
from fedsac.federation import identity
from fedsac.federation.folder import ACTIVE, LEFT, RESERVED_SITE_NAMES, REVOKED, SITE_NAME, Federation

LOOPBACK_NAMES = ["localhost", "127.0.0.1", "::1"]


def init(path: Path, sites: list[str], address: str, *, insecure: bool = False) -> None:
    """Create a federation's folder with these sites."""
    if path.exists() and any(path.iterdir()):
        raise FedsacError(f"{path} is not empty; name a new folder")
    if len(sites) < 2:
        raise FedsacError(f"{len(sites)} site(s); a federation takes at least 2, as in --sites a,b,c")
    if len(set(sites)) < len(sites):
        raise FedsacError("two sites have the same name")
    for name in sites:
        check_name(name)
    host = host_of(address)
    server = path / "server"
    server.mkdir(parents=True)
    ca_key, ca = identity.authority()
    key, certificate = identity.server_certificate(ca_key, ca, list(dict.fromkeys([host, *LOOPBACK_NAMES])))
    receipts_key, receipts = identity.new_key()
    _write(server / "ca.key", ca_key, secret=True)
    _write(server / "ca.pem", ca)
    _write(server / "server.key", key, secret=True)
    _write(server / "server.pem", certificate)
    _write(server / "receipts.key", receipts_key, secret=True)
    _write(server / "receipts.pub", receipts)
    _write(path / "federation.toml", _federation_toml(address, insecure).encode())
    Federation.load(path).set_sites({})
    for name in sites:
        add(path, name)


def add(path: Path, name: str) -> Path:
    """Add a site: returns its folder, which holds its key and is to be carried to the site's host."""
    federation = Federation.load(path)
    check_name(name)
    _require_not_over(federation)
    sites = federation.sites()
    if name in sites:
        raise FedsacError(f"{path} has a site {name} already")
    folder = path / name
    if folder.exists():
        raise FedsacError(f"{folder} is there already; name another site")
    folder.mkdir()
    private, public = identity.new_key()
    _write(folder / "key", private, secret=True)
    _write(folder / "key.pub", public)
    _write(folder / "ca.pem", (federation.server / "ca.pem").read_bytes())
    _write(folder / "coordinator.pub", (federation.server / "receipts.pub").read_bytes())
    _write(folder / "site.toml", _site_toml(name, federation).encode())
    federation.set_sites(sites | {name: {"public_key": public.decode(), "status": ACTIVE}})
    return folder


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
        raise FedsacError(f"{federation.path} has no site {name}; there are {', '.join(sites)}")
    return sites


def _require_not_over(federation: Federation) -> None:
    if federation.is_over:
        raise FedsacError(
            f"the run of {federation.path} is over: there is no round that a site could join; found a new federation "
            "with: fedsac federation init"
        )


def check_name(name: str) -> None:
    if not SITE_NAME.fullmatch(name) or name in RESERVED_SITE_NAMES:
        raise FedsacError(f"{name!r} cannot be a site's name; use letters, digits, dots, dashes (and not server)")


def host_of(address: str) -> str:
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit():
        raise FedsacError(f"{address!r} is no address; write host:port, as in hub.example.org:9092")
    return host.strip("[]")


def _write(path: Path, content: bytes, *, secret: bool = False) -> None:
    if secret:
        path.touch(mode=0o600)  # permissions first, then the content
        path.write_bytes(content)
        return
    write_atomic(path, content)


def _federation_toml(address: str, insecure: bool) -> str:
    defaults = Config()
    return f"""format_version = {FORMAT_VERSION}

[federation]
address = "{address}"           # where sites reach the server; it is in the server's certificate
validation = "validation.csv"   # the coordinator's data, beside this file: .npz, .csv, .parquet or module:function
test = ""                       # a test file, if there is one
label = "label"                 # the label column
classes = []                    # all classes, where the validation data does not have every one
model = ""                      # module:factory; else the perceptron of `hidden` below
min_answers = 2                 # a round with fewer answers is repeated
wait = 600                      # seconds for sites to come before the first round, and for rewards to be fetched
timeout = 600                   # seconds for an answer
repeats = 20                    # of a round with too few answers
aside_after = 3                 # refusals in a row, and a site is asked no more
max_step = 10.0                 # how far a reply may move a model, as a multiple of 1 + its length
max_message_mb = 512
control_port = 9093             # on loopback: Flower's own server, which runs are submitted to
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


def _site_toml(name: str, federation: Federation) -> str:
    return f"""format_version = {FORMAT_VERSION}
name = "{name}"
data = "data.csv"               # beside this file: .npz, .csv or .parquet; or module:function, which returns x and y
label = "label"                 # the label column
address = "{federation.address}"
port = 0                        # of Flower's own server on this host's loopback; 0: any free one
threads = 0                     # CPU threads; 0: all cores
device = "cpu"
insecure = {str(federation.insecure).lower()}
"""
