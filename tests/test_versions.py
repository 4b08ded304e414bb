"""Coordinator and sites of different versions: who runs what is said on both sides, and nothing is misread."""

import json

import pytest

pytest.importorskip("flwr")

from fedsac import __version__
from fedsac.cli import main
from fedsac.errors import FedsacError
from fedsac.federation import limits, link, site
from fedsac.federation.declining import CODES, VERSION, shown
from fedsac.federation.folder import Federation
from fedsac.federation.verifying import verify
from tests.flower_grid import InProcessGrid, coordinate, digits_silos, federation, nodes, of_kind

RUN = {"rounds": 2, "hidden": (8,), "seed": 3, "dtype": "float64"}


@pytest.fixture(scope="module")
def silos(tmp_path_factory):
    return digits_silos(tmp_path_factory.mktemp("data") / "silos")


def newer(monkeypatch, names):
    """A function for the grid's `before`, by which these sites run a fedsac of the next wire format."""

    def become(name, _):
        other = name in names
        monkeypatch.setattr(link, "WIRE_FORMAT", 2 if other else 1)
        monkeypatch.setattr(limits, "WIRE_FORMAT", 2 if other else 1)
        for module in (limits, site):
            monkeypatch.setattr(module, "__version__", "0.9.1" if other else __version__)

    return become


def test_a_site_of_another_wire_format_declines_and_the_others_go_on(silos, tmp_path, monkeypatch, capsys):
    folder = federation(tmp_path / "fed", silos, **RUN)
    coordinate(folder, InProcessGrid(nodes(folder), before=newer(monkeypatch, {"b"})))
    reason = f"version: the site runs fedsac 0.9.1, this coordinator {__version__}; install {__version__} there"
    assert {(body["site"], body["reason"]) for body in of_kind(folder, "refused")} == {("b", reason)}
    assert [body["site"] for body in of_kind(folder, "reward")] == ["a", "c"]
    # The site has said to its own operator what to install, and has taken nothing in.
    said = (folder / "b" / "site.log").read_text()
    assert f"the coordinator runs fedsac {__version__} (wire format 1), this site 0.9.1 (2)" in said
    assert f"install fedsac {__version__} here and start the site again" in said
    assert not (folder / "b" / "heads.jsonl").exists() and not (folder / "b" / "agreed.json").exists()
    log = folder / "a" / "site.log"  # which may warn of its data
    assert not log.exists() or "wire format" not in log.read_text()
    verify(Federation.load(folder))
    # Who runs what is in the ledger and in the status.
    assert {body["site"]: body["fedsac"] for body in of_kind(folder, "joined")} == {"a": __version__, "c": __version__}
    assert main(["federation", "status", str(folder), "--json"]) == 0
    sites = json.loads(capsys.readouterr().out)["sites"]
    assert sites["a"]["fedsac"] == __version__ and sites["b"]["last_refusal"] == reason


def test_where_all_sites_are_of_another_format_the_run_says_so(silos, tmp_path, monkeypatch):
    folder = federation(tmp_path / "fed", silos, **RUN)
    with pytest.raises(FedsacError, match=r"the site runs fedsac 0\.9\.1, this coordinator"):
        coordinate(folder, InProcessGrid(nodes(folder), before=newer(monkeypatch, {"a", "b", "c"})))
    # Once they are of one version, the same run begins.
    monkeypatch.undo()
    coordinate(folder)
    assert len(of_kind(folder, "reward")) == 3


def test_an_order_without_a_format_is_of_the_first(silos, tmp_path):
    """Coordinators of before named none."""
    folder = federation(tmp_path / "fed", silos, **RUN)

    def of_before(_, message):
        record = message.content.config_records[link.ORDER]
        for name in ("wire", "fedsac"):
            record.pop(name, None)
        assert link.read_order(message).wire == 1

    coordinate(folder, InProcessGrid(nodes(folder), before=of_before))
    assert not of_kind(folder, "refused")


@pytest.mark.parametrize("claimed", [None, 3, "", "0.9.1; rm -rf", "0" * 50, "\x1b[2J"])
def test_what_a_site_claims_to_run_is_repeated_only_if_it_is_a_version(claimed):
    assert shown(VERSION, runs=claimed) == f"version: {CODES[VERSION]}"
