"""Flower's grid in one process: messages are encoded and decoded as on the wire, and the real client app answers."""

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from flwr.app import Context, Error, Message, RecordDict
from flwr.app.message.message import make_message
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity
from sklearn.datasets import load_digits

from fedsac.federation.app import client
from fedsac.federation.coordinator import Coordinator
from fedsac.federation.flower_internals import bundled, unbundled
from fedsac.federation.folder import Federation
from fedsac.federation.ledger import read
from fedsac.federation.link import GridLink
from fedsac.federation.setup import init
from fedsac.federation.simulation import unlimited

SIZES = {"a": 60, "b": 150, "c": 400}
TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1  # Flower sets them in its own processes


def digits_silos(folder: Path, sizes=SIZES) -> Path:
    """A folder of silos as `fedsac run` takes it: clients of unequal size, validation and test."""
    folder.mkdir()
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(7).permutation(len(y))
    parts = {**sizes, "validation": 300, "test": 300}
    start = 0
    for name, size in parts.items():
        rows = order[start : start + size]
        np.savez(folder / f"{name}.npz", x=x[rows], y=y[rows])
        start += size
    return folder


def federation(folder: Path, silos: Path, sites=tuple(SIZES), *, settings="", limits=False, **run) -> Path:
    """A federation over these silos, ready to begin; without `limits`, sites compute what a local run computes."""
    init(folder, list(sites), "127.0.0.1:9092")
    for name in sites:
        shutil.copy(silos / f"{name}.npz", folder / name / "data.npz")
        toml = folder / name / "site.toml"
        text = toml.read_text().replace('"data.csv"', '"data.npz"')
        toml.write_text(text if limits else unlimited(text))
    for name in ("validation", "test"):
        shutil.copy(silos / f"{name}.npz", folder)
    options = run.pop("options", {})
    lines = [f"{key} = {value!r}".replace("'", '"').replace("(", "[").replace(")", "]") for key, value in run.items()]
    lines += ["[run.options]", *(f'{key} = "{value}"' for key, value in options.items())] if options else []
    (folder / "federation.toml").write_text(
        'format_version = 1\n[federation]\nvalidation = "validation.npz"\ntest = "test.npz"\nwait = 1\ntimeout = 30\n'
        f"{settings}\n[run]\n" + "\n".join(lines) + "\n"
    )
    return folder


@dataclass
class InProcessGrid(Grid):
    """Nodes are site folders. `spoil` may change or swallow a reply: (site, kind, round, reply) -> reply or None."""

    folders: dict[int, Path]
    spoil: object = None
    away: set = field(default_factory=set)
    before: object = None  # called with (site, order) before a node answers
    sent: dict = field(default_factory=dict)  # site -> the bytes of every message to it
    replies: dict = field(default_factory=dict)
    late: list = field(default_factory=list)  # replies that come with every look, whoever was asked what

    def set_run(self, run):
        pass

    @property
    def run(self):
        return None

    def create_message(self, *args, **kwargs):
        raise NotImplementedError

    def get_node_ids(self):
        return [node for node, folder in self.folders.items() if folder.name not in self.away]

    def push_messages(self, messages):
        return [self._carry(message) for message in messages]

    def pull_messages(self, message_ids):
        found = [self.replies.pop(id) for id in message_ids if id in self.replies]
        return [*self.late, *found]

    def send_and_receive(self, messages, *, timeout=None):
        return self.pull_messages(self.push_messages(messages))

    def _carry(self, message):
        message.metadata.__dict__["_message_id"] = message.object_id
        id, folder = message.object_id, self.folders[message.metadata.dst_node_id]
        arrived, content = over_the_wire(message)
        arrived.metadata.__dict__["_message_id"] = id
        self.sent.setdefault(folder.name, []).append(content)
        context = Context(1, message.metadata.dst_node_id, {"site": str(folder)}, RecordDict(), {})
        seen = reply_with(arrived, unbundled(arrived.content))
        try:
            if self.before is not None:
                self.before(folder.name, seen)
            reply = client(arrived, context)
        except Exception as error:  # noqa: BLE001  as Flower does: a client that raises answers with an error
            reply = Message(Error(code=0, reason=str(error)), reply_to=arrived)
        if self.spoil is not None:
            opened = reply_with(reply, unbundled(reply.content)) if reply.has_content() else reply
            reply = self.spoil(folder.name, seen, opened)
            if reply is not None and reply.has_content():
                reply = reply_with(reply, bundled(reply.content))
        if reply is not None:
            self.replies[id] = over_the_wire(reply)[0]
        return id


def over_the_wire(message):
    """The message as the other end decodes it, and all its bytes."""
    parts = {id: part.deflate() for id, part in get_all_nested_objects(message).items()}
    return inflate_object_from_contents(message.object_id, dict(parts)), b"".join(parts.values())


def reply_with(reply, content):
    """The same reply with another content."""
    return make_message(reply.metadata, content=content)


def nodes(folder: Path) -> dict[int, Path]:
    sites = Federation.load(folder).sites()
    return {10 + i: folder / name for i, name in enumerate(sorted(sites))}


def coordinator(folder: Path, grid: InProcessGrid, says=None) -> Coordinator:
    link = GridLink(grid, lambda: {path.name: node for node, path in grid.folders.items()}, sleep=lambda s: None)
    return Coordinator(Federation.load(folder), link, says.append if says is not None else str, lambda s: None)


def coordinate(folder: Path, grid: InProcessGrid | None = None, says=None) -> Coordinator:
    """Run the federation to its end in one process."""
    found = coordinator(folder, grid or InProcessGrid(nodes(folder)), says)
    found.run()
    return found


def order_of(message):
    """What a coordinator's message asks for."""
    return json.loads(message.content.config_records["order"]["json"])


def of_kind(folder, kind):
    """What the lines of this kind in a federation's ledger say."""
    return [entry["body"] for entry in read(Federation.load(folder).ledger) if entry["kind"] == kind]
