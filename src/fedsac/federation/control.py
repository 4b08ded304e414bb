"""The flwr command, for the coordinator's own server: registering keys, submitting runs."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

from fedsac.atomic import write_atomic
from fedsac.errors import FedsacError
from fedsac.federation.folder import Federation
from fedsac.federation.hub import new_secret
from fedsac.version import __version__

LOOPBACK = "127.0.0.1"
FLWR_TIMEOUT_SECONDS = 120  # for a call of the flwr command
NO_TELEMETRY = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}
APP_TOML = f"""[project]
name = "fedsac-federation"
version = "{__version__}"
description = "The app is in the installed package fedsac; this only names it"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "fedsac"

[tool.flwr.app.components]
serverapp = "fedsac.federation.app:server"
clientapp = "fedsac.federation.app:client"

[tool.flwr.app.config]
"""


def environment(home: Path, **more: str) -> dict[str, str]:
    """The environment variables of Flower's processes: no telemetry, update checks or installations, and all of
    Flower's state in the folder `home`."""
    programs = str(Path(sys.executable).parent)
    path = os.pathsep.join([programs, os.environ.get("PATH", "")])
    return {
        **os.environ,
        **NO_TELEMETRY,
        "FLWR_HOME": str(home),
        "PATH": path,
        "PYTHONUNBUFFERED": "1",
        "PYTHONUTF8": "1",
        **more,
    }


def program(name: str) -> str:
    """The path of one of Flower's programs."""
    path = shutil.which(name, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    if path is None:
        raise FedsacError(f"{name} is not installed; a federation needs fedsac[flower]")
    return path


class FlowerControl:
    """Calls the flwr command for the coordinator's own server, on loopback."""

    def __init__(self, federation: Federation, *, insecure: bool = False) -> None:
        """Write the command's configuration and the app that runs are submitted as."""
        self.federation = federation
        self.home = federation.server / "flwr"
        self.home.mkdir(exist_ok=True)
        self.app = federation.server / "app"
        self.app.mkdir(exist_ok=True)
        write_atomic(self.app / "pyproject.toml", APP_TOML.encode())
        trust = f"root-certificates = {json.dumps(str(federation.server / 'ca.pem'))}"
        connection = (
            '[superlink]\ndefault = "federation"\n\n[superlink.federation]\n'
            f'address = "{LOOPBACK}:{federation.control_port}"\n'
            f"{'insecure = true' if insecure else trust}\n"
        )
        write_atomic(self.home / "config.toml", connection.encode())
        self.secret = new_secret(self.home, f"{LOOPBACK}:{federation.control_port}")

    def register(self, public_key: str, name: str, known: Collection[int] = ()) -> int:
        """Register a site's key; returns its node. The server may have been killed after Flower had taken the key and
        before the node was written down: then it is the one that is not `known`."""
        key = self.federation.server / "flwr" / f"{name}.pub"  # from sites.json, not from the site's folder
        key.write_text(public_key)
        try:
            return int(self._flwr("supernode", "register", str(key), "federation", "--name", name)["node-id"])
        except FedsacError as error:
            unknown = self.registered_nodes() - set(known) if "already in use" in str(error) else set()
            if len(unknown) != 1:
                raise
            return unknown.pop()

    def unregister(self, node: int) -> None:
        """Remove a node's key; it may have been removed before the server was killed."""
        try:
            self._flwr("supernode", "unregister", str(node), "federation")
        except FedsacError:
            if node in self.registered_nodes():
                raise

    def registered_nodes(self) -> set[int]:
        """The nodes whose keys Flower has."""
        return {int(node["node-id"]) for node in self.nodes() if node["status"] != "unregistered"}

    def submit(self, *more: str) -> str:
        """Start a run; returns Flower's id of it."""
        return str(self._flwr("run", str(self.app), "federation", *more)["run-id"])

    def nodes(self) -> list[dict[str, Any]]:
        return list(self._flwr("supernode", "list", "federation").get("nodes", []))

    def runs(self) -> list[dict[str, Any]]:
        return list(self._flwr("list", "federation").get("runs", []))

    def _flwr(self, *arguments: str) -> dict[str, Any]:
        command = [program("flwr"), *arguments, "--format", "json"]
        done = subprocess.run(
            command,
            env=environment(self.home),
            capture_output=True,
            text=True,
            check=False,
            timeout=FLWR_TIMEOUT_SECONDS,
        )
        try:
            reply = json.loads(done.stdout[done.stdout.index("{") :])
        except ValueError:
            reply = {"success": False, "error-message": " ".join((done.stderr or done.stdout).split())[-300:]}
        if not reply.get("success", True):
            raise FedsacError(f"flwr {arguments[0]}: {reply.get('error-message')}")
        return dict(reply)
