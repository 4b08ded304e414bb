"""A site's node: one process for all messages, what it keeps on disk, and what it says when something is the matter."""

import subprocess
import sys
from collections import Counter

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects

from fedsac.errors import FedsacError
from fedsac.federation import site as sites
from fedsac.federation.flower_internals import BUNDLE, bundled, framed, unbundled, unframed
from fedsac.federation.folder import SiteSettings
from fedsac.federation.link import UNDECODABLE
from fedsac.federation.node import Node, locked, trouble
from fedsac.federation.pending import ORDER_FILE, REPLY_FILE, drop, keep
from tests import flower_grid
from tests.flower_grid import InProcessGrid, coordinate, digits_silos, federation, nodes

RUN = {"rounds": 3, "hidden": (8,), "seed": 3, "dtype": "float64"}


@pytest.fixture(scope="module")
def silos(tmp_path_factory):
    return digits_silos(tmp_path_factory.mktemp("data") / "silos")


def staying(folder, monkeypatch):
    """A grid of nodes that stay; Flower starts a process for each message."""
    stay = {path: Node(SiteSettings.load(path), str) for path in nodes(folder).values()}
    monkeypatch.setattr(
        flower_grid, "client", lambda message, context: stay[folder / sitename(context)]._reply(message)
    )
    return InProcessGrid(nodes(folder))


def sitename(context):
    return str(context.node_config["site"]).rpartition("/")[2]


def test_a_process_that_stays_sends_what_a_new_one_would(silos, tmp_path, monkeypatch):
    reads = Counter()
    read = sites.read_data
    monkeypatch.setattr(
        sites, "read_data", lambda data, path, label: reads.update([path.name]) or read(data, path, label)
    )
    fresh = federation(tmp_path / "fresh", silos, **RUN)
    one = coordinate(fresh)
    assert reads == {"a": 5, "b": 5, "c": 5}, "join, alone and three rounds"
    reads.clear()
    kept = federation(tmp_path / "kept", silos, **RUN)
    other = coordinate(kept, staying(kept, monkeypatch))
    assert reads == {"a": 2, "b": 2, "c": 2}, "to join, and to train"
    assert (one.state["model"] == other.state["model"]).all()
    for name in "abc":
        assert (fresh / name / "reward.safetensors").read_bytes() == (kept / name / "reward.safetensors").read_bytes()


def test_what_goes_wrong_inside_a_site_stays_there(silos, tmp_path, monkeypatch, caplog):
    folder = federation(tmp_path / "fed", silos, **RUN)
    toml = folder / "federation.toml"
    toml.write_text(toml.read_text().replace("timeout = 30", "timeout = 1.0"))
    grid = staying(folder, monkeypatch)
    honest = sites.Site.round
    monkeypatch.setattr(sites.Site, "round", lambda self, o: 1 / 0 if self.settings.name == "b" else honest(self, o))
    coordinate(folder, grid)
    ledger = (folder / "server" / "ledger.jsonl").read_text()
    assert "its log says why" in ledger
    assert "division" not in ledger and "division by zero" in caplog.text


# -- a message as bytes


def content():
    return RecordDict(
        {
            "order": ConfigRecord({"json": "{}"}),
            "arrays": ArrayRecord({str(i): Array(np.full((3, i + 1), float(i))) for i in range(6)}),
            "metrics": MetricRecord({"n": 1.5}),
        }
    )


def test_a_bundle_is_one_record_with_everything_in_it():
    plain = content()
    bundle = bundled(plain)
    assert list(bundle) == [BUNDLE]
    back = unbundled(bundle)
    assert back.object_id == plain.object_id and set(back) == set(plain)
    assert unbundled(plain) is plain


@given(st.binary(max_size=200), st.integers(0, 3000), st.integers(0, 255))
def test_damaged_bundles_are_nothing_worse(noise, at, byte):
    """Whatever comes instead: it cannot be decoded, or it is another content, which the guard then looks at."""
    whole = framed(content())
    damaged = bytearray(whole)
    damaged[at % len(whole)] = byte
    for bad in (noise, bytes(damaged), whole[: at % len(whole)], whole + noise):
        try:
            unbundled(RecordDict({BUNDLE: ConfigRecord({"bytes": bad})}))
        except UNDECODABLE:
            continue


@pytest.mark.parametrize("bad", [b"[-1]\nx", b"[true]\nx", b"[5]\nabc", b"{}\n", b"[]\n", b"", b"[1e400]\n"])
def test_frames_that_are_none(bad):
    with pytest.raises(UNDECODABLE):
        unframed(bad)
    with pytest.raises(UNDECODABLE):
        unbundled(RecordDict({BUNDLE: ConfigRecord({"bytes": bad})}))
    with pytest.raises(UNDECODABLE):
        unbundled(RecordDict({BUNDLE: ConfigRecord({"bytes": "text"})}))


def test_something_beside_the_bundle_is_no_bundle():
    bundle = bundled(content())
    bundle["more"] = ConfigRecord({"x": 1})
    with pytest.raises(ValueError, match="something else"):
        unbundled(bundle)


def test_files_are_dropped_together(tmp_path):
    keep(tmp_path / ORDER_FILE, b"1")
    keep(tmp_path / REPLY_FILE, b"2")
    drop(tmp_path)
    drop(tmp_path)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FedsacError, match="cannot be written"):
        keep(tmp_path / "nowhere" / ORDER_FILE, b"1")


# -- what is the matter


def answer(status, text="", date="Wed, 18 Nov 2026 09:00:00 GMT"):
    request = httpx.Request("POST", "https://hub/v1/fleet/activate-node")
    response = httpx.Response(status, text=text, headers={"date": date}, request=request)
    return httpx.HTTPStatusError("", request=request, response=response)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (httpx.ConnectError("[Errno 111] Connection refused"), "hub:9092 cannot be reached ([Errno 111]"),
        (httpx.ReadTimeout(""), "cannot be reached (ReadTimeout)"),
        (httpx.ConnectError("[SSL] certificate verify failed"), "not one of ca.pem's authority"),
        (answer(412), "takes north for connected"),
        (answer(401, "key: no site has this key"), "does not know the key of north"),
        (answer(502, "the server behind the gate does not answer"), "answers 502 (the server behind the gate"),
    ],
)
def test_troubles_are_one_line_that_says_what_to_do(error, text, tmp_path, monkeypatch):
    monkeypatch.setattr("time.time", lambda: 1794992400.0)  # 9:00:00 on that day
    said = trouble(error, SiteSettings(tmp_path, "north", address="hub:9092"))
    assert text in said and "\n" not in said


@pytest.mark.parametrize(("ahead", "text"), [(30.0, "30 s ahead of"), (-400.0, "400 s behind")])
def test_a_clock_that_is_off_is_named(ahead, text, tmp_path, monkeypatch):
    monkeypatch.setattr("time.time", lambda: 1794992400.0 + ahead)
    said = trouble(answer(401, "clock: "), SiteSettings(tmp_path, "north", address="hub:9092"))
    assert text in said and "NTP" in said


def test_a_folder_has_one_process(tmp_path):
    settings = SiteSettings(tmp_path, "north")
    with locked(settings), pytest.raises(FedsacError, match="running already"), locked(settings):
        pass
    with locked(settings):
        pass


def test_bundles_are_few_objects():
    assert len(get_all_nested_objects(content())) > 12
    assert len(get_all_nested_objects(bundled(content()))) == 2


def test_a_site_of_a_plain_perceptron_does_without_scipy():
    """20 MB of every idle site: what finds the units of any network loads it when there is one."""
    script = "import sys; import fedsac.federation.node; print('scipy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
