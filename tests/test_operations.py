"""What operators rely on: metrics, logs, `status --watch`, the units, and the page that says what every alarm means."""

import json
import logging
import re
import shutil
import socket
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from fedsac.cli import main
from fedsac.errors import FedsacError
from fedsac.federation import logs
from fedsac.federation.folder import Federation, SiteSettings
from fedsac.federation.metrics import exposition, serve_metrics
from fedsac.federation.setup import init
from tests.flower_grid import coordinate, digits_silos, federation

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
RUN = {"rounds": 2, "hidden": (8,), "seed": 3, "dtype": "float64"}


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    base = tmp_path_factory.mktemp("operations")
    folder = federation(base / "fed", digits_silos(base / "silos"), **RUN)
    coordinate(folder)
    return folder


def free_port():
    with socket.socket() as there:
        there.bind(("127.0.0.1", 0))
        return there.getsockname()[1]


# -- metrics


def samples(text):
    """Prometheus' text format, read strictly: every metric has a help and a type, every line a number."""
    known, found = set(), {}
    for line in text.splitlines():
        if head := re.fullmatch(r"# (HELP|TYPE) (fedsac_[a-z_]+) (.+)", line):
            known.add((head[1], head[2]))
            continue
        name, labels, value = re.fullmatch(r'(fedsac_[a-z_]+)(\{site="[\w.-]+"\})? (\S+)', line).groups()
        assert {("HELP", name), ("TYPE", name)} <= known
        found[name + (labels or "")] = float(value)
    return found


def test_metrics_are_what_the_ledger_says(played):
    found = samples(exposition(Federation.load(played)))
    assert found["fedsac_round"] == found["fedsac_rounds"] == 2 and found["fedsac_over"] == 1
    assert found["fedsac_ledger_lines"] == len((played / "server" / "ledger.jsonl").read_text().splitlines())
    for name in "abc":
        own = {key.removeprefix("fedsac_site_").split("{")[0]: v for key, v in found.items() if f'"{name}"' in key}
        receipt = json.loads((played / name / "receipt.json").read_text())["body"]
        assert own["contribution"] == receipt["contribution"] and own["reward"] == receipt["accuracy_validation"]
        assert (own["answered"], own["lost"], own["refused"], own["aside"], own["delivered"]) == (2, 0, 0, 0, 1)


def test_metrics_before_anything_has_happened(tmp_path):
    init(tmp_path / "fed", ["a", "b"], "127.0.0.1:9092")
    found = samples(exposition(Federation.load(tmp_path / "fed")))
    assert found["fedsac_round"] == found["fedsac_over"] == found["fedsac_requested"] == 0
    assert 'fedsac_site_contribution{site="a"}' not in found


def test_the_page_for_prometheus(played):
    port = free_port()
    end = serve_metrics(Federation.load(played), port)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as page:
            assert page.headers["content-type"].startswith("text/plain")
            assert samples(page.read().decode())["fedsac_round"] == 2
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30)
        with pytest.raises(FedsacError, match="metrics_port"):
            serve_metrics(Federation.load(played), port)
    finally:
        end()


# -- logs


@pytest.fixture
def logger():
    found = logging.getLogger("fedsac")
    before, level = list(found.handlers), found.level
    yield found
    for handler in found.handlers[len(before) :]:
        handler.close()
    found.handlers, found.level = before, level


def test_a_log_of_json_lines(tmp_path, logger):
    logs.log_to(tmp_path / "site.log", "north", "json")
    logger.info("connected to %s", "hub")
    try:
        1 / 0  # noqa: B018
    except ZeroDivisionError:
        logger.exception("two\nlines")
    first, second = (json.loads(line) for line in (tmp_path / "site.log").read_text().splitlines())
    assert (first["level"], first["site"], first["message"]) == ("info", "north", "connected to hub")
    assert second["level"] == "error" and "ZeroDivisionError" in second["traceback"]


def test_a_site_log_has_an_end(tmp_path, logger, monkeypatch):
    monkeypatch.setattr(logs, "LOG_BYTES", 1000)
    logs.log_to(tmp_path / "site.log", "north", "text")
    for number in range(500):
        logger.info("line %d", number)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["site.log", *(f"site.log.{i}" for i in (1, 2, 3))]
    assert "line 499" in (tmp_path / "site.log").read_text()


def test_the_log_of_a_process_that_goes_on_writing(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "LOG_BYTES", 100)
    path = tmp_path / "superlink.log"
    with path.open("ab", buffering=0) as writer:  # as `start_process` opens it
        for part in range(6):
            writer.write(b"%d" % part * 101)
            logs.rotate(path)
        writer.write(b"last")
        logs.rotate(path)
    assert path.read_bytes() == b"last"
    kept = [(tmp_path / f"superlink.log.{i}").read_bytes()[:1] for i in (1, 2, 3)]
    assert kept == [b"5", b"4", b"3"] and not (tmp_path / "superlink.log.4").exists()


def test_other_forms_of_logs_are_refused(tmp_path):
    init(tmp_path / "fed", ["a", "b"], "127.0.0.1:9092")
    toml = tmp_path / "fed" / "a" / "site.toml"
    toml.write_text(toml.read_text().replace('log = "text"', 'log = "xml"'))
    with pytest.raises(FedsacError, match="log must be text or json"):
        SiteSettings.load(tmp_path / "fed" / "a")


# -- the command


def test_status_again_and_again(played, capsys, monkeypatch):
    waited = []

    def sleep(seconds):
        waited.append(seconds)
        if len(waited) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", sleep)
    assert main(["federation", "status", str(played), "--watch"]) == 130
    assert waited == [2.0] * 3
    assert capsys.readouterr().out.count("round 2 of 2") == 3
    assert main(["federation", "status", str(played), "--watch", "0"]) == 2
    assert "from 0.1 to 86400" in capsys.readouterr().err


# -- units and page


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("unit", ["fedsac-server.service", "fedsac-site.service"])
def test_units_are_well_formed(unit, tmp_path):
    text = (ROOT / "docs" / "systemd" / unit).read_text()
    program = re.search(r"ExecStart=(\S+)", text)[1]
    (tmp_path / unit).write_text(text.replace(program, shutil.which("true")))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(tmp_path / unit)], capture_output=True, text=True, check=False
    )
    assert unit not in done.stderr and done.returncode == 0, done.stderr


def test_every_reason_for_a_refusal_is_explained():
    """The first word of every refusal in the source is a row of the page's table."""
    folder = ROOT / "src" / "fedsac"
    sources = [*(folder / "federation").glob("*.py"), folder / "defences" / "harm.py"]
    text = "\n".join(path.read_text() for path in sources)
    said = set(re.findall(r'(?:RefusedError|refuse)\((?:\w+, )?f?"([a-z]+): ', text)) | {"schema", "diverged", "harm"}
    assert {"identity", "step", "finite", "history"} <= said
    table = PAGE.split("## Why a reply was refused")[1].split("\n## ")[0]
    assert {word for word in said if f"`{word}`" not in table} == set()


def test_every_metric_is_one_that_there_is(played):
    named = set(re.findall(r"`(fedsac_[a-z_]+)`", PAGE))
    there = {key.split("{")[0] for key in samples(exposition(Federation.load(played)))}
    assert named and named <= there
