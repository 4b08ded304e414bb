"""A federation of real processes on loopback: Flower's server and nodes, TLS, node keys, kills and restarts."""

import base64
import json
import os
import re
import shlex
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")

from fedsac.federation.control import environment, program
from fedsac.federation.folder import Federation
from fedsac.federation.identity import new_key, sign
from fedsac.federation.ledger import read
from fedsac.models.files import ModelFile
from tests.flower_grid import SIZES, digits_silos

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="kills whole process groups")]

ROUNDS = 6
FEDSAC = [sys.executable, "-m", "fedsac"]
PAGE = (Path(__file__).resolve().parents[2] / "docs" / "deployment.md").read_text(encoding="utf-8")


def page_commands():
    """The six commands of "Three sites on one machine", as somebody reads them: what to do, by what starts."""
    section = PAGE.split("## Three sites on one machine")[1].split("\n## ")[0]
    found = [shlex.split(line)[2:] for line in re.findall(r"^    (fedsac federation .*)$", section, flags=re.MULTILINE)]
    assert [words[0] for words in found] == ["init", "server", "site", "site", "site", "run"]
    return dict(zip(("init", "server", "a", "b", "c", "run"), found, strict=True))


def free_port():
    with socket.socket() as there:
        there.bind(("127.0.0.1", 0))
        return there.getsockname()[1]


class Processes:
    """Commands of `fedsac federation`, each in a group of its own, so that it can be killed whole."""

    def __init__(self, folder):
        self.folder, self.running = folder, {}

    def start(self, name):
        env = os.environ | {"OMP_NUM_THREADS": "1"}
        command = [*FEDSAC, "federation", *page_commands()[name]]
        with (self.folder.parent / f"{name}.out").open("ab") as out:
            self.running[name] = subprocess.Popen(
                command, stdout=out, stderr=out, env=env, cwd=self.folder.parent, start_new_session=True
            )
        return self.running[name]

    def kill(self, name):
        process = self.running.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def end(self):
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)

    def says(self):
        logs = [*self.folder.parent.glob("*.out"), self.folder / "server" / "superlink.log"]
        return "\n".join(f"== {log.name}\n{log.read_text()[-3000:]}" for log in logs if log.exists())


def until(what, processes, seconds=200.0, pause=0.3):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if what():
            return
        time.sleep(pause)
    pytest.fail(f"waited too long\n{processes.says()}")


def rounds(folder):
    ledger = folder / "server" / "ledger.jsonl"
    return [e["body"] for e in read(ledger) if e["kind"] == "round"] if ledger.exists() else []


def listens(port):
    with socket.socket() as there:
        return there.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """A federation's folder, made by `init`, with everybody's data in place."""
    base = tmp_path_factory.mktemp("federation")
    silos, folder = digits_silos(base / "silos"), base / "trial"
    port, control = free_port(), free_port()
    command = [word.replace(":9092", f":{port}") for word in page_commands()["init"]]
    subprocess.run([*FEDSAC, "federation", *command], cwd=base, check=True, capture_output=True)
    for name in SIZES:
        as_csv(silos / f"{name}.npz", folder / name / "data.csv")
    as_csv(silos / "validation.npz", folder / "validation.csv")
    changes = {
        "control_port = 9093": f"control_port = {control}",
        "rounds = 20": f"rounds = {ROUNDS}",
        "timeout = 600": "timeout = 120",
    }
    edit(folder / "federation.toml", changes)
    return folder, port, control, silos


def as_csv(source, target):
    with np.load(source) as data:
        head = ",".join([*(f"pixel{i}" for i in range(data["x"].shape[1])), "label"])
        np.savetxt(target, np.column_stack([data["x"], data["y"]]), fmt="%d", delimiter=",", header=head, comments="")


def edit(path, changes):
    text = path.read_text()
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    path.write_text(text)


@pytest.fixture(scope="module")
def played(begun):
    """The whole story: a site is killed and restarted, so is the server, and everybody is paid."""
    folder, port, _, _ = begun
    processes = Processes(folder)
    try:
        processes.start("server")
        until(lambda: listens(port), processes)
        for name in SIZES:
            processes.start(name)
        run = processes.start("run")
        until(lambda: len(rounds(folder)) >= 1, processes)
        processes.kill("b")
        # On a busy machine more than one round may have passed with b before it was seen that one had.
        until(lambda: any("b" not in body["answered"] for body in rounds(folder)), processes)
        processes.start("b")
        processes.kill("server")
        processes.start("server")
        until(lambda: run.poll() is not None, processes)
        assert run.returncode == 0, processes.says()
        yield folder, port, processes
    finally:
        processes.end()


