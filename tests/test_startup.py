"""What only reads or lists starts at once: it loads none of the heavy libraries."""

import json
import subprocess
import sys

import pytest

import fedsac
from fedsac import Config
from fedsac.runs.comparing import compare
from fedsac.runs.watcher import Watcher

HEAVY = {"torch", "scipy", "sklearn", "flwr", "cryptography", "pyarrow", "onnx", "pooch", "requests"}
SMALL = Config(rounds=2, clients=3, hidden=(12,), local_steps=3, standalone_steps=5)
COMMAND = """
import json, sys
before = set(sys.modules)
try:
    from fedsac.cli import main
    status = main(sys.argv[1:])
except SystemExit as ended:
    status = ended.code
print(json.dumps([status, sorted({name.partition(".")[0] for name in set(sys.modules) - before})]), file=sys.stderr)
"""


def installed(loaded):
    """What of these modules is neither Python's own nor ours."""
    return set(loaded) - set(sys.stdlib_module_names) - {"fedsac"}


def loads(*arguments):
    """The libraries that `fedsac ARGUMENTS` loads until it ends."""
    command = [sys.executable, "-c", COMMAND, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    status, loaded = json.loads(done.stderr.splitlines()[-1])
    assert status in (0, None), done.stderr
    assert done.stdout
    return installed(loaded)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run and a comparison."""
    folder = tmp_path_factory.mktemp("startup")
    fedsac.run(SMALL, folder / "run")
    compare(SMALL, ["fedavg", "fedsac"], 2, folder / "comparison", Watcher())
    return folder


@pytest.mark.parametrize("command", ["--help", "--version", "methods", "run --help", "federation --help"])
def test_what_only_prints_loads_nothing_but_python(command):
    assert loads(*command.split()) == set()


def test_import_fedsac_loads_nothing_but_python():
    script = "import sys; before = set(sys.modules); import fedsac; dir(fedsac); print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert installed(name.partition(".")[0] for name in done.stdout.split()) == set()


def test_every_public_name_is_there_when_it_is_asked_for():
    assert [name for name in fedsac.__all__ if getattr(fedsac, name, None) is None] == []


def test_data_list_looks_for_files_and_loads_no_library_that_reads_them():
    assert not loads("data", "list") & HEAVY
    assert "sklearn" in loads("data", "check", "digits")  # so it would have been seen


@pytest.mark.parametrize("what", ["run", "comparison"])
def test_a_report_is_written_without_torch(what, folder, tmp_path):
    assert not loads("report", folder / what, "--out", tmp_path / "a.html") & HEAVY
    drawn = loads("report", folder / what, "--out", tmp_path / "b.html", "--figures", tmp_path / "figures")
    assert drawn & HEAVY <= {"cryptography"}  # by fpdf2, where it is installed: it can sign
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()
    assert any((tmp_path / "figures").iterdir())


def test_the_status_of_a_federation_that_has_run(tmp_path):
    pytest.importorskip("flwr")
    from tests.flower_grid import coordinate, digits_silos, federation

    federated = federation(tmp_path / "federation", digits_silos(tmp_path / "silos"), rounds=1, hidden=(8,))
    coordinate(federated)
    assert not loads("federation", "status", federated) & HEAVY
    assert not loads("federation", "status", federated, "--json") & HEAVY
    assert not loads("report", federated / "server" / "run", "--out", tmp_path / "page.html") & HEAVY
