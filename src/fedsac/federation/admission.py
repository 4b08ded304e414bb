"""Admitting sites: compare their schema with the federation's, and measure their contribution."""

from typing import Any

import torch
from torch import Tensor

from fedsac.compute import evaluation
from fedsac.contributions.standalone import errors_on_validation
from fedsac.core.metrics import auc
from fedsac.core.module_layout import ModuleLayout
from fedsac.data.files.tables import Table
from fedsac.federation.asking import token
from fedsac.federation.data import schema_of
from fedsac.federation.declining import DIVERGED, version_said
from fedsac.federation.folder import ACTIVE
from fedsac.federation.members import Member
from fedsac.federation.networks import network_terms, training_settings, unit_counts
from fedsac.federation.session import Session
from fedsac.federation.wire import Order, merged, shapes, submodel
from fedsac.runs.hardening import admitted

MAX_SAMPLES = 10**12  # that a site may claim; larger numbers would overflow where methods weight clients by samples
SWAPPED_AUC = 0.3  # on V, of a model that has learned labels the wrong way round
POLL_SECONDS = 5.0  # between two checks which sites are connected


class Admission:
    """Admits new members to a session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def join(self) -> list[str]:
        """Ask all connected sites that are not members yet to join, and measure their contributions; returns who
        joined."""
        wanted = self._newcomers()
        if not self._session.members:
            self._wait_for(wanted)
        names = sorted(wanted & self._session.link.present())
        if not names:
            return []
        joined = self._check_schemas(names)
        if not joined:
            return []
        prepared = self._session.prepared
        everything = torch.ones(prepared.layout.neurons, dtype=torch.bool, device=prepared.initial.device)
        initial = submodel(prepared.layout, prepared.initial, everything)
        facts = {"steps": self._session.federation.config.alone()} | unit_counts(prepared.layout, everything)
        orders = {name: Order("alone", self._session.run.round, token(), facts, initial) for name in joined}
        expected = {name: shapes(initial) for name in joined}
        answered = self._session.requests.ask(orders, expected, dict.fromkeys(joined, initial))
        models = {}
        for name, arrays in answered.arrays.items():
            models[name] = merged(prepared.layout, prepared.initial, everything, arrays)
            self._measure(name, joined[name], models[name])
        for name, reason in answered.failed.items():
            if reason.startswith(DIVERGED):
                self._measure(name, joined[name], None)
        for name, reason in admitted(self._session.run, {name: models[name] for name in sorted(models)}).items():
            self._session.ledger.append("copy", site=name, reason=reason)
            self._session.say(f"{name} counts as nothing: {reason}")
        return [name for name in joined if name in self._session.members]

    def _newcomers(self) -> set[str]:
        """Sites that are to take part and are not members yet, without those refused too often."""
        limit = self._session.federation.aside_after
        return {
            name
            for name, site in self._session.federation.sites().items()
            if site["status"] == ACTIVE
            and name not in self._session.members
            and self._session.requests.refused.get(name, 0) < limit
        }

    def _wait_for(self, wanted: set[str]) -> None:
        """Before the first round: wait until all these sites are connected, at most `wait` seconds."""
        waited = 0.0
        while waited < self._session.federation.wait and (missing := wanted - self._session.link.present()):
            if not waited:
                self._session.say(f"waiting for {', '.join(sorted(missing))}")
            self._session.sleep(min(POLL_SECONDS, self._session.federation.wait))
            waited += POLL_SECONDS

    def _check_schemas(self, names: list[str]) -> dict[str, int]:
        """Ask sites for their schema: returns those whose schema is the federation's, with their number of samples,
        which stays fixed from now on."""
        orders = {name: Order("join", self._session.run.round, token(), self.terms) for name in names}
        answered = self._session.requests.ask(orders, {name: {} for name in names}, {})
        matching = {}
        for name, facts in answered.facts.items():
            samples = facts.get("samples")
            theirs, ours = facts.get("schema"), self.terms["schema"]
            if theirs != ours or type(samples) is not int or not 1 <= samples <= MAX_SAMPLES:
                reason = f"schema: {name} has {str(theirs)[:300]}, the federation {str(ours)[:300]}"
                self._session.requests.refuse(name, reason)
                continue
            matching[name] = samples
            runs = version_said(facts.get("fedsac"))
            self._session.ledger.append(
                "joined", site=name, samples=samples, round=self._session.run.round, fedsac=runs
            )
        return matching

    @property
    def terms(self) -> dict[str, Any]:
        """What a site is sent when it joins: the schema, the normalisation and the training settings."""
        dealt, config = self._session.prepared.split, self._session.prepared.config
        data, layout = dealt.data, self._session.prepared.layout
        schema = schema_of(Table(data.x[:0], None, data.features, data.channel, data.top), data.classes)
        terms = {
            "schema": schema.as_dict() | {"features": list(schema.features), "classes": list(schema.classes)},
            "channel": data.channel.tolist(),
            "mean": dealt.mean.tolist(),
            "deviation": dealt.deviation.tolist(),
            "settings": training_settings(config, layout),
        }
        if data.table is not None:
            terms |= {"table": data.table.as_dict(), "table_sha256": data.table.sha256}
        if isinstance(layout, ModuleLayout):
            return terms | {"network": network_terms(layout)}
        return terms | {"sizes": list(layout.sizes)}

    def _measure(self, name: str, samples: int, trained: Tensor | None) -> None:
        """Record a site's contribution: the score on the coordinator's data of the model that it trained alone
        (None: training diverged)."""
        scores: list[float] = [0.0, 0.0]
        error: float | None = 0.0
        if trained is not None:
            prepared = self._session.prepared
            params = trained.unsqueeze(0)
            on_v, on_test = (
                evaluation.evaluate(prepared.layout, params, None, test_set, metric=prepared.metric)[0]
                for test_set in (prepared.validation, prepared.test)
            )
            scores = [float(on_v), float(on_test)]
            v, metric, seed = prepared.validation, prepared.metric, prepared.config.seed
            errors = errors_on_validation(prepared.layout, params, v, on_v, metric, seed)
            error = None if errors is None else float(errors)
            self._warn(name, float(evaluation.evaluate(prepared.layout, params, None, v, metric=auc)[0]))
        self._session.members[name] = Member(samples, scores[0], scores[1], diverged=trained is None, error=error)
        self._session.requests.refused.pop(name, None)
        self._session.ledger.append(
            "contribution", site=name, validation=scores[0], test=scores[1], diverged=trained is None
        )
        self._session.say(f"{name}: contribution {scores[0]:.4f} on {len(self._session.prepared.validation.y)} samples")

    def _warn(self, name: str, ranked: float) -> None:
        """Say so where what a site learned is the opposite of what V shows, by the AUC on V."""
        if ranked < SWAPPED_AUC:
            self._session.say(
                f"warning: {name}: a model of its data has an AUC of {ranked:.3f} on validation data, where guessing "
                "has 0.5: are its labels swapped?"
            )

    def recent_refusals(self) -> str:
        """The last refusals and their reasons, for the error that there are too few members."""
        refusals = self._session.ledger.of_kind("refused")[-3:]
        reasons = "; ".join(f"{entry['body']['site']}: {entry['body']['reason']}" for entry in refusals)
        return reasons or "are the sites running?"
