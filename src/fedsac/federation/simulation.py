"""Many nodes on Flower's own simulation engine: a federation whose sites are dealt out from one data set.

The folder is a federation's like any other, and all that differs from hosts of their own is who starts the sites:
Flower, as many at a time as there are cores (or a whole cluster of Ray's). Needs `fedsac[simulation]`.
"""

import importlib.util
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fedsac.config import Config
from fedsac.errors import FedsacError
from fedsac.federation.folder import FAILED, NOT_OURS, REQUESTED, Federation
from fedsac.federation.processes import (
    LOOPBACK,
    Control,
    any_port,
    end,
    environment,
    last_line,
    listens,
    program,
    started,
    until,
)
from fedsac.federation.setup import init
from fedsac.runs.setup import DEFAULTS, prepare

SIMULATED = "FEDSAC_SIMULATED"


def simulate(config: Config, path: Path, say: Callable[[str], None]) -> None:
    """Deal the data out to sites in a new federation's folder, and run it on Flower's engine."""
    if importlib.util.find_spec("ray") is None:
        raise FedsacError("engine flower-simulation needs ray; install fedsac[simulation]")
    deal_out(config, path)
    federation = Federation.load(path)
    control = Control(federation, insecure=True)
    command = [
        *(program("flower-superlink"), "--simulation", "--insecure", "--host", LOOPBACK),
        *("--port", str(federation.control_port), "--disable-runtime-dependency-installation"),
    ]
    (federation.server / REQUESTED).touch()
    threads = {"FEDSAC_FEDERATION": str(federation.path), SIMULATED: "1", "OMP_NUM_THREADS": "1"}
    log = federation.server / "superlink.log"
    superlink = started(command, environment(control.home, RAY_USAGE_STATS_ENABLED="0", **threads), log)
    try:
        until(lambda: listens(LOOPBACK, federation.control_port), superlink, log)
        sites = len(federation.sites())
        run = control.submit("--federation-config", f"num-supernodes={sites} client-resources-num-cpus=1")
        say(f"{sites} simulated sites, Flower's run {run}")
        _wait(federation, control, run)
    finally:
        end(superlink)


def _wait(federation: Federation, control: Control, run: str) -> None:
    while (federation.server / REQUESTED).exists():
        time.sleep(2)
        mine = [found for found in control.runs() if str(found.get("run-id")) == run]
        over = mine and str(mine[0].get("status", "")).startswith("finished")
        if over and (federation.server / REQUESTED).exists():
            raise FedsacError(f"Flower's simulation has ended; {last_line(federation.server / 'superlink.log')}")
    if (federation.server / FAILED).exists():
        raise FedsacError((federation.server / FAILED).read_text())


def deal_out(config: Config, path: Path) -> None:
    """A federation's folder with one site for each client of a config, and its data in it."""
    for name in ("behaviour", "contributions"):
        if getattr(config, name) is not None:
            raise FedsacError(f"engine flower-simulation has no {name}; leave --{name} out, or use --engine local")
    (ready,) = prepare([config])
    dealt, data = ready.split, ready.split.data
    init(path, list(dealt.clients), f"{LOOPBACK}:{any_port()}")
    labels = np.array(data.classes)
    for name, rows in zip(dealt.clients, dealt.rows, strict=True):
        _save(path / name / "data.npz", data.x[rows], labels[data.y[rows]], data.channel)
        toml = path / name / "site.toml"
        toml.write_text(toml.read_text().replace('"data.csv"', '"data.npz"'))
    _save(path / "validation.npz", data.x[dealt.validation], labels[data.y[dealt.validation]], data.channel)
    _save(path / "test.npz", dealt.x_test, labels[dealt.y_test], data.channel)
    (path / "federation.toml").write_text(_toml(ready.config, data.classes))


def _save(path: Path, x: np.ndarray, y: np.ndarray, channel: np.ndarray) -> None:
    """An .npz file that reads back with the same channels: as a table, or as pixels with their channels last."""
    channels = len(set(channel.tolist()))
    if channels < x.shape[1]:
        x = x[:, np.argsort(np.argsort(channel, kind="stable") % (x.shape[1] // channels), kind="stable")]
        x = x.reshape(len(x), x.shape[1] // channels, 1, channels)
    np.savez(path, x=x, y=y)


def _toml(config: Config, classes: tuple[str, ...]) -> str:
    ours = [line for line in config.toml().splitlines() if line.split(" = ")[0] not in (*NOT_OURS, "format_version")]
    run = "\n".join(ours).replace("[options]", "[run.options]")
    named = ", ".join(f'"{name}"' for name in classes)
    return f"""format_version = 1

[federation]
address = "{LOOPBACK}:1"
validation = "validation.npz"
test = "test.npz"
classes = [{named}]
model = "{"" if config.network == DEFAULTS.network else config.network}"
timeout = 3600
control_port = {any_port()}

[run]
{run}
"""
