"""A federation's folder: its settings, its sites, and the paths of all files in it.

federation.toml       settings of the federation and of the run
sites.json            the sites: public key, and whether it takes part, has left or was revoked
server/               the coordinator's: certificates, keys, Flower's database, nodes.json (each site's Flower node)
server/run/           the run's folder, as `fedsac run` leaves one, with ledger.jsonl, receipts/ and rewards/ beside it
SITE/                 what is carried to a site's host: site.toml, its key, the certificate authority's certificate
"""

import json
import re
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from fedsac.atomic import write_atomic
from fedsac.config import FORMAT_VERSION, Config, check_version, known
from fedsac.contributions.base import STANDALONE
from fedsac.errors import FedsacError
from fedsac.federation.guard import MAX_STEP
from fedsac.federation.identity import fingerprint

SITE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,60}")
MAX_PORT = 65535
RESERVED_SITE_NAMES = ("server",)
ACTIVE, LEFT, REVOKED = "in", "left", "revoked"
SITE_KEYS = ("public_key", "status")  # what sites.json says of each site
EXCLUDED_SETTINGS = (  # settings of `fedsac run` that a federation's [run] does not have
    *("data", "scene", "clients", "share", "samples_per_client", "split_seed", "label", "data_dir", "schema"),
    *("behaviour", "attack", "attackers", "contributions", "network", "standalone_checkpoints", "refuse", "hardened"),
    *("noise", "delta"),
)
HARMFUL, NOTHING = "harmful", "nothing"  # which replies are refused though they are in order
TAKING_PART, CONTRIBUTION = "taking-part", "contribution"  # what sites are paid for


