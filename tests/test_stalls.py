"""Nobody keeps the others waiting: replies that are announced and never come, and losses that count."""

import json
import threading
from dataclasses import dataclass, field

import httpx
import pytest

pytest.importorskip("flwr")

from fedsac.federation import link as links
from fedsac.federation.flower_internals import unbundled
from fedsac.federation.folder import Federation
from fedsac.federation.watch import status
from tests.flower_grid import InProcessGrid, coordinate, digits_silos, federation, nodes, of_kind

RUN = {"rounds": 4, "hidden": (8,), "seed": 3, "dtype": "float64"}
QUICK = "timeout = 1.0\naside_after = 2"


@pytest.fixture(scope="module")
def silos(tmp_path_factory):
    return digits_silos(tmp_path_factory.mktemp("data") / "silos")


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(links, "PULL_SECONDS", 0.2)


def founded(path, silos, **more):
    folder = federation(path, silos, **RUN | more)
    toml = folder / "federation.toml"
    toml.write_text(toml.read_text().replace("timeout = 30", QUICK))
    return folder


@dataclass
class AnnouncingGrid(InProcessGrid):
    """In rounds, fetching the reply of one site ends when the test does, as Flower's grid waits for an upload."""

    silent: str = ""
    over: threading.Event = field(default_factory=threading.Event)
    ids: set = field(default_factory=set)

    def push_messages(self, messages):
        sent = super().push_messages(messages)
        for id, message in zip(sent, messages, strict=True):
            order = json.loads(unbundled(message.content).config_records["order"]["json"])
            if self.folders[message.metadata.dst_node_id].name == self.silent and order["kind"] == "round":
                self.ids.add(id)
        return sent

    def pull_messages(self, message_ids):
        if self.ids & set(message_ids):
            self.over.wait()
        return super().pull_messages(message_ids)


def test_a_reply_that_is_announced_and_never_comes_blocks_nobody(silos, tmp_path):
    """Would the grid's own wait count, this test would never end."""
    folder = founded(tmp_path / "fed", silos)
    grid = AnnouncingGrid(nodes(folder), silent="b")
    try:
        found = coordinate(folder, grid)
        assert not grid.over.is_set() and grid.ids
    finally:
        grid.over.set()
    assert [record["answered"] for record in found.records] == [["a", "c"]] * 4
    lost = of_kind(folder, "lost")
    assert [(body["site"], body["in_a_row"], body["aside"]) for body in lost] == [("b", 1, False), ("b", 2, True)]
    assert len(grid.ids) == 2, "set aside, it was asked no more"
    state = status(Federation.load(folder))["sites"]["b"]
    assert state["aside"] and state["lost"] == 2
    assert state["delivered"], "what it is owed, it is sent all the same"


class LockedGrid(InProcessGrid):
    """Of its requests, every third finds the server's database locked, as with ten nodes at once."""

    requests = 0

    def _may_be_locked(self):
        self.requests += 1
        if self.requests % 3 == 0:
            request = httpx.Request("POST", "https://127.0.0.1/v1/runtime/pull-messages")
            raise httpx.HTTPStatusError("", request=request, response=httpx.Response(500, request=request))

    def push_messages(self, messages):
        self._may_be_locked()
        return super().push_messages(messages)

    def pull_messages(self, message_ids):
        self._may_be_locked()
        return super().pull_messages(message_ids)


def test_a_locked_database_costs_nobody_anything(silos, tmp_path):
    folder = federation(tmp_path / "fed", silos, **RUN)
    found = coordinate(folder, LockedGrid(nodes(folder)))
    assert [record["answered"] for record in found.records] == [["a", "b", "c"]] * 4
    assert of_kind(folder, "lost") == []
    plain = coordinate(federation(tmp_path / "plain", silos, **RUN))
    assert (found.state["model"] == plain.state["model"]).all()


def test_an_answer_ends_the_row_of_losses(silos, tmp_path):
    folder = founded(tmp_path / "fed", silos, rounds=5)

    def spoil(site, message, reply):
        order = json.loads(message.content.config_records["order"]["json"])
        lost = site == "b" and order["kind"] == "round" and order["round"] in (0, 2, 3)
        return None if lost else reply

    coordinate(folder, InProcessGrid(nodes(folder), spoil=spoil))
    assert [(body["in_a_row"], body["aside"]) for body in of_kind(folder, "lost")] == [
        (1, False),
        (1, False),
        (2, True),
    ]


def test_when_nobody_answers_nobody_is_set_aside(silos, tmp_path):
    """The fault may be the coordinator's own network: the round is repeated, and everybody is asked again."""
    folder = founded(tmp_path / "fed", silos, rounds=1)
    rounds = []

    def spoil(site, message, reply):
        order = json.loads(message.content.config_records["order"]["json"])
        if order["kind"] != "round":
            return reply
        rounds.append(site)
        return None if len(rounds) <= 9 else reply

    found = coordinate(folder, InProcessGrid(nodes(folder), spoil=spoil))
    assert found.records[0]["answered"] == ["a", "b", "c"]
    assert len(of_kind(folder, "repeated")) == 3
    assert {body["aside"] for body in of_kind(folder, "lost")} == {False}
