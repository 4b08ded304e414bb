"""A full disk at the coordinator: the run stops, says why, and goes on when there is room. The disk is a real one, of
2 MB, made for the test."""

import json
import os
import shutil
import subprocess
import sys

import pytest

pytest.importorskip("flwr")

from fedsac.cli import main
from fedsac.errors import FedsacError
from fedsac.federation import app
from fedsac.federation.folder import Federation
from fedsac.federation.metrics import exposition
from fedsac.federation.requesting import is_requested, request, stop, stopped
from fedsac.federation.verifying import verify
from fedsac.federation.watch import status
from tests.flower_grid import InProcessGrid, digits_silos, federation, nodes


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A federation whose server's folder is a disk of 2 MB."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root can mount a small disk (tmpfs)")
    made = federation(tmp_path / "fed", digits_silos(tmp_path / "silos"), rounds=4, hidden=(8,), seed=3)
    (made / "server" / "nodes.json").write_text(
        json.dumps({"format_version": 1, "nodes": {path.name: node for node, path in nodes(made).items()}})
    )
    shutil.move(made / "server", tmp_path / "kept")
    (made / "server").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(made / "server")]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no small disk (tmpfs) can be mounted here")
    try:
        shutil.copytree(tmp_path / "kept", made / "server", dirs_exist_ok=True)
        monkeypatch.setenv(app.FEDERATION_VARIABLE, str(made))
        yield made
    finally:
        subprocess.run(["umount", "-l", str(made / "server")], check=False)


@pytest.mark.parametrize("at", [("alone", 0), ("round", 2), ("reward", 4)])
def test_the_run_stops_says_why_and_goes_on(at, folder, capsys):
    own, filling = Federation.load(folder), folder / "server" / "filling"

    def fill(site, message):
        order = json.loads(message.content.config_records["order"]["json"])
        if (order["kind"], order["round"]) == at and not filling.exists():
            with filling.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
                while True:
                    file.write(bytes(4096))

    assert status(own)["state"] == "not begun"
    request(own)
    assert status(own)["state"] == "under way"
    with pytest.raises(FedsacError, match=r"No space|disk is full"):
        app.main(InProcessGrid(nodes(folder), before=fill), None)
    assert not is_requested(own) and stopped(own)
    state = status(own)
    assert state["state"] in ("stopped", "over") and ("No space" in state["stopped"] or "is full" in state["stopped"])
    assert "fedsac_failed 1" in exposition(own)
    capsys.readouterr()
    assert main(["federation", "status", str(folder)]) == 0
    assert "stopped: " in capsys.readouterr().out
    filling.unlink()
    request(own)
    assert not stopped(own)
    app.main(InProcessGrid(nodes(folder)), None)
    assert status(own)["state"] == "over" and not is_requested(own)
    assert verify(own) and all(site["delivered"] for site in status(own)["sites"].values())


def test_the_reason_is_one_line_and_replaced(tmp_path):
    own = Federation.load(federation(tmp_path / "fed", digits_silos(tmp_path / "silos")))
    stop(own, "first\nreason " + "x" * 9000)
    assert stopped(own).startswith("first reason xxx") and len(stopped(own)) <= 4096
    request(own)
    stop(own, "second")
    assert stopped(own) == "second"
