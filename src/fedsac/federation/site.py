"""A site: reads its own data, trains the models it is sent, and saves its reward. Nothing here depends on Flower.

Every message may be handled by a new process, so what a site must remember is in its folder: `agreed.json`, the terms
it joined on; `heads.jsonl`, what it has seen of the ledger; at the end `reward.safetensors` and `receipt.json`.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsac.atomic import write_atomic
from fedsac.clients.population import Clients
from fedsac.clients.rounds import personalised
from fedsac.clients.training import Job, rows_drawn, train
from fedsac.compute import evaluation
from fedsac.compute.modules.inputs import inputs
from fedsac.contributions.measurement import Measurement
from fedsac.contributions.standalone import trained_alone
from fedsac.core.metrics import accuracy
from fedsac.core.module_layout import AnyLayout, ModuleLayout
from fedsac.data.concerns import concerns_of
from fedsac.data.dataset import DataSet
from fedsac.data.files.tables import Table
from fedsac.data.split import Split
from fedsac.errors import FedsacError
from fedsac.federation import identity
from fedsac.federation.data import agreed_table, read_data, read_raw_data, schema_of, site_data
from fedsac.federation.declining import DECLINED, DIVERGED, FAILED, OWN_NETWORK, VERSION, DeclinedError
from fedsac.federation.disclosure import disclosed
from fedsac.federation.folder import SiteSettings, private_file, read_json, write_json
from fedsac.federation.guard import Raw, Reply
from fedsac.federation.history import History, HistoryError
from fedsac.federation.joining import require_signer
from fedsac.federation.limits import check_count, check_model, check_settings, check_steps, check_wire
from fedsac.federation.module_disclosure import module_disclosed
from fedsac.federation.networks import UNITS, check_structure, file_network, first_units, received_vector
from fedsac.federation.privacy import PrivateTraining, spend, train_privately
from fedsac.federation.terms import JoinTerms, Received
from fedsac.federation.wire import BATCH_LOSSES, LOCAL_LOSS, Order, digest, network_of
from fedsac.methods.base import Assignment
from fedsac.models.files import ModelFile
from fedsac.models.network import Network
from fedsac.models.start import with_statistics
from fedsac.models.table import TableSchema
from fedsac.runs.network import STATISTICS_SAMPLES
from fedsac.runs.prepared import Prepared
from fedsac.runs.setup import prepare_split
from fedsac.version import __version__

SITE_LOG = "site.log"
log = logging.getLogger("fedsac.site")


@dataclass(frozen=True)
class ReplyContent:
    """The content of a reply."""

    facts: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)


class Site:
    """What a site does with an order, by the settings in its folder."""

    def __init__(self, folder: Path) -> None:
        self.settings = SiteSettings.load(folder)
        if self.settings.threads:
            torch.set_num_threads(self.settings.threads)

    def answer(self, order: Order) -> Reply:
        """Carry out an order and return the signed reply. An order that this site does not carry out is declined, with
        a code; the reason is written to the site's log and nowhere else."""
        actions: dict[str, Callable[[Order], ReplyContent]] = {
            "join": self.join,
            "alone": self.alone,
            "round": self.round,
            "reward": self.reward,
        }
        try:
            check_wire(order)
            self._history.take(self.settings.name, order)
            if order.kind not in actions:
                raise DeclinedError("order", f"there is no order {order.kind!r}; does this site need a newer fedsac?")
            content = actions[order.kind](order)
        except HistoryError as error:
            content = self._declined(order, "history", str(error))
        except DeclinedError as error:
            content = self._declined(order, error.code, str(error), error.own)
        except Exception as error:
            log.debug("what went wrong", exc_info=error)
            content = self._declined(order, FAILED, f"{type(error).__name__}: {error}")
        raw = {name: Raw.of(array) for name, array in content.arrays.items()}
        head = self._history.head
        reply = Reply(self.settings.name, order.kind, order.round, order.token, content.facts, raw, head=head)
        signature = identity.sign((self.settings.path / "key").read_bytes(), reply.digest())
        return replace(reply, signature=signature)

    def join(self, order: Order) -> ReplyContent:
        """Check that the site's data has the federation's schema, and save the terms."""
        terms = JoinTerms.of(dict(order.facts))
        agreed = self.settings.path / "agreed.json"
        if agreed.exists() and _without_version(read_json(agreed)) != dict(order.facts):
            raise DeclinedError("terms", f"other terms than those in {agreed}; delete that file to agree to new ones")
        if terms.sizes is None and terms.network is None and not agreed.exists():
            # Else no model that is sent later could be another one.
            raise DeclinedError("model", "the terms do not say which model; does the coordinator need a newer fedsac?")
        table, data = self._data(terms)
        for concern in concerns_of(data):
            self._log(f"warning: {concern}")
        check_settings(self.settings, terms.settings, len(data.y))
        if terms.network is not None:
            self._prepare(terms)
        write_json(agreed, dict(order.facts))
        own = schema_of(table, terms.schema.classes).as_dict() | {"features": terms.schema.features}
        return ReplyContent({"schema": own, "samples": len(data.y), "fedsac": __version__})

    def alone(self, order: Order) -> ReplyContent:
        """Train a model alone from the common initial model; the coordinator measures the site's contribution by it."""
        start, steps = self._received(order), int(order.facts["steps"])
        check_steps(self.settings, steps)
        clients = self._training_clients(start.layout)
        if self.settings.private:
            return self._trained(start, self._privately(start, clients, steps))
        if start.neurons is not None:
            raise DeclinedError("model", "a submodel came to train alone, and the whole model was agreed on")
        # The pool stands in for validation and test set: the coordinator evaluates, on its own data.
        run = Measurement(clients, start.params, steps, clients.pool, clients.pool, accuracy)
        return self._trained(start, trained_alone([run])[0][0])

    def round(self, order: Order) -> ReplyContent:
        """Train the submodel that was sent."""
        start = self._received(order)
        clients = self._training_clients(start.layout)
        if self.settings.private:
            if order.facts.get(LOCAL_LOSS) or order.facts.get(BATCH_LOSSES):
                raise DeclinedError("losses", "losses are asked for, and this site trains with differential privacy")
            return self._trained(start, self._privately(start, clients, clients.local_steps))
        received = start.params.unsqueeze(0)
        mask = None if start.neurons is None else start.neurons.unsqueeze(0)
        progress = order.round / clients.rounds
        job = Job(clients, received, mask, (clients.local_steps,), "batches", order.round, progress)
        trained = train([job])[0].models
        content = self._trained(start, trained[0], job)
        layout = self._scored_layout(start.layout)
        if order.facts.get(LOCAL_LOSS):
            losses = evaluation.mean_losses(layout, received, clients.pool, list(clients.rows))
            content.arrays[LOCAL_LOSS] = losses.double().numpy()
        if wanted := order.facts.get(BATCH_LOSSES):
            model = received if wanted == "received" else trained
            losses = evaluation.batch_losses(layout, model, clients.pool, list(clients.rows))[0]
            content.arrays[BATCH_LOSSES] = losses.double().numpy()
        return content

    def reward(self, order: Order) -> ReplyContent:
        """Save the site's reward (after the extra epoch that some methods add) and its receipt, once that is checked
        against what this site has seen."""
        start = self._received(order)
        try:
            self._history.check_receipt(self.settings.name, order.facts["receipt"])
        except HistoryError as error:
            raise DeclinedError("receipt", str(error)) from None
        if order.facts["receipt"]["body"]["sha256"] != digest(order.arrays):
            raise DeclinedError("receipt", "the receipt is for another model than the one that came with it")
        arrays = dict(order.arrays)
        if order.facts.get("extra_epoch"):
            clients = self._clients(start.layout)
            everything = torch.ones(start.layout.neurons, dtype=torch.bool, device=start.params.device)
            mask = everything if start.neurons is None else start.neurons
            given = Assignment(start.params.unsqueeze(0), mask.unsqueeze(0), extra_epoch=True)
            arrays = start.arrays(personalised([(clients, given, order.round)])[0][0])
        network = file_network(start.layout, order.facts, arrays)
        terms = self._terms
        body = order.facts["receipt"]["body"]
        facts = {"client": self.settings.name, "method": body["method"], "round": order.round}
        schema = terms.schema
        file = ModelFile(
            network, schema.classes, schema.features, schema.top, terms.mean, terms.deviation, facts, self._corrected()
        ).pack()
        write_atomic(self.settings.path / "reward.safetensors", file)
        write_json(self.settings.path / "receipt.json", dict(order.facts["receipt"]))
        return ReplyContent({"kept": True})

    def _received(self, order: Order) -> Received:
        """The model in an order: a network of its own, or of the network that this site builds some units."""
        if self._terms.network is None:
            network = network_of(order.arrays)
            return Received(network.layout, network.params)
        layout, like = self._prepared.layout, self._prepared.initial
        assert isinstance(layout, ModuleLayout)
        units = first_units(layout, order.facts[UNITS])
        params = received_vector(layout, units, order.arrays, like)
        return Received(layout, params, None if bool(units.all()) else units.to(like.device))

    def _trained(self, start: Received, trained: Tensor, job: Job | None = None) -> ReplyContent:
        """A model that was trained from `start` (by a job: on the rows that it draws, else on all) as it may leave the
        site."""
        if not bool(trained.isfinite().all()):
            raise DeclinedError(DIVERGED, "training ended in NaN or infinity")
        least_rows, blur = self.settings.least_rows, self.settings.blur
        if not self.settings.private and (least_rows or blur):  # with differential privacy, all is hidden already
            rows = self._rows(job)
            if isinstance(start.layout, ModuleLayout):
                pool = self._prepared.clients.pool
                samples = inputs(start.layout, pool, rows, 0, trained.dtype), pool.y[rows].long()
                limits = least_rows, blur
                trained = module_disclosed(start.layout, (start.params, trained), start.neurons, samples, limits)
            else:
                before, after = Network(start.layout, start.params), Network(start.layout, trained)
                trained = disclosed(before, after, self._inputs(rows), least_rows, blur).params
        return ReplyContent(arrays=start.arrays(trained))

    def _rows(self, job: Job | None) -> Tensor:
        """The rows that a job draws; all of the site's without one."""
        pool = self._prepared.clients.pool
        return torch.arange(len(pool.y)) if job is None else torch.from_numpy(rows_drawn(job)[0])

    def _inputs(self, rows: Tensor) -> Tensor:
        """The normalised inputs [rows, features]."""
        pool = self._prepared.clients.pool
        return (pool.x[rows] * pool.scale + pool.shift).to(self._prepared.initial)

    def _scored_layout(self, layout: AnyLayout) -> AnyLayout:
        """The layout to compute losses with: a site has no validation data, so batch norm has the statistics of its
        own samples."""
        if not isinstance(layout, ModuleLayout) or layout.recipe.batch_norm != "validation":
            return layout
        pool, few = self._prepared.clients.pool, torch.arange(len(self._prepared.clients.pool.y))[:STATISTICS_SAMPLES]
        return with_statistics(layout, inputs(layout, pool, few, 0, self._prepared.initial.dtype))

    def _privately(self, start: Received, clients: Clients, steps: int) -> Tensor:
        if isinstance(start.layout, ModuleLayout):
            raise DeclinedError("private", f"{start.layout.named} came, and this site trains with differential privacy")
        own, samples = self.settings, len(clients.pool.y)
        total = spend(own, samples, clients.batch, steps)
        self._log(f"epsilon {total:.3f} at delta {own.delta:g} is spent")
        how = PrivateTraining(steps, clients.batch, clients.lr, own.clip, own.noise)
        network = Network(start.layout, start.params)
        return train_privately(network, self._inputs(self._rows(None)), clients.pool.y.long(), how).params

    def _declined(self, order: Order, code: str, why: str, own: str | None = None) -> ReplyContent:
        self._log(f"declined {order.kind!r} of round {order.round + 1} ({code}): {' '.join(why.split())}")
        more = ({} if own is None else {OWN_NETWORK: own}) | ({"fedsac": __version__} if code == VERSION else {})
        return ReplyContent({DECLINED: code} | more)

    def _log(self, text: str) -> None:
        """Write a line to the site's log, which the site's process has set up, or to the file where there is none."""
        log.warning(text)
        if logging.getLogger("fedsac").handlers:
            return
        with private_file(self.settings.path / SITE_LOG).open("a", encoding="utf-8") as file:
            file.write(f"{datetime.now(UTC).isoformat(timespec='seconds')} {text}\n")

    @cached_property
    def _history(self) -> History:
        require_signer(self.settings)
        return History(self.settings.path)

    @cached_property
    def _terms(self) -> JoinTerms:
        path = self.settings.path / "agreed.json"
        if not path.exists():
            raise DeclinedError("not joined", "this site has not joined the federation yet")
        return JoinTerms.of(read_json(path))

    @cached_property
    def _prepared(self) -> Prepared:
        return self._prepare(self._terms)

    def _prepare(self, terms: JoinTerms) -> Prepared:
        """The site's data and, where it is no plain perceptron, the network that it builds itself."""
        own, data = self.settings, self._data(terms)[1]
        check_settings(own, terms.settings, len(data.y))
        rows = np.arange(len(data.y))
        dealt = Split(
            data, "silos", (own.name,), (rows,), rows[:0], data.x[:0], data.y[:0], terms.mean, terms.deviation
        )
        try:
            made = prepare_split(terms.config(own), dealt)
        except FedsacError as error:
            if terms.network is None or isinstance(error, DeclinedError):
                raise
            raise DeclinedError("network", str(error)) from None
        if terms.network is not None:
            check_structure(made.layout, terms.network)
        return made

    def _data(self, terms: JoinTerms) -> tuple[Table, DataSet]:
        """The site's data as it is, and in the federation's order."""
        own = self.settings
        try:
            table = self._table(terms)
        except FedsacError as error:
            raise DeclinedError("data" if terms.table is None else "schema", str(error)) from None
        try:
            return table, site_data(table, terms.schema, terms.channel, f"{own.name}: {own.data}")
        except FedsacError as error:
            raise DeclinedError("schema", str(error)) from None

    def _table(self, terms: JoinTerms) -> Table:
        own = self.settings
        if terms.table is None:
            return read_data(own.data, own.path, own.label)
        return read_raw_data(own.data, own.path, agreed_table(own.path, terms.table), own.name)

    def _corrected(self) -> TableSchema | None:
        """The federation's schema of tables with this site's own corrections, which never leave it."""
        agreed, own = self._terms.table, self.settings
        return None if agreed is None else agreed_table(own.path, agreed).without_silos(but=own.name)

    def _training_clients(self, layout: AnyLayout) -> Clients:
        """This site as the only client, if it trains such a model, and not more often than it wants to."""
        if self._terms.sizes is not None and not isinstance(layout, ModuleLayout):
            check_model(layout, self._terms.sizes)
        check_count(self.settings, sum(said["kind"] in ("alone", "round") for said in self._history.statements))
        return self._clients(layout)

    def _clients(self, layout: AnyLayout) -> Clients:
        """This site as the only client of a run, with a model of this layout."""
        return replace(self._prepared.clients, layout=layout)


def _without_version(content: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in content.items() if name != "format_version"}
