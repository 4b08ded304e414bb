"""Begin a federation: keys, certificates and configs; and who takes part in it later on."""

from pathlib import Path

from fedsac.atomic import write_atomic
from fedsac.config import FORMAT_VERSION, Config
from fedsac.errors import FedsacError
from fedsac.federation import identity
from fedsac.federation.folder import IN, LEFT, NAME, RESERVED, REVOKED, Federation

LOOPBACK = ["localhost", "127.0.0.1", "::1"]


def init(path: Path, sites: list[str], address: str, *, insecure: bool = False) -> None:
    """A new federation's folder."""
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
    key, certificate = identity.server_certificate(ca_key, ca, list(dict.fromkeys([host, *LOOPBACK])))
    receipts_key, receipts = identity.new_key()
    _put(server / "ca.key", ca_key, secret=True)
    _put(server / "ca.pem", ca)
    _put(server / "server.key", key, secret=True)
    _put(server / "server.pem", certificate)
    _put(server / "receipts.key", receipts_key, secret=True)
    _put(server / "receipts.pub", receipts)
    _put(path / "federation.toml", _federation_toml(address, insecure).encode())
    Federation.load(path).set_sites({})
    for name in sites:
        add(path, name)


def add(path: Path, name: str) -> Path:
    """One more site: its folder, with its key, to be carried to where its data lies."""
    federation = Federation.load(path)
    check_name(name)
    sites = federation.sites()
    if name in sites:
        raise FedsacError(f"{path} has a site {name} already")
    folder = path / name
    if folder.exists():
        raise FedsacError(f"{folder} is there already; name another site")
    folder.mkdir()
    private, public = identity.new_key()
    _put(folder / "key", private, secret=True)
    _put(folder / "key.pub", public)
    _put(folder / "ca.pem", (federation.server / "ca.pem").read_bytes())
    _put(folder / "coordinator.pub", (federation.server / "receipts.pub").read_bytes())
    _put(folder / "site.toml", _site_toml(name, federation).encode())
    federation.set_sites(sites | {name: {"public_key": public.decode(), "status": IN}})
    return folder


def end(path: Path, name: str, *, revoked: bool) -> None:
    """A site leaves, and is paid what it has earned so far; or its key is revoked, and it is sent nothing more."""
    federation = Federation.load(path)
    sites = federation.sites()
    if name not in sites:
        raise FedsacError(f"{path} has no site {name}; there are {', '.join(sites)}")
    sites[name]["status"] = REVOKED if revoked else LEFT
    federation.set_sites(sites)


def check_name(name: str) -> None:
    if not NAME.fullmatch(name) or name in RESERVED:
        raise FedsacError(f"{name!r} cannot be a site's name; use letters, digits, dots, dashes (and not server)")


def host_of(address: str) -> str:
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit():
        raise FedsacError(f"{address!r} is no address; write host:port, as in hub.example.org:9092")
    return host.strip("[]")


def _put(path: Path, content: bytes, *, secret: bool = False) -> None:
    if secret:
        path.touch(mode=0o600)  # before there is anything in it
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
