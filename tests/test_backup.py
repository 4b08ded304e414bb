"""A coordinator's folder that comes back from a backup which is some rounds old: what sites do, and how it goes on."""

import json
import shutil

import pytest

pytest.importorskip("flwr")

from fedsac.cli import main
from fedsac.errors import FedsacError
from fedsac.federation.folder import Federation
from fedsac.federation.history import HistoryError
from fedsac.federation.verifying import verify, verify_site
from tests.flower_grid import InProcessGrid, coordinate, digits_silos, federation, nodes, of_kind

RUN = {"rounds": 6, "hidden": (8,), "seed": 3, "dtype": "float64"}
LOST_AFTER = 4  # rounds; the backup is of after round 2


class LostError(BaseException):
    """The coordinator's disk is gone."""


@pytest.fixture(scope="module")
def silos(tmp_path_factory):
    return digits_silos(tmp_path_factory.mktemp("data") / "silos")


@pytest.fixture
def lost(silos, tmp_path):
    """A federation after four rounds, and the coordinator's folder as it was after two."""
    folder, backup = federation(tmp_path / "fed", silos, settings="repeats = 1", **RUN), tmp_path / "backup"

    def before(site, message):
        order = json.loads(message.content.config_records["order"]["json"])
        if (site, order["kind"], order["round"]) == ("a", "round", 2):
            shutil.copytree(folder / "server", backup)
        if order["kind"] == "round" and order["round"] == LOST_AFTER:
            raise LostError

    with pytest.raises(LostError):
        coordinate(folder, InProcessGrid(nodes(folder), before=before))
    return folder, backup


def test_with_the_newest_ledger_an_old_backup_goes_on_to_the_same_model(lost, silos, tmp_path):
    """The ledger is what is copied often: rounds that the checkpoint lacks are done again, and the ledger says so."""
    folder, backup = lost
    shutil.copy(folder / "server" / "ledger.jsonl", backup / "ledger.jsonl")
    shutil.rmtree(folder / "server")
    shutil.move(backup, folder / "server")
    found = coordinate(folder)
    assert [body["round"] for body in of_kind(folder, "resumed")] == [2]
    assert [body["round"] for body in of_kind(folder, "round")] == [1, 2, 3, 4, 3, 4, 5, 6]
    assert of_kind(folder, "refused") == []
    assert verify(Federation.load(folder))
    for name in "abc":
        assert verify_site(folder / name, folder / "server" / "ledger.jsonl")
    plain = coordinate(federation(tmp_path / "plain", silos, **RUN))
    assert (found.state["model"] == plain.state["model"]).all()


def test_with_an_old_ledger_sites_decline_until_their_operators_agree(lost, tmp_path, capsys):
    folder, backup = lost
    shutil.rmtree(folder / "server")
    shutil.move(backup, folder / "server")
    before = {name: (folder / name / "heads.jsonl").read_bytes() for name in "abc"}
    with pytest.raises(FedsacError, match="fewer than 2 answers"):
        coordinate(folder)
    assert {body["reason"].split(":")[0] for body in of_kind(folder, "refused")} == {"history"}
    for name in "abc":
        assert (folder / name / "heads.jsonl").read_bytes() == before[name], "what it has signed stays"
        assert "it was cut off or rewritten" in (folder / name / "site.log").read_text()
        with pytest.raises(HistoryError, match=r"rewritten|cut off, or it is an old copy"):
            verify_site(folder / name, folder / "server" / "ledger.jsonl")
    # The operators agree that the rounds are lost: each moves heads.jsonl away, and it stays as a proof of what was.
    for name in "abc":
        shutil.move(folder / name / "heads.jsonl", folder / name / "heads-before.jsonl")
        assert main(["federation", "readmit", str(folder), name]) == 0
    capsys.readouterr()
    found = coordinate(folder)
    assert len(found.records) == RUN["rounds"]
    assert verify(Federation.load(folder))
    for name in "abc":
        said = verify_site(folder / name, folder / "server" / "ledger.jsonl")
        assert any(line.startswith("receipt.json") for line in said)
        shutil.copy(folder / name / "heads-before.jsonl", folder / name / "heads.jsonl")
        with pytest.raises(HistoryError, match="was rewritten"):
            verify_site(folder / name, folder / "server" / "ledger.jsonl")
