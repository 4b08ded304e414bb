"""A federation over messy tables: the schema crosses with the terms, corrections and reasons stay at the site."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("flwr")

import fedsac
from fedsac import Config
from fedsac.cli import main
from fedsac.data.schema.files import as_toml, read_schema
from fedsac.errors import FedsacError
from fedsac.federation.data import table_schema
from fedsac.federation.declining import DeclinedError
from fedsac.federation.folder import Federation
from fedsac.federation.ledger import read
from fedsac.federation.processes import run_site
from fedsac.federation.setup import init
from fedsac.federation.simulation import unlimited
from fedsac.federation.terms import JoinTerms
from fedsac.federation.verifying import verify
from fedsac.models.files import ModelFile
from tests.flower_grid import InProcessGrid, coordinate, coordinator, nodes
from tests.messy import silos

SITES = ("a", "b", "c")
RUN = {"rounds": 3, "hidden": (8,), "seed": 1, "dtype": "float64"}
SECRET = "Oncology-7"


@pytest.fixture
def folder(tmp_path):
    """Sites with text, other units and labels of their own; the coordinator's schema knows of none of them."""
    wards = {"ward": lambda rows: ["north", "south"] * (rows // 2)}
    own = silos(tmp_path / "own", spelled={"b": ("x", "y")}, factor={"c": 1000.0}, **wards)
    place = tmp_path / "fed"
    init(place, list(SITES), "127.0.0.1:9092")
    shutil.copy(own / "validation.csv", place)
    assert main(["schema", "propose", str(place / "validation.csv")]) == 0
    for name in SITES:
        shutil.copy(own / f"{name}.csv", place / name / "data.csv")
        shutil.copy(place / "schema.toml", place / name)
        toml = place / name / "site.toml"
        toml.write_text(unlimited(toml.read_text()))
    lines = [f"{key} = {value!r}".replace("'", '"').replace("(8,)", "[8]") for key, value in RUN.items()]
    text = "format_version = 1\n[federation]\nwait = 1\ntimeout = 30\n[run]\n" + "\n".join(lines) + "\n"
    (place / "federation.toml").write_text(text)
    return place


def correct(folder, site, lines):
    """What a site's operator writes into its copy of the schema."""
    with (folder / site / "schema.toml").open("a", encoding="utf-8") as file:
        file.write(f"\n{lines}\n")


def corrected(folder):
    correct(folder, "b", '[silos.b.labels]\nx = "0"\ny = "1"')
    correct(folder, "c", "[silos.c.factors]\ndose = 0.001")
    return folder


def test_the_same_as_a_local_run_with_the_same_schema(folder, tmp_path, capsys):
    found = coordinate(corrected(folder))
    assert main(["schema", "propose", str(tmp_path / "own"), "--out", str(tmp_path / "all.toml")]) == 0
    together = read_schema(tmp_path / "all.toml")
    assert together.sha256 == table_schema(folder).sha256  # silos add nothing but their corrections
    local = fedsac.run(Config(data=str(tmp_path / "own"), schema=str(tmp_path / "all.toml"), **RUN))
    assert [m.validation for _, m in sorted(found.members.items())] == list(local.contributions.validation)
    for name, reward in zip(local.clients, local.reward_models, strict=True):
        delivered = ModelFile.load(folder / name / "reward.safetensors")
        assert (delivered.network.params - reward.params).abs().max() <= 1e-9
        assert delivered.table.sha256 == together.sha256
        assert list(delivered.table.silos) == ([] if name == "a" else [name])
    assert verify(Federation.load(folder))
    capsys.readouterr()
    assert (
        main(["predict", str(folder / "b" / "reward.safetensors"), str(folder / "b" / "data.csv"), "--silo", "b"]) == 0
    )
    assert "accuracy" in capsys.readouterr().err


def test_a_silo_that_does_not_fit_declines_by_a_code_and_says_nothing_else(folder):
    correct(folder, "c", "[silos.c.factors]\ndose = 0.001")
    rows = (folder / "a" / "data.csv").read_text().splitlines()
    rows[3] = ",".join([SECRET, *rows[3].split(",")[1:]])
    (folder / "a" / "data.csv").write_text("\n".join(rows) + "\n")
    replies = []
    grid = InProcessGrid(nodes(folder), spoil=lambda site, order, reply: replies.append(str(reply)) or reply)
    with pytest.raises(FedsacError):
        coordinator(folder, grid).run()
    refused = [entry["body"] for entry in read(Federation.load(folder).ledger) if entry["kind"] == "refused"]
    assert {body["site"] for body in refused} == {"a", "b"} and all(b["reason"].startswith("schema") for b in refused)
    log = (folder / "a" / "site.log").read_text()
    assert f"line 4, column 'dose': '{SECRET}' is not a number" in log
    assert "label 'x'" in (folder / "b" / "site.log").read_text()
    for file in (folder / "server").rglob("*"):
        assert not file.is_file() or SECRET.encode() not in file.read_bytes(), file
    assert replies and SECRET not in "".join(replies)


def test_swapped_labels_and_identifiers_are_warned_of_where_they_can_be_seen(folder):
    """The coordinator sees what a site's model has learned; the site sees its own columns."""
    correct(folder, "b", '[silos.b.labels]\nx = "1"\ny = "0"')
    correct(folder, "c", "[silos.c.factors]\ndose = 0.001")
    for place in ("", *SITES):
        file = folder / place / ("data.csv" if place else "validation.csv")
        rows = [line.split(",") for line in file.read_text().splitlines()]
        rows = [[*row[:1], str(i) if i else "weight", *row[2:]] for i, row in enumerate(rows)]
        file.write_text("\n".join(",".join(row) for row in rows) + "\n")
        schema = folder / place / "schema.toml"
        schema.write_text(re.sub("range = .*", "", schema.read_text()))
    says = []
    coordinate(folder, says=says)
    warned = [line for line in says if line.startswith("warning: ")]
    assert len(warned) == 2 and warned[0].startswith("warning: validation: column 'weight' has 60 different")
    assert warned[1].startswith("warning: b: a model of its data has an AUC of 0.0")
    page = json.loads((folder / "server" / "run" / "warnings.json").read_text())
    assert page["warnings"] == [warned[0].removeprefix("warning: ")]
    assert "column 'weight' has 40 different whole numbers in 40 rows" in (folder / "a" / "site.log").read_text()


def test_other_units_are_declined_too(folder):
    correct(folder, "b", '[silos.b.labels]\nx = "0"\ny = "1"')
    coordinate(folder)
    refused = [entry["body"] for entry in read(Federation.load(folder).ledger) if entry["kind"] == "refused"]
    assert {body["site"] for body in refused} == {"c"}
    assert "column 'dose': its median is" in (folder / "c" / "site.log").read_text()


def test_no_corrections_reach_the_coordinator_or_another_site(folder):
    grid = InProcessGrid(nodes(corrected(folder)))
    coordinator(folder, grid).run()
    for site, messages in grid.sent.items():
        assert b"table_sha256" in b"".join(messages), site
        assert b"factors" not in b"".join(messages), site
    assert ModelFile.load(folder / "server" / "rewards" / "c.safetensors").table.silos == {}


def test_a_copy_of_another_schema_is_declined(folder):
    own = corrected(folder) / "a" / "schema.toml"
    own.write_text(own.read_text().replace('classes = ["0", "1"]', 'classes = ["1", "0"]'))
    coordinate(folder)
    refused = [entry["body"] for entry in read(Federation.load(folder).ledger) if entry["kind"] == "refused"]
    assert {body["site"] for body in refused} == {"a"}
    assert "not the federation's schema" in (folder / "a" / "site.log").read_text()


def test_a_site_without_a_copy_keeps_what_it_agreed_to(folder):
    (corrected(folder) / "a" / "schema.toml").unlink()
    coordinate(folder)
    kept = json.loads((folder / "a" / "schema.json").read_text())
    assert kept == table_schema(folder).as_dict()


def test_before_it_joins_a_site_says_what_does_not_fit(folder):
    with pytest.raises(FedsacError, match=r"data.csv: line 2, column 'label': label '.'.* is none of '0', '1'"):
        run_site(folder / "b", print)
    assert (
        main(["schema", "check", str(folder / "b" / "schema.toml"), str(folder / "b" / "data.csv"), "--silo", "b"]) == 2
    )
    corrected(folder)
    assert (
        main(["schema", "check", str(folder / "b" / "schema.toml"), str(folder / "b" / "data.csv"), "--silo", "b"]) == 0
    )


def test_terms_with_another_hash_are_declined(folder):
    table = table_schema(folder)
    facts = {
        "schema": {"features": [], "classes": [], "width": 0, "channels": 0, "dtype": "float64", "top": 1.0},
        **{"channel": [], "mean": [], "deviation": [], "settings": {}},
        **{"table": table.as_dict(), "table_sha256": table.sha256},
    }
    assert JoinTerms.of(facts).table == table
    with pytest.raises(DeclinedError):
        JoinTerms.of(facts | {"table_sha256": replace(table, drop=("z",)).sha256})


def test_the_coordinators_own_tables_are_held_to_it(folder):
    schema = read_schema(folder / "schema.toml")
    (folder / "schema.toml").write_text(as_toml(replace(schema, columns=schema.columns[:1]), "nothing", {}))
    with pytest.raises(FedsacError, match=r"validation\.csv: column 'weight': the schema does not know it"):
        coordinator(folder, InProcessGrid(nodes(folder)))
    assert Path(folder / "validation.csv").exists()
