"""Starting the programs: Flower's server (SuperLink) behind the gate, and a site's node."""

import ctypes
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from fedsac.errors import FedsacError
from fedsac.federation.control import LOOPBACK, NO_TELEMETRY, FlowerControl, environment
from fedsac.federation.data import read_data, read_raw_data, table_schema
from fedsac.federation.folder import (
    ACTIVE,
    REVOKED,
    Federation,
    SiteSettings,
    check_address,
    write_json,
)
from fedsac.federation.hub import SECRET_VARIABLE
from fedsac.federation.identity import expiry, fingerprint
from fedsac.federation.logs import log_to, rotate
from fedsac.federation.requesting import is_requested, stop

HUB = (sys.executable, "-m", "fedsac.federation.hub")
POLL_SECONDS = 2.0  # between two checks for new sites and requested runs
RUN_CHECK_SECONDS = 10.0  # between two questions to Flower whether a run is still going
MAX_SUBMISSIONS = 5  # of a run that Flower ends before it is over, without an error of ours
START_TIMEOUT_SECONDS = 120  # for Flower's server
STOP_TIMEOUT_SECONDS = 20  # for a process to end when it is asked to
PORT_TIMEOUT_SECONDS = 10  # for an earlier server to release its port
EXPIRY_DAYS = 30  # before a certificate ends, and the server warns of it
LOG_LINES = 200  # of the end of a log, in which its last error is looked for
SHUTDOWN = re.compile(
    r"gracefully|shut(ting)?[ -]?down|Exiting|Background on this error|Finished server|startup failed|Waiting for", re.I
)
ERROR = re.compile(r"\w(Error|Exception)\b|\bERROR\b|^error:|\bfailed\b|does not point to|cannot ", re.I)


def start_process(command: list[str], env: dict[str, str], log: Path) -> "subprocess.Popen[bytes]":
    """Start a child process that ends when this process does; its output is appended to a file."""
    with log.open("ab") as out:
        return subprocess.Popen(
            command, env=env, stdout=out, stderr=out, stdin=subprocess.DEVNULL, preexec_fn=_die_with_parent
        )


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


class Server:
    """The coordinator's server: Flower's SuperLink on loopback and the gate before it. It registers the sites' keys and
    submits runs."""

    def __init__(self, federation: Federation, say: Callable[[str], None]) -> None:
        self.federation, self.say = federation, say
        self.control = FlowerControl(federation, insecure=federation.insecure)
        self.registered: dict[str, int] = federation.nodes()
        self.keys: dict[str, str] = federation.registered_keys()
        self.run, self.submissions, self.next_check = "", 0, 0.0

    def serve(self) -> None:
        """Serve until interrupted."""
        from fedsac.federation.callers import Callers
        from fedsac.federation.gate import Gate, serve_gate
        from fedsac.federation.metrics import serve_metrics

        f = self.federation
        host = check_address(f.address)
        if f.insecure:
            self.say("WARNING: insecure = true: models and replies cross the network unencrypted")
        else:
            self._warn_of_expiry()
        _require_free(LOOPBACK, f.control_port)
        command = [
            *(*HUB, "superlink", "--host", LOOPBACK, "--port", str(f.control_port)),
            *("--database", str(f.server / "superlink.db"), "--disable-runtime-dependency-installation"),
            *("--isolation", "process", "--superexec-auth-secret-file", str(self.control.secret)),
            *(["--insecure"] if f.insecure else _tls(f.server)),
        ]
        ours = {"FEDSAC_FEDERATION": str(f.path), SECRET_VARIABLE: str(self.control.secret)}
        env = environment(self.control.home, **ours)
        superlink, executor = start_process(command, env, f.server / "superlink.log"), None
        try:
            wait_until_ready(lambda: is_listening(LOOPBACK, f.control_port), superlink, f.server / "superlink.log")
            trust = [] if f.insecure else [str(f.server / "ca.pem")]
            command = [*HUB, "executor", f"{LOOPBACK}:{f.control_port}", *trust]
            executor = start_process(command, env, f.server / "superlink.log")
            self._follow_sites()
            ca, callers = (None, None) if f.insecure else (f.server / "ca.pem", Callers(f))
            gate = Gate(LOOPBACK, f.control_port, ca, f.max_message_bytes, callers)
            where = host if host in (LOOPBACK, "localhost", "::1") else ("::" if ":" in host else "0.0.0.0")
            port = int(f.address.rpartition(":")[2])
            tls = (None, None) if f.insecure else (f.server / "server.pem", f.server / "server.key")
            serve_gate(gate, where, port, *tls)
            if f.metrics_port:
                serve_metrics(f, f.metrics_port)
            self.say(f"serving {f.path.name} at {f.address}; start the sites, then: fedsac federation run {f.path}")
            while superlink.poll() is None and executor.poll() is None:
                self._follow_sites()
                rotate(f.server / "superlink.log")
                time.sleep(POLL_SECONDS)
            raise FedsacError(f"Flower's server has ended; {last_line(f.server / 'superlink.log')}")
        finally:
            for process in (superlink, executor):
                if process is not None:
                    stop_process(process)

    def _warn_of_expiry(self) -> None:
        ends = expiry((self.federation.server / "server.pem").read_bytes())
        if (ends - datetime.now(UTC)).days < EXPIRY_DAYS:
            renew = f"fedsac federation renew {self.federation.path} certificate"
            self.say(f"WARNING: the server's certificate ends on {ends:%Y-%m-%d}; renew it before: {renew}")

    def _follow_sites(self) -> None:
        """Register the keys of new sites, remove those that were revoked or renewed, and submit a requested run."""
        for name, site in ({} if self.federation.insecure else self.federation.sites()).items():
            key, gone = fingerprint(site["public_key"].encode()), site["status"] == REVOKED
            if name in self.registered and (gone or self.keys[name] != key):
                self.control.unregister(self.registered.pop(name))
                self._write_nodes()
                self.say(f"the key of {name} is revoked" if gone else f"{name} has a new key, {key}")
            if name not in self.registered and site["status"] == ACTIVE:
                known = self.registered.values()
                self.registered[name] = self.control.register(site["public_key"], name, known)
                self.keys[name] = key
                self._write_nodes()
        self._submit_requested_run()

    def _write_nodes(self) -> None:
        keys = {name: self.keys[name] for name in self.registered}
        write_json(self.federation.server / "nodes.json", {"nodes": self.registered, "keys": keys})

    def _submit_requested_run(self) -> None:
        """Submit a run that was requested, and again if Flower has ended it: the coordinator then resumes it."""
        if not is_requested(self.federation):
            self.run, self.submissions = "", 0
            return
        if self.run:
            if time.monotonic() < self.next_check:
                return
            self.next_check = time.monotonic() + RUN_CHECK_SECONDS
            mine = [run for run in self.control.runs() if str(run.get("run-id")) == self.run]
            if not mine or not str(mine[0].get("status", "")).startswith("finished"):
                return
        if self.submissions == MAX_SUBMISSIONS:
            log = self.federation.server / "superlink.log"
            stop(self.federation, f"Flower ended the run {MAX_SUBMISSIONS} times before it was over; see {log}")
            return
        self.submissions += 1
        self.run, self.next_check = self.control.submit(), time.monotonic() + RUN_CHECK_SECONDS
        self.say(f"submitted to Flower as run {self.run}")