@dataclass(frozen=True)
class Federation:
    """The settings in federation.toml (`setup.py` explains each); `wait` and `timeout` are seconds."""

    path: Path
    config: Config
    address: str = "127.0.0.1:9092"
    validation: str = "validation.csv"
    test: str = ""
    label: str = "label"
    classes: tuple[str, ...] = ()
    model: str = ""
    min_answers: int = 2
    wait: float = 600.0
    timeout: float = 600.0
    repeats: int = 20
    aside_after: int = 3
    max_step: float = MAX_STEP
    refuse: str = HARMFUL
    pay: str = TAKING_PART
    hardened: str = NOTHING  # federations from before there was the setting; new ones are made with "all"
    max_message_mb: float = 512.0
    control_port: int = 9093
    metrics_port: int = 0
    insecure: bool = False

    @property
    def server(self) -> Path:
        return self.path / "server"

    @property
    def run(self) -> Path:
        return self.server / "run"

    @property
    def is_over(self) -> bool:
        """Whether all rounds are done; rewards may still be on their way."""
        return (self.run / "summary.json").exists()

    @property
    def ledger(self) -> Path:
        return self.server / "ledger.jsonl"

    @property
    def receipts(self) -> Path:
        return self.server / "receipts"

    @property
    def rewards(self) -> Path:
        """The rewards, one file a site, beside `receipts`."""
        return self.server / "rewards"

    @property
    def max_message_bytes(self) -> int:
        return int(self.max_message_mb * 1e6)

    @classmethod
    def load(cls, path: Path) -> "Federation":
        path = path.resolve()
        hint = "fedsac federation init makes one"
        if (path / "site.toml").exists():
            hint = "this is a site's folder: name the coordinator's"
        settings = read_toml(path / "federation.toml", hint)
        run = settings.pop("run", {})
        where = path / "federation.toml"
        for key in EXCLUDED_SETTINGS:
            if key in run:
                why = {
                    "behaviour": "it is simulated, and these sites are real",
                    "attack": "it is simulated, and these sites are real",
                    "attackers": "they are simulated, and these sites are real",
                    "contributions": "they are measured when a site joins",
                    "network": "name it as model in [federation]",
                    "noise": "a site decides by itself, in its site.toml",
                    "delta": "a site decides by itself, in its site.toml",
                    "refuse": "name it in [federation]",
                    "schema": "it lies beside this file, as schema.toml",
                    "hardened": "name it in [federation]",
                    "standalone_checkpoints": "a site sends the one model that it has at the end of training alone",
                }.get(key, "the sites have the data")
                raise FedsacError(f"{where}: {key} is not a setting of a federation's run; {why}")
        if "precision" in run:
            raise FedsacError(f"{where}: precision is not a setting of a federation's run; all compute in dtype")
        settings = checked(settings.pop("federation", {}) | settings, cls, ("path", "config"), where)
        if "classes" in settings:
            settings["classes"] = tuple(str(name) for name in settings["classes"])
        try:
            data = str(path / settings.get("validation", cls.validation))
            named = settings.get("hardened", cls.hardened)
            hardened = None if named == NOTHING else named
            config = Config(**known(run, "key"), scene="silos", data=data, hardened=hardened)
        except FedsacError as error:
            raise FedsacError(f"{where}: {error}") from None
        if config.contribution != STANDALONE:
            raise FedsacError(
                f"{where}: contribution {config.contribution} trains on the clients' data, which a coordinator does "
                "not have; use standalone"
            )
        federation = cls(path=path, config=config, **settings)
        check_address(federation.address, where)
        for name, least in (("min_answers", 1), ("repeats", 0), ("aside_after", 1)):
            if getattr(federation, name) < least:
                raise FedsacError(f"{where}: {name} must be at least {least}, not {getattr(federation, name)}")
        for name, allowed in (("refuse", (HARMFUL, NOTHING)), ("pay", (TAKING_PART, CONTRIBUTION))):
            if getattr(federation, name) not in allowed:
                raise FedsacError(f"{where}: {name} must be {' or '.join(allowed)}, not {getattr(federation, name)!r}")
        return federation

    def sites(self) -> dict[str, dict[str, Any]]:
        """All sites that were ever added, by name: public key and status."""
        path = self.path / "sites.json"
        sites: Any = read_json(path).get("sites")
        sound = isinstance(sites, dict) and all(isinstance(site, dict) for site in sites.values())
        sound = sound and all(isinstance(site.get(key), str) for site in sites.values() for key in SITE_KEYS)
        if not sound or not all(_are_texts(site.get("former_keys", [])) for site in sites.values()):
            raise FedsacError(f"{path}: it is not the list of sites that fedsac federation init and add write")
        return dict(sites)

    def set_sites(self, sites: dict[str, dict[str, Any]]) -> None:
        write_json(self.path / "sites.json", {"sites": sites})

    def nodes(self) -> dict[str, int]:
        """Each site's Flower node, as registered with its public key; what a site claims itself is not used."""
        path = self.server / "nodes.json"
        return {name: int(node) for name, node in read_json(path)["nodes"].items()} if path.exists() else {}

    def registered_keys(self) -> dict[str, str]:
        """The fingerprint of the key that each site's node is registered with. (Files from before keys were renewed
        name none: it is the first that the site had.)"""
        path = self.server / "nodes.json"
        said = read_json(path).get("keys", {}) if path.exists() else {}
        first = {name: [*site.get("former_keys", []), site["public_key"]][0] for name, site in self.sites().items()}
        return {name: fingerprint(key.encode()) for name, key in first.items()} | said


@dataclass(frozen=True)
class SiteSettings:
    """The settings in a site's site.toml (`setup.py` explains each). `data` is a file, relative to the site's folder,
    or module:function; from `signer` on, what the site answers, and to whom."""

    path: Path
    name: str
    data: str = "data.csv"
    label: str = "label"
    address: str = "127.0.0.1:9092"
    port: int = 0
    model: str = ""
    threads: int = 0
    device: str = "cpu"
    log: str = "text"
    insecure: bool = False
    signer: str = ""
    least_samples: int = 50
    least_batch: int = 16
    least_steps: int = 5
    highest_lr: float = 1.0
    most_rounds: int = 1000
    least_rows: int = 16
    blur: float = 0.02
    clip: float = 0.0
    noise: float = 0.0
    delta: float = 1e-5
    most_epsilon: float = 0.0

    @classmethod
    def load(cls, path: Path) -> "SiteSettings":
        path = path.resolve()
        hint = "fedsac federation join makes a site's folder"
        if (path / "federation.toml").exists():
            hint = "this is the coordinator's folder: name the site's"
        settings = read_toml(path / "site.toml", hint)
        settings = checked(settings, cls, ("path",), path / "site.toml")
        if "name" not in settings:
            raise FedsacError(f"{path / 'site.toml'}: name is missing; write the one that the site was added by")
        if settings.get("log", "text") not in ("text", "json"):
            raise FedsacError(f"{path / 'site.toml'}: log must be text or json, not {settings['log']!r}")
        site = cls(path=path, **settings)
        check_address(site.address, path / "site.toml")
        for name in ("least_samples", "least_batch", "least_steps", "highest_lr", "most_rounds", "least_rows", "blur"):
            if not getattr(site, name) >= 0:
                raise FedsacError(f"{path / 'site.toml'}: {name} must be at least 0, not {getattr(site, name)}")
        if (site.clip > 0) != (site.noise > 0) or min(site.clip, site.noise, site.most_epsilon) < 0:
            raise FedsacError(
                f"{path / 'site.toml'}: differential privacy takes a clip and a noise above 0; without it both are 0"
            )
        if not 0 < site.delta < 1:
            raise FedsacError(f"{path / 'site.toml'}: delta must be between 0 and 1, not {site.delta}")
        return site

    @property
    def private(self) -> bool:
        """Whether the site trains with differential privacy."""
        return self.clip > 0


