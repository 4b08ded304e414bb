"""Whoever leaves is paid, also later; whoever was set aside can come back; after the end nobody is promised a round."""

import json
import shutil

import pytest

pytest.importorskip("flwr")

from fedsac.cli import main
from fedsac.errors import FedsacError
from fedsac.federation.folder import Federation
from fedsac.federation.ledger import read
from fedsac.federation.setup import readmit, remove
from fedsac.federation.verifying import verify, verify_site
from tests.flower_grid import InProcessGrid, coordinate, digits_silos, federation, nodes, of_kind, order_of, reply_with

RUN = {"rounds": 5, "hidden": (8,), "seed": 3, "dtype": "float64"}


@pytest.fixture(scope="module")
def silos(tmp_path_factory):
    return digits_silos(tmp_path_factory.mktemp("data") / "silos")


def leaving_while_away(folder, back=None):
    """A grid on which b goes away in the second round and leaves meanwhile; it may come `back` in a later one."""
    grid = InProcessGrid(nodes(folder))

    def before(site, message):
        order = order_of(message)
        if (order["kind"], order["round"], site) == ("round", 1, "a"):
            grid.away.add("b")
            remove(folder, "b", revoked=False)
        if (order["kind"], order["round"], site) == ("round", back, "a"):
            grid.away.clear()

    grid.before = before
    return grid


def paid(folder, site):
    """The body of a site's receipt, after the site has checked everything by itself."""
    verify_site(folder / site, folder / "server" / "ledger.jsonl")
    return json.loads((folder / site / "receipt.json").read_text())["body"]


def test_who_leaves_while_away_is_paid_when_it_comes_back(silos, tmp_path):
    folder = federation(tmp_path / "fed", silos, **RUN)
    found = coordinate(folder, leaving_while_away(folder, back=3))
    assert [record["answered"] for record in found.records][-1] == ["a", "c"]
    body = paid(folder, "b")
    assert body["round"] == 2 and body["rounds"] == [1, 2], "what it had earned when it left"
    kinds = [entry["kind"] for entry in read(folder / "server" / "ledger.jsonl")]
    delivered = [n for n, kind in enumerate(kinds) if kind == "delivered"]
    assert delivered[0] < max(n for n, kind in enumerate(kinds) if kind == "round"), "before the end"
    verify(Federation.load(folder))


def test_who_leaves_while_away_is_paid_after_the_end(silos, tmp_path, capsys):
    folder = federation(tmp_path / "fed", silos, **RUN)
    says = []
    coordinate(folder, leaving_while_away(folder), says)
    assert any(said.startswith("not delivered: b") for said in says)
    assert [body["site"] for body in of_kind(folder, "delivered")] == ["a", "c"]
    # `run` again does not say that all is done: it asks for the run, which delivers what is owed.
    capsys.readouterr()
    assert main(["federation", "run", str(folder), "--detach"]) == 0
    assert (folder / "server" / "requested").exists()
    coordinate(folder)
    assert paid(folder, "b")["rounds"] == [1, 2]
    (folder / "server" / "requested").unlink()
    assert main(["federation", "run", str(folder), "--detach"]) == 0
    assert not (folder / "server" / "requested").exists(), "everybody is paid"


def test_a_reward_can_be_handed_over_as_files(silos, tmp_path, capsys):
    folder = federation(tmp_path / "fed", silos, **RUN)
    coordinate(folder, leaving_while_away(folder))
    shutil.copy(folder / "server" / "rewards" / "b.safetensors", folder / "b" / "reward.safetensors")
    shutil.copy(folder / "server" / "receipts" / "b.json", folder / "b" / "receipt.json")
    body = json.loads((folder / "b" / "receipt.json").read_text())["body"]
    assert body["rounds"] == [1, 2]
    # b has not seen the ledger's line about its reward, and so takes a copy of the ledger to check the receipt.
    with pytest.raises(FedsacError, match="--ledger"):
        verify_site(folder / "b", None)
    said = verify_site(folder / "b", folder / "server" / "ledger.jsonl")
    assert any(line.startswith("reward.safetensors") for line in said)
    capsys.readouterr()
    assert main(["predict", str(folder / "b" / "reward.safetensors"), str(silos / "test.npz")]) == 0
    assert "accuracy 0." in capsys.readouterr().err