def run_site(folder: Path, say: Callable[[str], None]) -> None:
    """Run a site's node until interrupted."""
    s = SiteSettings.load(folder)
    # Read the data once here, so that a missing or damaged file is reported before the site joins.
    by = table_schema(s.path)
    table = read_data(s.data, s.path, s.label) if by is None else read_raw_data(s.data, s.path, by, s.name)
    samples = len(table.x)
    if s.insecure:
        say("WARNING: insecure = true: models and replies cross the network unencrypted")
    say(f"site {s.name}: {samples} samples in {s.data}, server {s.address}")
    os.environ.update(NO_TELEMETRY)  # before Flower is imported
    log_to(s.path / "site.log", s.name, s.log)
    from fedsac.federation.node import Node

    Node(s, say).serve()


def _tls(server: Path) -> list[str]:
    """The options for TLS and for node keys, which Flower supports only with TLS."""
    return [
        *("--ssl-ca-certfile", str(server / "ca.pem"), "--ssl-certfile", str(server / "server.pem")),
        *("--ssl-keyfile", str(server / "server.key"), "--enable-supernode-auth"),
    ]


def _require_free(host: str, port: int) -> None:
    """Raise if the port is in use; an earlier server may need a moment to release it."""
    for _ in range(2 * PORT_TIMEOUT_SECONDS):
        if not is_listening(host, port):
            return
        time.sleep(0.5)
    raise FedsacError(
        f"port {port} on {host} is in use; is this federation's server running already? Else write another "
        "control_port in federation.toml"
    )


def require_stopped(federation: Federation) -> None:
    """Raise if the server is running: it has read its certificates, and its sites would be shown others."""
    if is_listening(LOOPBACK, federation.control_port):
        raise FedsacError(
            f"the server of {federation.path} is running; stop it, renew, and start it again: sites wait meanwhile"
        )


def is_listening(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((host, port)) == 0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def wait_until_ready(ready: Callable[[], bool], process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Wait until `ready` returns True; raise if the process ends before, or does not get ready in time."""
    for _ in range(2 * START_TIMEOUT_SECONDS):
        if ready():
            return
        if process.poll() is not None:
            break
        time.sleep(0.5)
    raise FedsacError(f"Flower's server did not start; {last_line(log)}")


def last_line(log: Path) -> str:
    """The cause, as far as a log tells it: its last error, not what Flower says while it shuts down after that."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines()[-LOG_LINES:]]
    lines = [line for line in lines if line and not SHUTDOWN.search(line)]
    errors = [line for line in lines if ERROR.search(line)]
    return f"{log} says: {([*lines, *errors][-1] if lines else 'nothing')[:200]}"


def stop_process(process: "subprocess.Popen[bytes]") -> None:
    """Terminate a child process, and kill it if it does not end in time."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