def _are_texts(found: Any) -> bool:
    return isinstance(found, list) and all(isinstance(text, str) for text in found)


def checked(settings: dict[str, Any], of: type, without: tuple[str, ...], where: Path) -> dict[str, Any]:
    """The settings, if they are fields of the dataclass `of` and have their types; integers become floats where
    needed."""
    types = {field.name: field.type for field in fields(of) if field.name not in without}
    for key, value in settings.items():
        if key not in types:
            raise FedsacError(f"{where}: unknown key {key!r}; there are {', '.join(types)}")
        wanted = types[key]
        if wanted is float and type(value) is int and abs(value) < 1 << 1000:  # a float has room for it
            settings[key] = float(value)
        elif wanted in (str, int, float, bool) and type(value) is not wanted:
            raise FedsacError(f"{where}: {key} must be {wanted.__name__}, not {value!r}")
    return settings


def check_address(address: str, where: Path | None = None) -> str:
    """The host of an address, if it is one."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not re.fullmatch("[0-9]{1,5}", port) or not 1 <= int(port) <= MAX_PORT:
        place = "" if where is None else f"{where}: "
        raise FedsacError(
            f"{place}{address!r} is no address; write host:port, as in hub.example.org:9092, with a port from 1 to "
            f"{MAX_PORT}"
        )
    return host.strip("[]")


def read_toml(path: Path, hint: str) -> dict[str, Any]:
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FedsacError(f"{path}: there is no such file; {hint}") from None
    except OSError as error:
        raise FedsacError(f"{path}: cannot be read ({error.strerror}); check the path and its permissions") from None
    except (ValueError, RecursionError) as error:  # TOML's own, no UTF-8, numbers of thousands of digits
        said = " ".join(str(error).split())
        raise FedsacError(f"{path}: cannot be read ({said}); correct it there (texts are written in quotes)") from None
    check_version(settings.pop("format_version", FORMAT_VERSION), path)
    return settings


def read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        check_version(content["format_version"], path)
        return dict(content)
    except OSError as error:
        raise FedsacError(f"{path}: cannot be read ({error.strerror}); check the path and its permissions") from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        said = " ".join(str(error).split())
        raise FedsacError(f"{path}: cannot be read ({said}); it is damaged, or no JSON file of fedsac's") from None


def write_json(path: Path, content: dict[str, Any]) -> None:
    text = json.dumps({"format_version": FORMAT_VERSION} | content, indent=2, allow_nan=False) + "\n"
    try:
        write_atomic(path, text.encode())
    except OSError as error:
        raise FedsacError(f"{path}: cannot be written ({error.strerror})") from None


def public_keys(path: Path) -> list[bytes]:
    """The public keys in a file, one a line; none if there is no such file."""
    return [line for line in path.read_bytes().splitlines() if line.strip()] if path.exists() else []


def private_file(path: Path) -> Path:
    """The path, of a file that nobody but its owner reads: made if there is none."""
    if not path.exists():
        path.touch(mode=0o600)
    return path


def write_owned(path: Path, content: bytes) -> None:
    """Write a file that nobody but its owner reads: permissions first, then the content."""
    private_file(path).write_bytes(content)
