"""fedsac as a Flower app, by Flower's own commands and nothing of ours: `flwr run` in a simulation and in a deployment.
The commands are those of docs/deployment.md."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from fedsac.federation.control import environment, program
from fedsac.federation.folder import Federation
from fedsac.federation.verifying import verify, verify_site
from tests.end_to_end.test_federation import FEDSAC, edit, free_port, listens, until
from tests.flower_grid import digits_silos, federation

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="kills whole process groups")]

APP = Path(__file__).resolve().parents[2] / "examples" / "flower"
SITES = ("a", "b")


class Programs:
    """Flower's programs, each with its output in a file."""

    def __init__(self, base):
        self.base, self.running, self.port = base, {}, free_port()
        self.home = base / "home"
        self.home.mkdir()
        connection = f'[superlink.here]\naddress = "127.0.0.1:{self.port}"\ninsecure = true\n'
        (self.home / "config.toml").write_text(f'[superlink]\ndefault = "here"\n\n{connection}')

    def start(self, name, *words):
        env = environment(self.home, OMP_NUM_THREADS="1", RAY_USAGE_STATS_ENABLED="0")
        with (self.base / f"{name}.out").open("ab") as out:
            command = [program(words[0]), *words[1:]]
            self.running[name] = subprocess.Popen(command, stdout=out, stderr=out, env=env, start_new_session=True)

    def run(self, *words):
        command = [program("flwr"), "run", str(APP), "here", *words, "--format", "json"]
        done = subprocess.run(command, env=environment(self.home), capture_output=True, text=True, timeout=120)
        assert json.loads(done.stdout)["success"], done.stdout + done.stderr

    def end(self):
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)

    def says(self):
        return "\n".join(f"== {out.name}\n{out.read_text()[-3000:]}" for out in self.base.glob("*.out"))


@pytest.fixture
def programs(tmp_path):
    made = Programs(tmp_path)
    yield made
    made.end()


def paid(folder, sites):
    return all((folder / name / "receipt.json").exists() for name in sites)


def test_a_simulation(programs, tmp_path):
    pytest.importorskip("ray")
    programs.start(
        *("superlink", "flower-superlink", "--simulation", "--insecure", "--port", str(programs.port)),
    )
    until(lambda: listens(programs.port), programs)
    folder = tmp_path / "made"
    config = f'folder="{folder}" clients=3 rounds=2 scene="iid"'
    programs.run("--run-config", config, "--federation-config", "num-supernodes=3 client-resources-num-cpus=1")
    sites = [f"client-0{i}" for i in (1, 2, 3)]
    until(lambda: paid(folder, sites), programs)
    assert verify(Federation.load(folder))
    command = [*FEDSAC, "run", "--clients", "3", "--rounds", "2", "--scene", "iid", "--out", str(tmp_path / "local")]
    subprocess.run(command, check=True, capture_output=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    ours, theirs = (
        json.loads(path.read_text())
        for path in (tmp_path / "local" / "summary.json", folder / "server" / "run" / "summary.json")
    )
    assert ours["contributions"] == pytest.approx(theirs["contributions"]), "the same numbers as of a local run"


def test_a_deployment(programs, tmp_path):
    """Flower's own server and nodes: each node is told its site's folder, and proves which site it is by its key."""
    silos, folder = digits_silos(tmp_path / "silos"), tmp_path / "trial"
    federation(folder, silos, sites=SITES, limits=True, rounds=1, hidden=(16,))
    edit(folder / "federation.toml", {"wait = 1\n": "wait = 200\n", "timeout = 30": "timeout = 200"})
    programs.start("superlink", "flower-superlink", "--insecure", "--port", str(programs.port))
    until(lambda: listens(programs.port), programs)
    for name in SITES:
        programs.start(
            *(name, "flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{programs.port}"),
            *("--port", str(free_port()), "--node-config", f'site="{folder / name}"'),
        )
    programs.run("--run-config", f'folder="{folder}"')
    until(lambda: paid(folder, SITES), programs)
    assert verify(Federation.load(folder))
    for name in SITES:
        assert verify_site(folder / name, folder / "server" / "ledger.jsonl")


def test_the_page_says_the_same():
    page = (APP.parents[1] / "docs" / "deployment.md").read_text(encoding="utf-8")
    section = page.split("## With Flower's own commands")[1].split("\n## ")[0]
    for word in ("flwr run examples/flower", "--run-config", "num-supernodes", "flower-supernode", "--node-config"):
        assert re.search(re.escape(word), section), word
