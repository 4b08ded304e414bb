"""A site: reads its own data, trains the models it is sent, and saves its reward. Nothing here depends on Flower.

Every message may be handled by a new process, so what a site must remember is in its folder: `agreed.json`, the terms
it joined on; `heads.jsonl`, what it has seen of the ledger; at the end `reward.safetensors` and `receipt.json`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
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
from fedsac.federation.history import History
from fedsac.federation.wire import BATCH_LOSSES, LOCAL_LOSS, Order, arrays_of, digest, network_of
from fedsac.methods.base import Assignment
from fedsac.models.files import ModelFile
from fedsac.models.network import Network
from fedsac.runs.setup import Prepared, prepare_split

DECLINED = "declined"  # the key in a reply's facts under which a site says why it does not carry out an order


@dataclass(frozen=True)
class ReplyContent:
    """The content of a reply."""

    facts: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True)
class JoinTerms:
    """The terms that a site joined on: the schema, the normalisation of inputs, the settings of training."""

    schema: Schema
    channel: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray
    settings: dict[str, Any]

    @classmethod
    def of(cls, facts: dict[str, Any]) -> "JoinTerms":
        arrays = np.array(facts["channel"], np.int64), np.array(facts["mean"]), np.array(facts["deviation"])
        return cls(Schema.of_dict(facts["schema"]), *arrays, facts["settings"])


class Site:
    """A site, set up anew for each message."""

    def __init__(self, folder: Path) -> None:
        self.settings = SiteSettings.load(folder)
        if self.settings.threads:
            torch.set_num_threads(self.settings.threads)

    def answer(self, order: Order) -> Reply:
        """Carry out an order and return the signed reply. An order that cannot be carried out is declined, with the
        reason."""
        actions: dict[str, Callable[[Order], ReplyContent]] = {
            "join": self.join,
            "alone": self.alone,
            "round": self.round,
            "reward": self.reward,
        }
        try:
            self._history.take(self.settings.name, order)
            if order.kind not in actions:
                raise FedsacError(f"there is no order {order.kind!r}; does this site need a newer fedsac?")
            content = actions[order.kind](order)
        except FedsacError as error:
            content = ReplyContent({DECLINED: " ".join(str(error).split())})
        raw = {name: Raw.of(array) for name, array in content.arrays.items()}
        head = self._history.head
        reply = Reply(self.settings.name, order.kind, order.round, order.token, content.facts, raw, head=head)
        signature = identity.sign((self.settings.path / "key").read_bytes(), reply.digest())
        return replace(reply, signature=signature)

    def join(self, order: Order) -> ReplyContent:
        """Check that the site's data has the federation's schema, and save the terms."""
        terms = JoinTerms.of(dict(order.facts))
        table = read_data(self.settings.data, self.settings.path, self.settings.label)
        data = site_data(table, terms.schema, terms.channel, f"{self.settings.name}: {self.settings.data}")
        write_json(self.settings.path / "agreed.json", dict(order.facts))
        own = schema_of(table, terms.schema.classes).as_dict() | {"features": terms.schema.features}
        return ReplyContent({"schema": own, "samples": len(data.y)})

    def alone(self, order: Order) -> ReplyContent:
        """Train a model alone from the common initial model; the coordinator measures the site's contribution by it."""
        start = network_of(order.arrays)
        clients = self._clients(start.layout)
        # The pool stands in for validation and test set: the coordinator evaluates, on its own data.
        run = Measurement(clients, start.params, int(order.facts["steps"]), clients.pool, clients.pool, accuracy)
        return self._trained(Network(start.layout, trained_alone([run])[0][0]))

    def round(self, order: Order) -> ReplyContent:
        """Train the submodel that was sent."""
        start = network_of(order.arrays)
        clients = self._clients(start.layout)
        received = start.params.unsqueeze(0)
        job = Job(clients, received, None, (clients.local_steps,), "batches", order.round)
        trained = train([job])[0].models
        content = self._trained(Network(start.layout, trained[0]))
        if order.facts.get(LOCAL_LOSS):
            losses = evaluation.mean_losses(start.layout, received, clients.pool, list(clients.rows))
            content.arrays[LOCAL_LOSS] = losses.double().numpy()
        if wanted := order.facts.get(BATCH_LOSSES):
            model = received if wanted == "received" else trained
            losses = evaluation.batch_losses(start.layout, model, clients.pool, list(clients.rows))[0]
            content.arrays[BATCH_LOSSES] = losses.double().numpy()
        return content

    def reward(self, order: Order) -> ReplyContent:
        """Save the site's reward (after the extra epoch that some methods add) and its receipt, once that is checked
        against what this site has seen."""
        network = network_of(order.arrays)
        self._history.check_receipt(self.settings.name, order.facts["receipt"])
        if order.facts["receipt"]["body"]["sha256"] != digest(order.arrays):
            raise FedsacError("the receipt is for another model than the one that came with it")
        if order.facts.get("extra_epoch"):
            clients = self._clients(network.layout)
            everything = torch.ones(1, network.layout.neurons, dtype=torch.bool)
            given = Assignment(network.params.unsqueeze(0), everything, extra_epoch=True)
            network = Network(network.layout, personalised([(clients, given, order.round)])[0][0])
        terms = self._terms
        body = order.facts["receipt"]["body"]
        facts = {"client": self.settings.name, "method": body["method"], "round": order.round}
        schema = terms.schema
        file = ModelFile(
            network, schema.classes, schema.features, schema.top, terms.mean, terms.deviation, facts
        ).pack()
        write_atomic(self.settings.path / "reward.safetensors", file)
        write_json(self.settings.path / "receipt.json", dict(order.facts["receipt"]))
        return ReplyContent({"kept": True})

    def _trained(self, network: Network) -> ReplyContent:
        if not bool(network.params.isfinite().all()):
            raise FedsacError("diverged: training ended in NaN or infinity")
        return ReplyContent(arrays=arrays_of(network))

    @cached_property
    def _history(self) -> History:
        return History(self.settings.path)

    @cached_property
    def _terms(self) -> JoinTerms:
        path = self.settings.path / "agreed.json"
        if not path.exists():
            raise FedsacError("not joined: this site has not joined the federation yet")
        return JoinTerms.of(read_json(path))

    @cached_property
    def _prepared(self) -> Prepared:
        terms, own = self._terms, self.settings
        table = read_data(own.data, own.path, own.label)
        data = site_data(table, terms.schema, terms.channel, f"{own.name}: {own.data}")
        rows = np.arange(len(data.y))
        dealt = Split(
            data, "silos", (own.name,), (rows,), rows[:0], data.x[:0], data.y[:0], terms.mean, terms.deviation
        )
        return prepare_split(Config(data=own.name, scene="silos", device=own.device, **terms.settings), dealt)

    def _clients(self, layout: Layout) -> Clients:
        """This site as the only client of a run, with a model of this layout."""
        c = self._prepared.clients
        return Clients(layout, c.names, c.rows, c.pool, c.lr, c.batch, c.local_steps, c.seed)