def test_rounds_rewards_receipts(played, begun):
    folder = played[0]
    entries = read(folder / "server" / "ledger.jsonl")
    kinds = [entry["kind"] for entry in entries]
    assert "resumed" in kinds, "the server was killed and went on"
    committed = {body["round"]: body for body in rounds(folder)}
    assert sorted(committed) == list(range(1, ROUNDS + 1))
    assert any("b" not in body["answered"] for body in committed.values()), "b was dead for a while"
    assert "b" in committed[ROUNDS]["answered"], "b came back by its key"
    assert kinds.count("contribution") == 3, "everybody stood alone once"
    for name, size in SIZES.items():
        receipt = json.loads((folder / name / "receipt.json").read_text())["body"]
        assert receipt["site"] == name and receipt["samples"] == size
        assert receipt["rounds"] == [n for n, body in sorted(committed.items()) if name in body["answered"]]
    new = folder.parent / "new.csv"
    as_csv(begun[3] / "test.npz", new)
    command = [*FEDSAC, "predict", str(folder / "a" / "reward.safetensors"), str(new)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("row,class,probability") and "accuracy" in done.stderr


def test_status_and_verify(played, tmp_path):
    folder = played[0]
    done = subprocess.run([*FEDSAC, "federation", "status", str(folder), "--json"], capture_output=True, check=True)
    found = json.loads(done.stdout)
    assert found["state"] == "over" and all(site["delivered"] for site in found["sites"].values())
    assert subprocess.run([*FEDSAC, "federation", "verify", str(folder)], capture_output=True).returncode == 0
    copy = tmp_path / "fed"
    shutil.copytree(folder, copy)
    edit(copy / "server" / "ledger.jsonl", {'"samples":60': '"samples":61'})
    tampered = subprocess.run([*FEDSAC, "federation", "verify", str(copy)], capture_output=True, text=True)
    assert tampered.returncode == 2 and "was changed" in tampered.stderr


def test_an_unregistered_node_is_refused(played, tmp_path):
    folder, port, _ = played
    key, public = new_key()
    (tmp_path / "key").write_bytes(key)
    command = [
        *(program("flower-supernode"), "--superlink", f"127.0.0.1:{port}", "--port", str(free_port())),
        *("--root-certificates", str(folder / "a" / "ca.pem"), "--max-retries", "1"),
        *("--auth-supernode-private-key", str(tmp_path / "key")),
    ]
    log = tmp_path / "node.log"
    with log.open("wb") as out:  # no pipe: the node's own children would keep it open
        subprocess.run(command, env=environment(tmp_path), stdout=out, stderr=out, timeout=90, check=False)
    assert "Starting Flower SuperNode" in log.read_text()
    assert "SuperNode ID" not in log.read_text(), "Flower's node ended without a connection"
    assert asked(folder, port, "/v1/fleet/activate-node", b"", key, public) == 401
    nodes = Federation.load(folder).nodes()
    assert sorted(nodes) == sorted(SIZES)


def asked(folder, port, path, body, key, public):
    """A node's request, signed with `key`, as Flower's nodes make them: the status that comes back."""
    from cryptography.hazmat.primitives import serialization as s

    pem = s.load_ssh_public_key(public).public_bytes(s.Encoding.PEM, s.PublicFormat.SubjectPublicKeyInfo)
    stamp = datetime.now(UTC).isoformat()
    headers = {
        "content-type": "application/protobuf",
        "accept": "application/protobuf",
        "flwr-package-name": "flwr",
        "flwr-package-version": "1.41.0",
        "flwr-component-name": "flower-supernode",
        "flwr-timestamp": stamp,
        "flwr-public-key": base64.b64encode(pem).decode(),
        "flwr-signature": sign(key, stamp.encode()),
    }
    request = urllib.request.Request(f"https://127.0.0.1:{port}{path}", body, headers, method="POST")
    context = ssl.create_default_context(cafile=str(folder / "a" / "ca.pem"))
    try:
        with urllib.request.urlopen(request, context=context, timeout=30) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code


def test_a_node_with_anothers_key_is_refused(played):
    from flwr.proto.fleet_pb2 import PullMessagesRequest
    from flwr.proto.node_pb2 import Node

    folder, port, _ = played
    nodes = Federation.load(folder).nodes()
    body = PullMessagesRequest(node=Node(node_id=nodes["a"])).SerializeToString()

    def status(name):
        key, public = (folder / name / "key").read_bytes(), (folder / name / "key.pub").read_bytes()
        return asked(folder, port, "/v1/fleet/pull-messages", body, key, public)

    assert status("a") == 200
    assert status("b") == 401


def test_plaintext_and_everything_but_nodes_are_refused(played, begun):
    folder, port, _ = played
    with pytest.raises((urllib.error.URLError, ConnectionError)):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/fleet/pull-messages", b"", timeout=30)
    key, public = (folder / "a" / "key").read_bytes(), (folder / "a" / "key.pub").read_bytes()
    for path in ("/v1/control/start-run", "/v1/control/list-nodes", "/v1/runtime/acquire-task", "/docs"):
        assert asked(folder, port, path, b"", key, public) == 404
    # A certificate of another authority is no certificate.
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"https://127.0.0.1:{port}/", timeout=30)


def test_secret_files_are_secret(begun):
    folder = begun[0]
    secrets = [folder / "server" / name for name in ("ca.key", "server.key", "receipts.key")]
    secrets += [folder / name / "key" for name in SIZES]
    assert all(Path(path).stat().st_mode & 0o077 == 0 for path in secrets)


def test_many_nodes_on_flowers_own_engine(tmp_path):
    pytest.importorskip("ray")
    settings = ["--clients", "12", "--scene", "iid", "--rounds", "3", "--hidden", "16", "--dtype", "float64"]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    for engine in ("local", "flower-simulation"):
        command = [*FEDSAC, "run", "--engine", engine, *settings, "--out", str(tmp_path / engine)]
        subprocess.run(command, env=env, check=True, capture_output=True, timeout=300)
    local = ModelFile.load(tmp_path / "local" / "global.safetensors").network.params
    there = ModelFile.load(tmp_path / "flower-simulation" / "server" / "run" / "global.safetensors").network.params
    assert (local - there).abs().max() <= 1e-9
    assert len(list((tmp_path / "flower-simulation").glob("client-*/receipt.json"))) == 12
