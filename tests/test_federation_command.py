"""`fedsac federation`, as far as it goes without a network."""

import json
import subprocess
import sys

import numpy as np
import pytest
from sklearn.metrics import f1_score

pytest.importorskip("flwr")

from fedsac.cli import main
from fedsac.federation.folder import Federation
from fedsac.models.files import ModelFile
from tests.flower_grid import coordinate, digits_silos, federation


def said(capsys, *arguments):
    """The exit status, what was printed, and what was complained of."""
    capsys.readouterr()
    status = main(["federation", *map(str, arguments)])
    out = capsys.readouterr()
    return status, out.out, out.err


def test_the_rest_of_the_command_does_without_flower():
    script = "import sys, fedsac.cli; fedsac.cli.parser(); print('flwr' in sys.modules, 'cryptography' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_init_writes_all_that_sites_and_server_need(tmp_path, capsys):
    status, out, err = said(capsys, "init", tmp_path / "fed", "--sites", "a,b,c", "--address", "hub.example.org:9092")
    assert status == 0 and not err and "fedsac federation server" in out
    found = Federation.load(tmp_path / "fed")
    assert found.address == "hub.example.org:9092" and not found.insecure
    assert sorted(found.sites()) == ["a", "b", "c"]
    for name in "abc":
        here = {path.name for path in (tmp_path / "fed" / name).iterdir()}
        assert here == {"key", "key.pub", "ca.pem", "coordinator.pub", "site.toml"}
    keys = {(tmp_path / "fed" / name / "key").read_bytes() for name in "abc"}
    assert len(keys) == 3


def test_the_certificate_names_the_server_and_is_the_authoritys(tmp_path, capsys):
    from cryptography import x509

    said(capsys, "init", tmp_path / "fed", "--sites", "a,b", "--address", "hub.example.org:9092")
    server = tmp_path / "fed" / "server"
    ca, own = (x509.load_pem_x509_certificate((server / name).read_bytes()) for name in ("ca.pem", "server.pem"))
    own.verify_directly_issued_by(ca)
    names = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "hub.example.org" in names.get_values_for_type(x509.DNSName)


def test_insecure_only_by_name_and_with_a_warning(tmp_path, capsys):
    status, _, err = said(capsys, "init", tmp_path / "fed", "--sites", "a,b", "--insecure")
    assert status == 0 and "WARNING" in err
    assert Federation.load(tmp_path / "fed").insecure


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--sites", "a"], "at least 2"),
        (["--sites", "a,a"], "same name"),
        (["--sites", "a,server"], "cannot be a site's name"),
        (["--sites", "a,../b"], "cannot be a site's name"),
        (["--sites", "a,b", "--address", "nowhere"], "host:port"),
    ],
)
def test_init_refuses_in_one_line(arguments, reason, tmp_path, capsys):
    status, _, err = said(capsys, "init", tmp_path / "fed", *arguments)
    assert status == 2 and reason in err and err.count("\n") == 1
    assert not (tmp_path / "fed" / "federation.toml").exists()


def test_init_does_not_touch_what_is_there(tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    assert said(capsys, "init", tmp_path, "--sites", "a,b")[0] == 2
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("action", ["server", "run", "status", "verify"])
def test_a_folder_that_is_none(action, tmp_path, capsys):
    status, _, err = said(capsys, action, tmp_path)
    assert status == 2 and "federation.toml" in err and err.count("\n") == 1


def test_sites_come_and_go(tmp_path, capsys):
    folder = tmp_path / "fed"
    said(capsys, "init", folder, "--sites", "a,b")
    assert said(capsys, "add", folder, "c")[0] == 0
    assert said(capsys, "add", folder, "c")[0] == 2
    assert said(capsys, "leave", folder, "a")[0] == 0
    assert said(capsys, "revoke", folder, "b")[0] == 0
    assert said(capsys, "revoke", folder, "x")[0] == 2
    assert {name: site["status"] for name, site in Federation.load(folder).sites().items()} == {
        "a": "left",
        "b": "revoked",
        "c": "in",
    }


def test_status_before_and_after(tmp_path, capsys):
    folder = federation(tmp_path / "fed", digits_silos(tmp_path / "silos"), rounds=2, hidden=(8,))
    status, out, _ = said(capsys, "status", folder)
    assert status == 0 and out.startswith("fedsac, scored by accuracy: round 0 of 2, not begun\n")
    coordinate(folder)
    status, out, _ = said(capsys, "status", folder, "--json")
    found = json.loads(out)
    assert found["state"] == "over" and found["round"] == 2 and found["sites"]["a"]["answered"] == 2
    assert said(capsys, "verify", folder)[0] == 0
    assert "over" in said(capsys, "status", folder)[1]
    # Asked to run again, there is nothing left to do, and nothing is asked for.
    status, out, err = said(capsys, "run", folder)
    assert status == 0 and "round 2 of 2, over" in out + err
    assert not (folder / "server" / "requested").exists()


def test_status_and_receipts_name_the_metric(tmp_path, capsys):
    silos = digits_silos(tmp_path / "silos")
    folder = federation(tmp_path / "fed", silos, rounds=1, hidden=(8,), metric="macro-f1", dtype="float64")
    coordinate(folder)
    assert json.loads(said(capsys, "status", folder, "--json")[1])["metric"] == "macro-f1"
    first, _, *rows = said(capsys, "status", folder)[1].splitlines()
    assert first == "fedsac, scored by macro-F1: round 1 of 1, over"
    seen = np.load(silos / "validation.npz")
    for row, name in zip(rows, "abc", strict=True):
        predicted = ModelFile.load(folder / name / "reward.safetensors").probabilities(seen["x"]).argmax(1)
        expected = f1_score(seen["y"], predicted, average="macro", zero_division=0)
        receipt = json.loads((folder / name / "receipt.json").read_text())["body"]
        assert receipt["metric"] == "macro-f1" and receipt["accuracy_validation"] == pytest.approx(expected, abs=1e-9)
        assert row.split()[0] == name and row.split()[7] == f"{expected:.3f}"


def test_run_says_what_is_wrong_with_the_data(tmp_path, capsys):
    said(capsys, "init", tmp_path / "fed", "--sites", "a,b")
    for action in ("run", "server"):
        status, _, err = said(capsys, action, tmp_path / "fed")
        assert status == 2 and "validation.csv" in err


def test_a_site_without_its_data_does_not_start(tmp_path, capsys):
    said(capsys, "init", tmp_path / "fed", "--sites", "a,b")
    status, _, err = said(capsys, "site", tmp_path / "fed" / "a")
    assert status == 2 and "data.csv: cannot be read" in err and err.count("\n") == 1
    (tmp_path / "fed" / "a" / "data.csv").write_text("x,label\n1,no\ntwo,yes\n")
    status, _, err = said(capsys, "site", tmp_path / "fed" / "a")
    assert status == 2 and "data.csv" in err and err.count("\n") == 1