def test_killed_while_somebody_leaves_nobody_is_paid_twice_or_never(silos, tmp_path):
    class KilledError(BaseException):
        pass

    folder = federation(tmp_path / "fed", silos, **RUN)
    grid = leaving_while_away(folder)
    first = grid.before

    def before(site, message):
        first(site, message)
        if order_of(message)["round"] == 2:
            raise KilledError

    grid.before = before
    with pytest.raises(KilledError):
        coordinate(folder, grid)
    coordinate(folder)
    assert [body["site"] for body in of_kind(folder, "reward")].count("b") == 1
    assert paid(folder, "b")["rounds"] == [1, 2]


@pytest.mark.parametrize("action", ["add", "leave", "readmit"])
def test_after_the_end_no_round_is_promised(action, silos, tmp_path, capsys):
    folder = federation(tmp_path / "fed", silos, **RUN | {"rounds": 1})
    coordinate(folder)
    sites = (folder / "sites.json").read_bytes()
    capsys.readouterr()
    assert main(["federation", action, str(folder), "d" if action == "add" else "b"]) == 2
    said = capsys.readouterr()
    assert not said.out and "is over" in said.err and said.err.count("\n") == 1
    assert (folder / "sites.json").read_bytes() == sites and not (folder / "d").exists()


def test_leave_says_what_will_happen(silos, tmp_path, capsys):
    folder = federation(tmp_path / "fed", silos, **RUN)
    assert main(["federation", "leave", str(folder), "c"]) == 0
    assert "nothing to pay" in capsys.readouterr().out
    assert main(["federation", "leave", str(folder), "c"]) == 2
    assert "has left" in capsys.readouterr().err


def test_set_aside_and_taken_in_again(silos, tmp_path, capsys):
    folder = federation(tmp_path / "fed", silos, settings="aside_after = 1", **RUN)

    def spoil(site, message, reply):
        order = order_of(message)
        if (site, order["kind"], order["round"]) == ("b", "round", 0):
            return reply_with(reply, type(reply.content)({}))
        return reply

    asked = {}

    def before(site, message):
        order = order_of(message)
        if (order["kind"], order["round"], site) == ("round", 2, "a"):
            main(["federation", "status", str(folder), "--json"])
            asked["before"] = json.loads(capsys.readouterr().out)["sites"]["b"]["aside"]
            readmit(folder, "b")

    found = coordinate(folder, InProcessGrid(nodes(folder), spoil=spoil, before=before))
    assert [record["answered"] for record in found.records] == [["a", "c"]] * 3 + [["a", "b", "c"]] * 2
    assert asked["before"] is True
    capsys.readouterr()
    main(["federation", "status", str(folder), "--json"])
    assert json.loads(capsys.readouterr().out)["sites"]["b"]["aside"] is False
    assert [body["site"] for body in of_kind(folder, "readmitted")] == ["b"]
    assert paid(folder, "b")["rounds"] == [4, 5]


def test_a_site_that_left_can_come_back(silos, tmp_path):
    folder = federation(tmp_path / "fed", silos, **RUN)

    def before(site, message):
        order = order_of(message)
        if (order["kind"], order["round"], site) == ("round", 0, "a"):
            remove(folder, "b", revoked=False)
        if (order["kind"], order["round"], site) == ("round", 2, "a"):
            readmit(folder, "b")

    found = coordinate(folder, InProcessGrid(nodes(folder), before=before))
    answered = [record["answered"] for record in found.records]
    assert answered == [["a", "b", "c"], ["a", "c"], ["a", "c"], ["a", "b", "c"], ["a", "b", "c"]]
    assert paid(folder, "b")["rounds"] == [1, 4, 5]
    with pytest.raises(FedsacError, match="new key"):
        (folder / "server" / "run" / "summary.json").unlink()
        remove(folder, "b", revoked=True)
        readmit(folder, "b")
