"""Another user of the coordinator's host, who has nothing but the certificate, against real processes: he submits no
app, takes no task, and sees no token."""

import os
import re
import shutil
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from fedsac.federation.control import environment, program
from tests.end_to_end.test_federation import Processes, edit, free_port, listens, rounds, until
from tests.flower_grid import SIZES, digits_silos, federation

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]

FOREIGN = {
    "pyproject.toml": """[project]
name = "fedsac-federation"
version = "9.9"
description = "x"
license = "Apache-2.0"
dependencies = []
[tool.flwr.app]
publisher = "fedsac"
[tool.flwr.app.components]
serverapp = "theft.apps:server"
clientapp = "theft.apps:client"
[tool.flwr.app.config]
""",
    "theft/__init__.py": "",
    "theft/apps.py": """import os
from pathlib import Path
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
client = ClientApp()
server = ServerApp()

@client.train()
def train(message, context):
    folder = Path(os.environ.get("FEDSAC_SITE") or str(context.node_config["site"]))
    stolen = RecordDict({"loot": ConfigRecord({"key": (folder / "key").read_text()})})
    return Message(stolen, reply_to=message)

@server.main()
def main(grid, context):
    asked = [Message(RecordDict(), node, "train") for node in grid.get_node_ids()]
    replies = list(grid.send_and_receive(asked, timeout=30))
    loot = [str(r.content["loot"]["key"]) for r in replies if r.has_content() and "loot" in r.content]
    Path(os.environ["FEDSAC_FEDERATION"], "LOOT").write_text("\\n".join(["ran", *loot]))
""",
}


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """A federation whose server and sites are up, and whose run has done a round."""
    base = tmp_path_factory.mktemp("hub")
    folder, port, control = base / "trial", free_port(), free_port()
    ports = f'address = "127.0.0.1:{port}"\ncontrol_port = {control}\n'
    federation(folder, digits_silos(base / "silos"), settings=ports, limits=True, rounds=500, hidden=(16, 16))
    for name in SIZES:
        edit(folder / name / "site.toml", {"127.0.0.1:9092": f"127.0.0.1:{port}"})
    edit(folder / "federation.toml", {"wait = 1": "wait = 100"})
    processes = Processes(folder)
    try:
        processes.start("server")
        until(lambda: listens(port), processes)
        for name in SIZES:
            processes.start(name)
        processes.start("run")
        until(lambda: len(rounds(folder)) >= 1, processes)
        yield folder, control, processes
    finally:
        processes.end()


@pytest.fixture
def foreign(tmp_path):
    """An app of the same name that asks every site for its key."""
    for name, text in FOREIGN.items():
        path = tmp_path / "app" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "app"


def submitted(app, home, folder, control):
    """What `flwr run` says to somebody who has the certificate, and the credential if that is in `home`."""
    home.mkdir(exist_ok=True)
    connection = f'address = "127.0.0.1:{control}"\nroot-certificates = "{folder / "server" / "ca.pem"}"\n'
    (home / "config.toml").write_text(f'[superlink]\ndefault = "hub"\n\n[superlink.hub]\n{connection}')
    command = [program("flwr"), "run", str(app), "hub", "--format", "json"]
    return subprocess.run(command, env=environment(home), capture_output=True, text=True, timeout=120, check=False)


def test_a_foreign_app_is_not_even_submitted(running, foreign, tmp_path):
    folder, control, processes = running
    done = submitted(foreign, tmp_path / "home", folder, control)
    assert '"run-id"' not in done.stdout and re.search("authenti|login", done.stdout, re.I), done.stdout
    before = len(rounds(folder))
    until(lambda: len(rounds(folder)) >= before + 2, processes)
    assert not (folder / "LOOT").exists()


def test_sites_run_no_foreign_app_of_the_coordinators_either(running, foreign, tmp_path):
    """The coordinator itself may submit what it likes: sites run the installed package, and nothing that is sent."""
    folder, control, processes = running
    shutil.copytree(folder / "server" / "flwr", tmp_path / "flwr", ignore=shutil.ignore_patterns("token-*", "apps"))
    done = submitted(foreign, tmp_path / "flwr", folder, control)
    assert '"run-id"' in done.stdout, done.stdout
    until(lambda: (folder / "LOOT").exists(), processes)
    assert (folder / "LOOT").read_text() == "ran", "it has run at the coordinator, and no site gave it anything"
    for name in SIZES:
        assert "could not be carried out" in (folder / name / "site.log").read_text()


def test_the_control_and_runtime_apis_take_nobody_without_the_secret(running):
    folder, control, _ = running
    context = ssl.create_default_context(cafile=str(folder / "server" / "ca.pem"))
    headers = {
        **{"content-type": "application/protobuf", "accept": "application/protobuf"},
        **{"flwr-package-name": "flwr", "flwr-package-version": "1.41.0", "flwr-component-name": "x"},
    }
    for path in ("/v1/control/list-runs", "/v1/control/list-nodes", "/v1/runtime/acquire-task"):
        for more in ({}, {"authorization": "Bearer wrong"}):
            request = urllib.request.Request(f"https://127.0.0.1:{control}{path}", b"", headers | more, method="POST")
            assert status(request, context) in (401, 403), path


def status(request, context):
    try:
        with urllib.request.urlopen(request, context=context, timeout=30) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def command_lines():
    """The command lines of all processes, as `ps` shows them to everybody."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it has just ended
            continue


def test_no_token_is_on_a_command_line(running):
    folder = running[0]
    secret = (folder / "server" / "flwr" / "secret").read_text()
    (token,) = [path.read_text() for path in (folder / "server" / "flwr").glob("token-*")]
    end = time.monotonic() + 5
    seen = set()
    while time.monotonic() < end:
        seen.update(command_lines())
        time.sleep(0.05)
    ours = [line for line in seen if str(folder) in line or os.fspath(folder.parent) in line]
    assert any("flwr-serverapp" in line for line in ours), "the coordinator is running"
    assert not [line for line in seen if secret in line or token in line]
    assert not [line for line in ours if "--token " in line]


def test_nobody_else_reads_the_folder(running):
    """Folders 0700, files with keys, rewards, tokens, the database and the ledger 0600."""
    folder = running[0]
    readable = [path for path in [folder, *folder.rglob("*")] if path.stat().st_mode & 0o077 and path.is_dir()]
    assert not [path for path in readable if path.parent in (folder, folder / "server") or path == folder]
    for name in ("ledger.jsonl", "superlink.db", "superlink.log", "flwr/secret", "flwr/credentials.yaml"):
        assert (folder / "server" / name).stat().st_mode & 0o077 == 0, name
    for name in ("key", "site.toml", "heads.jsonl", "agreed.json"):
        assert (folder / "a" / name).stat().st_mode & 0o077 == 0, name
