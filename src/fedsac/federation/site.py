"""A site: reads its own data, trains what it is sent, and keeps what it has earned. Nothing here knows Flower.

Every message may find a new process, so whatever a site must remember lies in its folder: `agreed.json`, what it agreed
to when it joined; at the end `reward.safetensors` and `receipt.json`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedsac.atomic import write_atomic
from fedsac.clients.population import Clients
from fedsac.clients.rounds import personalised
from fedsac.clients.training import Job, train
from fedsac.compute import evaluation
from fedsac.config import Config
from fedsac.contributions.measurement import Measurement
from fedsac.contributions.standalone import trained_alone
from fedsac.core.metrics import accuracy
from fedsac.core.units import Layout
from fedsac.data.split import Split
from fedsac.errors import FedsacError
from fedsac.federation import identity
from fedsac.federation.data import Schema, read_data, schema_of, site_data
from fedsac.federation.folder import SiteSettings, read_json, write_json
from fedsac.federation.guard import Raw, Reply
from fedsac.federation.wire import BATCH_LOSSES, LOCAL_LOSS, Order, arrays_of, digest, network_of
from fedsac.methods.base import Assignment
from fedsac.models.files import ModelFile
from fedsac.models.network import Network
from fedsac.runs.setup import Prepared, prepare_split

DECLINED = "declined"  # a fact of a reply: why the site does not do what it was asked


@dataclass(frozen=True)
class Said:
    """The content of a reply."""

    facts: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True)
class Agreed:
    """What holds for this site since it joined: the schema, how inputs are normalised, how it trains."""

    schema: Schema
    channel: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray
    settings: dict[str, Any]

    @classmethod
    def of(cls, facts: dict[str, Any]) -> "Agreed":
        arrays = np.array(facts["channel"], np.int64), np.array(facts["mean"]), np.array(facts["deviation"])
        return cls(Schema.of_dict(facts["schema"]), *arrays, facts["settings"])


class Site:
    """One site, for the length of one message."""

    def __init__(self, folder: Path) -> None:
        self.settings = SiteSettings.load(folder)
        if self.settings.threads:
            torch.set_num_threads(self.settings.threads)

    def answer(self, order: Order) -> Reply:
        """Do what the order says, and sign what comes of it. What cannot be done is declined, with the reason."""
        doing: dict[str, Callable[[Order], Said]] = {
            "join": self.join,
            "alone": self.alone,
            "round": self.round,
            "reward": self.reward,
        }
        try:
            if order.kind not in doing:
                raise FedsacError(f"there is no order {order.kind!r}; does this site need a newer fedsac?")
            said = doing[order.kind](order)
        except FedsacError as error:
            said = Said({DECLINED: " ".join(str(error).split())})
        raw = {name: Raw.of(array) for name, array in said.arrays.items()}
        reply = Reply(self.settings.name, order.kind, order.round, order.token, said.facts, raw)
        signature = identity.sign((self.settings.path / "key").read_bytes(), reply.digest())
        return Reply(reply.site, reply.kind, reply.round, reply.token, reply.facts, raw, signature=signature)

    def join(self, order: Order) -> Said:
        """Look whether the site's data fits what the coordinator has, and remember what was agreed."""
        agreed = Agreed.of(dict(order.facts))
        table = read_data(self.settings.data, self.settings.path, self.settings.label)
        data = site_data(table, agreed.schema, agreed.channel, f"{self.settings.name}: {self.settings.data}")
        write_json(self.settings.path / "agreed.json", dict(order.facts))
        own = schema_of(table, agreed.schema.classes).as_dict() | {"features": agreed.schema.features}
        return Said({"schema": own, "samples": len(data.y)})

    def alone(self, order: Order) -> Said:
        """Train a model alone, from the common start: what the coordinator measures this site's contribution by."""
        start = network_of(order.arrays)
        clients = self._clients(start.layout)
        # Nobody evaluates here: the coordinator does, on data of its own.
        run = Measurement(clients, start.params, int(order.facts["steps"]), clients.pool, clients.pool, accuracy)
        return self._trained(Network(start.layout, trained_alone([run])[0][0]))

    def round(self, order: Order) -> Said:
        """Train the submodel that was sent."""
        start = network_of(order.arrays)
        clients = self._clients(start.layout)
        received = start.params.unsqueeze(0)
        job = Job(clients, received, None, (clients.local_steps,), "batches", order.round)
        trained = train([job])[0].models
        said = self._trained(Network(start.layout, trained[0]))
        if order.facts.get(LOCAL_LOSS):
            found = evaluation.mean_losses(start.layout, received, clients.pool, list(clients.rows))
            said.arrays[LOCAL_LOSS] = found.double().numpy()
        if order.facts.get(BATCH_LOSSES):
            found = evaluation.batch_losses(start.layout, trained, clients.pool, list(clients.rows))[0]
            said.arrays[BATCH_LOSSES] = found.double().numpy()
        return said

    def reward(self, order: Order) -> Said:
        """Keep what was earned: the model in a file of its own, and the receipt beside it."""
        network = network_of(order.arrays)
        if order.facts["receipt"]["body"]["sha256"] != digest(order.arrays):
            raise FedsacError("the receipt is for another model than the one that came with it")
        if order.facts.get("extra_epoch"):
            clients = self._clients(network.layout)
            everything = torch.ones(1, network.layout.neurons, dtype=torch.bool)
            given = Assignment(network.params.unsqueeze(0), everything, extra_epoch=True)
            network = Network(network.layout, personalised([(clients, given, order.round)])[0][0])
        agreed = self._agreed
        body = order.facts["receipt"]["body"]
        facts = {"client": self.settings.name, "method": body["method"], "round": order.round}
        schema = agreed.schema
        file = ModelFile(
            network, schema.classes, schema.features, schema.top, agreed.mean, agreed.deviation, facts
        ).pack()
        write_atomic(self.settings.path / "reward.safetensors", file)
        write_json(self.settings.path / "receipt.json", dict(order.facts["receipt"]))
        return Said({"kept": True})

    def _trained(self, network: Network) -> Said:
        if not bool(network.params.isfinite().all()):
            raise FedsacError("diverged: training ended in NaN or infinity")
        return Said(arrays=arrays_of(network))

    @cached_property
    def _agreed(self) -> Agreed:
        path = self.settings.path / "agreed.json"
        if not path.exists():
            raise FedsacError("not joined: this site has agreed to nothing yet")
        return Agreed.of(read_json(path))

    @cached_property
    def _prepared(self) -> Prepared:
        agreed, own = self._agreed, self.settings
        table = read_data(own.data, own.path, own.label)
        data = site_data(table, agreed.schema, agreed.channel, f"{own.name}: {own.data}")
        rows = np.arange(len(data.y))
        dealt = Split(
            data, "silos", (own.name,), (rows,), rows[:0], data.x[:0], data.y[:0], agreed.mean, agreed.deviation
        )
        return prepare_split(Config(data=own.name, scene="silos", device=own.device, **agreed.settings), dealt)

    def _clients(self, layout: Layout) -> Clients:
        """This site as the only client of a run, with a model of this shape."""
        c = self._prepared.clients
        return Clients(layout, c.names, c.rows, c.pool, c.lr, c.batch, c.local_steps, c.seed)
