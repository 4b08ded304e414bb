"""A federation on Flower's simulation engine, whose sites get their data from one data set split by a scene.

Its folder is like any other federation's. The only difference from sites on hosts of their own is that Flower starts
the sites, as many at a time as there are cores (or on a Ray cluster). Needs `fedsac[simulation]`.
"""

import importlib.util
import re
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fedsac.config import Config
from fedsac.core.module_layout import ModuleLayout
from fedsac.data.dataset import DataSet
from fedsac.errors import FedsacError
from fedsac.federation.control import LOOPBACK, FlowerControl, environment
from fedsac.federation.folder import EXCLUDED_SETTINGS, NOTHING, Federation
from fedsac.federation.hub import SECRET_VARIABLE
from fedsac.federation.processes import (
    HUB,
    free_port,
    is_listening,
    last_line,
    start_process,
    stop_process,
    wait_until_ready,
)
from fedsac.federation.requesting import is_requested, request, stopped
from fedsac.federation.setup import init
from fedsac.runs.prepared import DEFAULTS
from fedsac.runs.setup import prepare

SIMULATED_VARIABLE = "FEDSAC_SIMULATED"
UNLIMITED = {
    **{"least_samples": "0", "least_batch": "0", "least_steps": "0", "least_rows": "0"},
    **{"highest_lr": "inf", "most_rounds": str(10**9), "blur": "0.0"},
}


def simulate(config: Config, path: Path, say: Callable[[str], None]) -> None:
    """Split the data over sites in a new federation's folder, and run it on Flower's simulation engine."""
    if importlib.util.find_spec("ray") is None:
        raise FedsacError("engine flower-simulation needs ray; install fedsac[simulation]")
    deal_out(config, path)
    federation = Federation.load(path)
    control = FlowerControl(federation, insecure=True)
    command = [
        *(*HUB, "superlink", "--simulation", "--insecure", "--host", LOOPBACK),
        *("--port", str(federation.control_port), "--disable-runtime-dependency-installation"),
    ]
    request(federation)
    variables = {"FEDSAC_FEDERATION": str(federation.path), SIMULATED_VARIABLE: "1", "OMP_NUM_THREADS": "1"}
    variables[SECRET_VARIABLE] = str(control.secret)
    log = federation.server / "superlink.log"
    superlink = start_process(command, environment(control.home, RAY_USAGE_STATS_ENABLED="0", **variables), log)
    try:
        wait_until_ready(lambda: is_listening(LOOPBACK, federation.control_port), superlink, log)
        sites = len(federation.sites())
        run = control.submit("--federation-config", f"num-supernodes={sites} client-resources-num-cpus=1")
        say(f"{sites} simulated sites, Flower's run {run}")
        _wait(federation, control, run)
    finally:
        stop_process(superlink)


def _wait(federation: Federation, control: FlowerControl, run: str) -> None:
    """Wait for the run's end; raise if it failed."""
    while is_requested(federation):
        time.sleep(2)
        ours = [known for known in control.runs() if str(known.get("run-id")) == run]
        over = ours and str(ours[0].get("status", "")).startswith("finished")
        if over and is_requested(federation):
            raise FedsacError(f"Flower's simulation has ended; {last_line(federation.server / 'superlink.log')}")
    if reason := stopped(federation):
        raise FedsacError(reason)


def deal_out(config: Config, path: Path) -> None:
    """A federation's folder with one site for each client of a config, and its data in it."""
    for name in ("behaviour", "attack", "contributions", "standalone_checkpoints", "noise"):
        if getattr(config, name) != getattr(DEFAULTS, name):
            option = name.replace("_", "-")
            raise FedsacError(f"engine flower-simulation has no {name}; leave --{option} out, or use --engine local")
    (ready,) = prepare([config])
    dealt, data = ready.split, ready.split.data
    if data.table is not None:
        raise FedsacError("engine flower-simulation has no schema of tables; use --engine local, or a federation")
    init(path, list(dealt.clients), f"{LOOPBACK}:{free_port()}")
    labels = np.array(data.classes)
    any_network = isinstance(ready.layout, ModuleLayout)

    def save(file: Path, x: np.ndarray, y: np.ndarray) -> None:
        if any_network and data.image is not None:
            np.savez(file, x=_images(x, data), y=labels[y])
        else:
            _save(file, x, labels[y], data.channel)

    own = config.network if any_network else ""
    for name, rows in zip(dealt.clients, dealt.rows, strict=True):
        save(path / name / "data.npz", data.x[rows], data.y[rows])
        toml = path / name / "site.toml"
        text = toml.read_text().replace('"data.csv"', '"data.npz"').replace('model = ""', f'model = "{own}"')
        toml.write_text(unlimited(text))
    save(path / "validation.npz", data.x[dealt.validation], data.y[dealt.validation])
    save(path / "test.npz", dealt.x_test, dealt.y_test)
    (path / "federation.toml").write_text(_toml(ready.config, data.classes))


def unlimited(toml: str) -> str:
    """A site.toml without limits on what the site answers: the data is this machine's own, and a simulation computes
    what a local run computes."""
    for name, value in UNLIMITED.items():
        toml = re.sub(rf"^{name} = \S+", f"{name} = {value}", toml, flags=re.MULTILINE)
    return toml


def _images(x: np.ndarray, data: DataSet) -> np.ndarray:
    """Rows as the images that they are, channels last."""
    assert data.image is not None
    channels, height, width = data.image
    if data.channels_last or channels == 1:
        return x.reshape(len(x), height, width, *([channels] if channels > 1 else []))
    return x.reshape(len(x), channels, height, width).transpose(0, 2, 3, 1)


def _save(path: Path, x: np.ndarray, y: np.ndarray, channel: np.ndarray) -> None:
    """Save samples as an .npz file that is read back with the same channels: a table, or images with channels last."""
    channels = len(set(channel.tolist()))
    if channels < x.shape[1]:
        x = x[:, np.argsort(np.argsort(channel, kind="stable") % (x.shape[1] // channels), kind="stable")]
        x = x.reshape(len(x), x.shape[1] // channels, 1, channels)
    np.savez(path, x=x, y=y)


def _toml(config: Config, classes: tuple[str, ...]) -> str:
    ours = [
        line
        for line in config.toml().splitlines()
        if line.split(" = ")[0] not in (*EXCLUDED_SETTINGS, "format_version", "rules")
    ]
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
hardened = "{config.hardened or NOTHING}"
control_port = {free_port()}

[run]
{run}
"""
