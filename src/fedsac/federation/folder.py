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

SITE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,60}")
RESERVED_SITE_NAMES = ("server",)
ACTIVE, LEFT, REVOKED = "in", "left", "revoked"
EXCLUDED_SETTINGS = (  # settings of `fedsac run` that a federation's [run] does not have
    *("data", "scene", "clients", "share", "samples_per_client", "split_seed", "label", "data_dir"),
    *("behaviour", "contributions", "network", "standalone_checkpoints"),
)
REQUESTED_FILE = "requested"  # in server/: exists while a run was asked for and is not over
FAILED_FILE = "failed"  # in server/: the error that ended the last run before it was over


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
    max_message_mb: float = 512.0
    control_port: int = 9093
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
        settings = read_toml(path / "federation.toml", "fedsac federation init makes one")
        run = settings.pop("run", {})
        where = path / "federation.toml"
        for key in EXCLUDED_SETTINGS:
            if key in run:
                why = {
                    "behaviour": "it is simulated, and these sites are real",
                    "contributions": "they are measured when a site joins",
                    "network": "name it as model in [federation]",
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
            config = Config(**known(run, "key"), scene="silos", data=data)
        except FedsacError as error:
            raise FedsacError(f"{where}: {error}") from None
        if config.contribution != STANDALONE:
            raise FedsacError(
                f"{where}: contribution {config.contribution} trains on the clients' data, which a coordinator does "
                "not have; use standalone"
            )
        federation = cls(path=path, config=config, **settings)
        for name, least in (("min_answers", 1), ("repeats", 0), ("aside_after", 1)):
            if getattr(federation, name) < least:
                raise FedsacError(f"{where}: {name} must be at least {least}, not {getattr(federation, name)}")
        return federation

    def sites(self) -> dict[str, dict[str, Any]]:
        """All sites that were ever added, by name: public key and status."""
        return dict(read_json(self.path / "sites.json")["sites"])

    def set_sites(self, sites: dict[str, dict[str, Any]]) -> None:
        write_json(self.path / "sites.json", {"sites": sites})

    def nodes(self) -> dict[str, int]:
        """Each site's Flower node, as registered with its public key; what a site claims itself is not used."""
        path = self.server / "nodes.json"
        return {name: int(node) for name, node in read_json(path)["nodes"].items()} if path.exists() else {}


@dataclass(frozen=True)
class SiteSettings:
    """The settings in a site's site.toml. `data` is a file, relative to the site's folder, or module:function."""

    path: Path
    name: str
    data: str = "data.csv"
    label: str = "label"
    address: str = "127.0.0.1:9092"
    port: int = 0
    threads: int = 0
    device: str = "cpu"
    insecure: bool = False

    @classmethod
    def load(cls, path: Path) -> "SiteSettings":
        path = path.resolve()
        settings = read_toml(path / "site.toml", "fedsac federation init makes one for each site")
        settings = checked(settings, cls, ("path",), path / "site.toml")
        if "name" not in settings:
            raise FedsacError(f"{path / 'site.toml'}: name is missing")
        return cls(path=path, **settings)


def checked(settings: dict[str, Any], of: type, without: tuple[str, ...], where: Path) -> dict[str, Any]:
    """The settings, if they are fields of the dataclass `of` and have their types; integers become floats where
    needed."""
    types = {field.name: field.type for field in fields(of) if field.name not in without}
    for key, value in settings.items():
        if key not in types:
            raise FedsacError(f"{where}: unknown key {key!r}; there are {', '.join(types)}")
        wanted = types[key]
        if wanted is float and type(value) is int:
            settings[key] = float(value)
        elif wanted in (str, int, float, bool) and type(value) is not wanted:
            raise FedsacError(f"{where}: {key} must be {wanted.__name__}, not {value!r}")
    return settings


def read_toml(path: Path, hint: str) -> dict[str, Any]:
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FedsacError(f"{path}: there is no such file; {hint}") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise FedsacError(f"{path}: cannot be read ({error})") from None
    check_version(settings.pop("format_version", FORMAT_VERSION), path)
    return settings


def read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        check_version(content["format_version"], path)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FedsacError(f"{path}: cannot be read ({error})") from None
    return dict(content)


def write_json(path: Path, content: dict[str, Any]) -> None:
    text = json.dumps({"format_version": FORMAT_VERSION} | content, indent=2, allow_nan=False) + "\n"
    try:
        write_atomic(path, text.encode())
    except OSError as error:
        raise FedsacError(f"{path}: cannot be written ({error.strerror})") from None
