"""Letting sites in: schemas held against each other, and what a site brings measured."""

from typing import Any

from fedsac.compute import evaluation
from fedsac.data.files.tables import Table
from fedsac.federation.asking import token
from fedsac.federation.data import schema_of
from fedsac.federation.folder import IN
from fedsac.federation.members import Member
from fedsac.federation.session import Session
from fedsac.federation.wire import Order, arrays_of, network_of, shapes
from fedsac.models.network import Network

MOST_SAMPLES = 10**12  # that a site may claim: larger counts would not weigh, but overflow
PAUSE_SECONDS = 5.0  # between two looks for sites


class Admission:
    """Takes new members into a session."""

    def __init__(self, session: Session) -> None:
        self._s = session

    def join(self) -> list[str]:
        """Ask those who are not members yet to join, and measure what they bring."""
        wanted = self._newcomers()
        if not self._s.members:
            self._await(wanted)
        names = sorted(wanted & self._s.link.present())
        if not names:
            return []
        joined = self._agree(names)
        if not joined:
            return []
        initial = arrays_of(Network(self._s.prepared.layout, self._s.prepared.initial))
        facts = {"steps": self._s.federation.config.alone()}
        orders = {name: Order("alone", self._s.run.round, token(), facts, initial) for name in joined}
        expected = {name: shapes(initial) for name in joined}
        answered = self._s.requests.ask(orders, expected, dict.fromkeys(joined, initial))
        for name, arrays in answered.arrays.items():
            self._measure(name, joined[name], network_of(arrays))
        for name, reason in answered.failed.items():
            if reason.startswith("diverged"):
                self._measure(name, joined[name], None)
        return [name for name in joined if name in self._s.members]

    def _newcomers(self) -> set[str]:
        limit = self._s.federation.aside_after
        return {
            name
            for name, site in self._s.federation.sites().items()
            if site["status"] == IN and name not in self._s.members and self._s.requests.refused.get(name, 0) < limit
        }

    def _await(self, wanted: set[str]) -> None:
        """Before the first round: until all sites are there, or for as long as `wait` says."""
        waited = 0.0
        while waited < self._s.federation.wait and (missing := wanted - self._s.link.present()):
            if not waited:
                self._s.say(f"waiting for {', '.join(sorted(missing))}")
            self._s.sleep(min(PAUSE_SECONDS, self._s.federation.wait))
            waited += PAUSE_SECONDS

    def _agree(self, names: list[str]) -> dict[str, int]:
        """Hold the schemas against each other: the sites that fit, with the number of samples that is fixed now."""
        orders = {name: Order("join", self._s.run.round, token(), self.terms) for name in names}
        answered = self._s.requests.ask(orders, {name: {} for name in names}, {})
        fit = {}
        for name, facts in answered.facts.items():
            samples = facts.get("samples")
            said, ours = facts.get("schema"), self.terms["schema"]
            if said != ours or type(samples) is not int or not 1 <= samples <= MOST_SAMPLES:
                self._s.requests.refuse(name, f"schema: {name} has {str(said)[:300]}, the federation {str(ours)[:300]}")
                continue
            fit[name] = samples
            self._s.ledger.append("joined", site=name, samples=samples, round=self._s.run.round)
        return fit

    @property
    def terms(self) -> dict[str, Any]:
        """What a site agrees to when it joins."""
        dealt, config = self._s.prepared.split, self._s.prepared.config
        data = dealt.data
        schema = schema_of(Table(data.x[:0], None, data.features, data.channel, data.top), data.classes)
        return {
            "schema": schema.as_dict() | {"features": list(schema.features), "classes": list(schema.classes)},
            "channel": data.channel.tolist(),
            "mean": dealt.mean.tolist(),
            "deviation": dealt.deviation.tolist(),
            "settings": {name: getattr(config, name) for name in ("seed", "lr", "batch", "local_steps", "dtype")},
        }

    def _measure(self, name: str, samples: int, network: Network | None) -> None:
        """A site's contribution: the score, on the coordinator's data, of the model it trained alone."""
        scores = [0.0, 0.0]
        if network is not None:
            prepared = self._s.prepared
            params = network.params.to(prepared.initial).unsqueeze(0)
            scores = [
                float(evaluation.evaluate(prepared.layout, params, None, judging, metric=prepared.metric)[0])
                for judging in (prepared.validation, prepared.test)
            ]
        self._s.members[name] = Member(samples, scores[0], scores[1], diverged=network is None)
        self._s.requests.refused.pop(name, None)
        self._s.ledger.append("contribution", site=name, validation=scores[0], test=scores[1], diverged=network is None)
        self._s.say(f"{name}: contribution {scores[0]:.4f} on {len(self._s.prepared.validation.y)} samples")

    def why_nobody(self) -> str:
        refusals = self._s.ledger.of_kind("refused")[-3:]
        said = "; ".join(f"{entry['body']['site']}: {entry['body']['reason']}" for entry in refusals)
        return said or "are the sites running?"
