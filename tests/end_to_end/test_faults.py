"""Faults of processes, with real ones: kills while keys are registered and in a round, sites that let others wait."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("flwr")

from fedsac.federation.folder import Federation
from fedsac.federation.ledger import read
from fedsac.federation.setup import remove
from fedsac.federation.verifying import verify, verify_site
from tests.end_to_end.test_federation import FEDSAC, Processes, as_csv, edit, free_port, listens, page_commands, until
from tests.flower_grid import SIZES, digits_silos

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="kills whole process groups")]

ANNOUNCES_ONLY = """
import sys
from fedsac.federation.flower_internals import FleetConnection
patiently = FleetConnection._patiently
def announce(self, call, request):
    # The reply is announced, and no part of it is uploaded.
    return None if call.__name__ == "PushObject" and len(request.object_content) else patiently(self, call, request)
FleetConnection._patiently = announce
from fedsac.cli import main
sys.exit(main(sys.argv[1:]))
"""


class Trial(Processes):
    """A federation of digits on ports of its own, or at an address."""

    def __init__(self, base, address="", **changes):
        super().__init__(base / "trial")
        silos, self.port = digits_silos(base / "silos"), free_port()
        address = address or f"127.0.0.1:{self.port}"
        command = [word.replace("127.0.0.1:9092", address) for word in page_commands()["init"]]
        subprocess.run([*FEDSAC, "federation", *command], cwd=base, check=True, capture_output=True)
        for name in SIZES:
            as_csv(silos / f"{name}.npz", self.folder / name / "data.csv")
        as_csv(silos / "validation.npz", self.folder / "validation.csv")
        settings = {"control_port": (9093, free_port()), "rounds": (20, 4), "timeout": (600, 120)} | changes
        edit(self.folder / "federation.toml", {f"{k} = {a}": f"{k} = {b}" for k, (a, b) in settings.items()})

    def start_all(self, *without):
        self.start("server")
        until(lambda: listens(self.port), self)
        for name in set(SIZES) - set(without):
            self.start(name)

    def of_kind(self, kind):
        ledger = self.folder / "server" / "ledger.jsonl"
        return [e["body"] for e in read(ledger) if e["kind"] == kind] if ledger.exists() else []

    def finish(self):
        until(lambda: self.running["run"].poll() is not None, self)
        assert self.running["run"].returncode == 0, self.says()
        verify(Federation.load(self.folder))
        for name in SIZES:
            verify_site(self.folder / name, self.folder / "server" / "ledger.jsonl")


@pytest.fixture
def trial(request, tmp_path):
    found = Trial(tmp_path, **getattr(request, "param", {}))
    yield found
    found.end()


def test_killed_while_keys_are_registered_and_revoked(trial):
    """Flower has a key, and the server was killed before it could write that down: every start failed from then on."""
    log, nodes = trial.folder / "server" / "superlink.log", trial.folder / "server" / "nodes.json"

    def written():
        return json.loads(nodes.read_text())["nodes"] if nodes.exists() else {}

    for kills in range(1, 3):
        trial.start("server")
        until(lambda n=kills: log.exists() and log.read_text().count("ControlServicer.RegisterNode") >= n, trial)
        trial.kill("server")
    assert len(written()) < len(SIZES), "killed before all keys were registered"
    trial.start("server")
    until(lambda: listens(trial.port), trial)
    assert set(written()) == set(SIZES) and len(set(written().values())) == len(SIZES)

    remove(trial.folder, "b", revoked=True)
    until(lambda: "ControlServicer.UnregisterNode" in log.read_text(), trial)
    trial.kill("server")
    trial.start("server")
    until(lambda: "the key of b is revoked" in (trial.folder.parent / "server.out").read_text(), trial)
    until(lambda: set(written()) == {"a", "c"}, trial)
    assert trial.running["server"].poll() is None


@pytest.mark.parametrize("trial", [{"local_steps": (20, 1500)}], indirect=True)
def test_a_site_that_is_killed_in_a_round_and_restarted_answers_that_round(trial):
    """Flower takes it for connected, and gives it its order once: it did not come back before, and never answered."""
    trial.start_all()
    trial.start("run")
    pending = trial.folder / "b" / "pending.order"
    for rounds in (0, 1, 2):
        # The file is there for as long as the site trains: with so many steps about a second.
        until(lambda n=rounds: pending.exists() and len(trial.of_kind("round")) >= n, trial, pause=0.01)
        trial.kill("b")
        trial.start("b")
    trial.finish()
    assert [body["answered"] for body in trial.of_kind("round")] == [["a", "b", "c"]] * 4
    assert trial.of_kind("lost") == []


def test_a_second_process_of_a_site_says_so(trial):
    trial.start_all()
    log = trial.folder / "a" / "site.log"
    until(lambda: log.exists() and "connected" in log.read_text(), trial)
    again = [*FEDSAC, "federation", "site", str(trial.folder / "a")]
    done = subprocess.run(again, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "running already" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("trial", [{"timeout": (600, 12), "aside_after": (3, 2)}], indirect=True)
def test_who_announces_replies_and_does_not_send_them_is_set_aside(trial):
    """Flower waits some 200 s for the upload, each time: longer than the round's timeout."""
    trial.start_all("b")
    command = [sys.executable, "-c", ANNOUNCES_ONLY, "federation", "site", str(trial.folder / "b")]
    with (trial.folder.parent / "b.out").open("ab") as out:
        trial.running["b"] = subprocess.Popen(
            command, stdout=out, stderr=out, env=os.environ | {"OMP_NUM_THREADS": "1"}, start_new_session=True
        )
    edit(trial.folder / "federation.toml", {"wait = 600": "wait = 20"})
    trial.start("run")
    until(lambda: trial.running["run"].poll() is not None, trial)
    assert trial.running["run"].returncode == 0, trial.says()
    assert [body["answered"] for body in trial.of_kind("round")] == [["a", "c"]] * 4
    lost = [(body["site"], body["in_a_row"], body["aside"]) for body in trial.of_kind("lost")]
    assert lost[:2] == [("b", 1, False), ("b", 2, True)]
    assert (trial.folder / "a" / "receipt.json").exists() and (trial.folder / "c" / "receipt.json").exists()
