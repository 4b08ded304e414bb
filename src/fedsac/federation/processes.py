"""Flower's own processes with the right flags: the server behind the gate, a site's node, and its command line."""

import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedsac.atomic import write_atomic
from fedsac.errors import FedsacError
from fedsac.federation.data import read_data
from fedsac.federation.folder import FAILED, IN, REQUESTED, Federation, SiteSettings, write_json
from fedsac.federation.setup import host_of
from fedsac.version import __version__

LOOPBACK = "127.0.0.1"
POLL = 2.0
CHECK = 10.0  # seconds between two looks at what became of a run
TRIES = 5  # of a run that ends for no reason of ours
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}
APP = f"""[project]
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
    """What Flower's processes see: nothing is reported, looked up or installed, and state lies in the folder."""
    beside = str(Path(sys.executable).parent)
    path = os.pathsep.join([beside, os.environ.get("PATH", "")])
    return {
        **os.environ,
        **QUIET,
        "FLWR_HOME": str(home),
        "PATH": path,
        "PYTHONUNBUFFERED": "1",
        "PYTHONUTF8": "1",
        **more,
    }


def program(name: str) -> str:
    found = shutil.which(name, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    if found is None:
        raise FedsacError(f"{name} is not installed; a federation needs fedsac[flower]")
    return found


def started(command: list[str], env: dict[str, str], log: Path) -> "subprocess.Popen[bytes]":
    """A child that ends with this process, whatever ends it; what it says goes to a file."""
    with log.open("ab") as out:
        return subprocess.Popen(
            command, env=env, stdout=out, stderr=out, stdin=subprocess.DEVNULL, preexec_fn=_die_with_parent
        )


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


class Server:
    """The coordinator's side: Flower's SuperLink on loopback, the gate before it, keys registered, runs submitted."""

    def __init__(self, federation: Federation, say: Callable[[str], None]) -> None:
        self.f, self.say = federation, say
        self.control = Control(federation, insecure=federation.insecure)
        self.registered: dict[str, int] = federation.nodes()
        self.run, self.tries, self.look = "", 0, 0.0

    def serve(self) -> None:
        """Until interrupted."""
        from fedsac.federation.gate import Gate, open_gate

        f = self.f
        host = host_of(f.address)
        if f.insecure:
            self.say("WARNING: insecure = true: models and replies cross the network unencrypted")
        _free(LOOPBACK, f.control_port)
        command = [
            *(program("flower-superlink"), "--host", LOOPBACK, "--port", str(f.control_port)),
            *("--database", str(f.server / "superlink.db"), "--disable-runtime-dependency-installation"),
            *(["--insecure"] if f.insecure else _tls(f.server)),
        ]
        env = environment(self.control.home, FEDSAC_FEDERATION=str(f.path))
        superlink = started(command, env, f.server / "superlink.log")
        try:
            until(lambda: listens(LOOPBACK, f.control_port), superlink, f.server / "superlink.log")
            self._follow()
            gate = Gate(LOOPBACK, f.control_port, None if f.insecure else f.server / "ca.pem", f.max_message_mb)
            where = host if host in (LOOPBACK, "localhost", "::1") else "0.0.0.0"
            port = int(f.address.rpartition(":")[2])
            tls = (None, None) if f.insecure else (f.server / "server.pem", f.server / "server.key")
            open_gate(gate, where, port, *tls)
            self.say(f"serving {f.path.name} at {f.address}; start the sites, then: fedsac federation run {f.path}")
            while superlink.poll() is None:
                self._follow()
                time.sleep(POLL)
            raise FedsacError(f"Flower's server has ended; {last_line(f.server / 'superlink.log')}")
        finally:
            end(superlink)

    def _follow(self) -> None:
        """Register keys that are new, remove those that are gone, and submit a run that was asked for."""
        for name, site in ({} if self.f.insecure else self.f.sites()).items():
            if site["status"] == IN and name not in self.registered:
                self.registered[name] = self.control.register(site["public_key"], name)
            elif site["status"] == "revoked" and name in self.registered:
                self.control.unregister(self.registered.pop(name))
                self.say(f"the key of {name} is revoked")
            else:
                continue
            write_json(self.f.server / "nodes.json", {"nodes": self.registered})
        self._see_to_the_run()

    def _see_to_the_run(self) -> None:
        """Submit what was asked for, and again when Flower gave it up: the coordinator goes on where it was."""
        requested = self.f.server / REQUESTED
        if not requested.exists():
            self.run, self.tries = "", 0
            return
        if self.run:
            if time.monotonic() < self.look:
                return
            self.look = time.monotonic() + CHECK
            mine = [run for run in self.control.runs() if str(run.get("run-id")) == self.run]
            if not mine or not str(mine[0].get("status", "")).startswith("finished"):
                return
        if self.tries == TRIES:
            requested.unlink(missing_ok=True)
            reason = f"the run ended {TRIES} times for no reason of its own; see {self.f.server / 'superlink.log'}"
            write_atomic(self.f.server / FAILED, reason.encode())
            return
        self.tries += 1
        self.run, self.look = self.control.submit(), time.monotonic() + CHECK
        self.say(f"submitted to Flower as run {self.run}")


class Control:
    """Flower's command line against the coordinator's own server, on loopback."""

    def __init__(self, federation: Federation, *, insecure: bool = False) -> None:
        self.f = federation
        self.home = federation.server / "flwr"
        self.home.mkdir(exist_ok=True)
        self.app = federation.server / "app"
        self.app.mkdir(exist_ok=True)
        write_atomic(self.app / "pyproject.toml", APP.encode())
        trust = f"root-certificates = {json.dumps(str(federation.server / 'ca.pem'))}"
        connection = (
            '[superlink]\ndefault = "federation"\n\n[superlink.federation]\n'
            f'address = "{LOOPBACK}:{federation.control_port}"\n'
            f"{'insecure = true' if insecure else trust}\n"
        )
        write_atomic(self.home / "config.toml", connection.encode())

    def register(self, public_key: str, name: str) -> int:
        key = self.f.server / "flwr" / f"{name}.pub"  # the list decides, not what lies in the site's folder
        key.write_text(public_key)
        found = self._flwr("supernode", "register", str(key), "federation", "--name", name)
        return int(found["node-id"])

    def unregister(self, node: int) -> None:
        self._flwr("supernode", "unregister", str(node), "federation")

    def submit(self, *more: str) -> str:
        return str(self._flwr("run", str(self.app), "federation", *more)["run-id"])

    def nodes(self) -> list[dict[str, Any]]:
        return list(self._flwr("supernode", "list", "federation").get("nodes", []))

    def runs(self) -> list[dict[str, Any]]:
        return list(self._flwr("list", "federation").get("runs", []))

    def _flwr(self, *arguments: str) -> dict[str, Any]:
        command = [program("flwr"), *arguments, "--format", "json"]
        done = subprocess.run(
            command, env=environment(self.home), capture_output=True, text=True, check=False, timeout=120
        )
        try:
            found = json.loads(done.stdout[done.stdout.index("{") :])
        except ValueError:
            found = {"success": False, "error-message": " ".join((done.stderr or done.stdout).split())[-300:]}
        if not found.get("success", True):
            raise FedsacError(f"flwr {arguments[0]}: {found.get('error-message')}")
        return dict(found)


def run_site(folder: Path, say: Callable[[str], None]) -> None:
    """A site's node, until interrupted."""
    s = SiteSettings.load(folder)
    # Read once here: a file that is missing or damaged is this site's business, before anybody hears of it.
    samples = len(read_data(s.data, s.path, s.label).x)
    if s.insecure:
        say("WARNING: insecure = true: models and replies cross the network unencrypted")
    home = s.path / "flwr"
    home.mkdir(exist_ok=True)
    port = s.port or any_port()
    command = [
        *(program("flower-supernode"), "--superlink", s.address, "--host", LOOPBACK, "--port", str(port)),
        *(["--insecure"] if s.insecure else ["--root-certificates", str(s.path / "ca.pem")]),
        *([] if s.insecure else ["--auth-supernode-private-key", str(s.path / "key")]),
        *("--node-config", f"site={json.dumps(str(s.path))}"),
    ]
    threads = {"OMP_NUM_THREADS": str(s.threads)} if s.threads else {}
    say(f"site {s.name}: {samples} samples in {s.data}, server {s.address}")
    node = started(command, environment(home, FEDSAC_SITE=str(s.path), **threads), s.path / "site.log")
    try:
        node.wait()
    finally:
        end(node)
    raise FedsacError(f"Flower's node has ended; {last_line(s.path / 'site.log')}")


def _tls(server: Path) -> list[str]:
    """The server's certificate, and node keys, which Flower takes with TLS alone."""
    return [
        *("--ssl-ca-certfile", str(server / "ca.pem"), "--ssl-certfile", str(server / "server.pem")),
        *("--ssl-keyfile", str(server / "server.key"), "--enable-supernode-auth"),
    ]


def _free(host: str, port: int) -> None:
    """Refuse a port that somebody listens on; one that an earlier server has just left may take a moment."""
    for _ in range(20):
        if not listens(host, port):
            return
        time.sleep(0.5)
    raise FedsacError(f"port {port} on {host} is in use; is this federation's server running already?")


def listens(host: str, port: int) -> bool:
    with socket.socket() as there:
        there.settimeout(1)
        return there.connect_ex((host, port)) == 0


def any_port() -> int:
    with socket.socket() as there:
        there.bind((LOOPBACK, 0))
        return int(there.getsockname()[1])


def until(ready: Callable[[], bool], process: "subprocess.Popen[bytes]", log: Path) -> None:
    for _ in range(240):
        if ready():
            return
        if process.poll() is not None:
            break
        time.sleep(0.5)
    raise FedsacError(f"Flower's server did not start; {last_line(log)}")


def last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return f"its last line in {log} is: {lines[-1].strip()[:200] if lines else 'none'}"


def end(process: "subprocess.Popen[bytes]") -> None:
    """Ask a child to end, and wait; after a while, insist."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
