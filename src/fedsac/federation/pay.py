"""Paying sites: rewards (submodels) delivered with signed receipts."""

import hashlib
from functools import cached_property
from pathlib import Path

from fedsac.atomic import write_atomic
from fedsac.federation.earning import earned, taking_part
from fedsac.federation.folder import REVOKED, TAKING_PART, Federation, read_json, write_json
from fedsac.federation.history import signed_receipt
from fedsac.federation.ledger import Entry, canonical
from fedsac.federation.networks import counts_of, file_network
from fedsac.federation.session import Session
from fedsac.federation.wire import Order, arrays_of, digest
from fedsac.models.files import ModelFile
from fedsac.runs.records import RoundScores, evaluate
from fedsac.runs.running import Running

POLL_SECONDS = 5.0  # between two attempts to deliver rewards


class Payer:
    """Pays sites. Every step may be repeated: a reward is written to the ledger once, and sent until the site has
    confirmed it. Until then the coordinator keeps it beside its receipt (`server/rewards`, `server/receipts`), so that
    whoever has left meanwhile can be paid later, or be handed the two files."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def pay(self, names: list[str]) -> None:
        """Write the rewards of these sites to the ledger and send them to those connected; revoked sites get none."""
        names = [name for name in names if self._not_revoked(name)]
        for name in names:
            self._save(name)
        self._deliver(names)

    def pay_those_who_left(self) -> None:
        """Send their rewards to sites that were not connected when they left, and are now."""
        refused, limit = self._session.requests.refused, self._session.federation.aside_after
        self._deliver([n for n in self.due() if n not in self._session.members and refused.get(n, 0) < limit])

    def wait_for_absent(self) -> None:
        """Deliver rewards to sites that were not connected, for at most `wait` seconds."""
        waited = 0.0
        while (due := self.due()) and waited < self._session.federation.wait:
            self._session.sleep(POLL_SECONDS)
            waited += POLL_SECONDS
            self._deliver(list(due))
        if due := self.due():
            rewards = self._session.federation.rewards
            self._session.say(
                f"not delivered: {', '.join(due)}; the same command delivers these rewards later, or hand over the "
                f"files in {rewards} and {rewards.with_name('receipts')}"
            )
        else:
            self._session.say("every reward is delivered")

    def due(self) -> dict[str, Entry]:
        """The line in the ledger about each reward that its site has not confirmed, by site, members or not."""
        ledger = self._session.ledger
        arrived = {(e["body"]["site"], e["body"]["sha256"]) for e in ledger.of_kind("delivered")}
        last = {entry["body"]["site"]: entry for entry in ledger.of_kind("reward")}
        return {
            name: entry
            for name, entry in sorted(last.items())
            if (name, entry["body"]["sha256"]) not in arrived and self._not_revoked(name)
        }

    def _not_revoked(self, name: str) -> bool:
        return bool(self._session.federation.sites()[name]["status"] != REVOKED)

    @cached_property
    def _run(self) -> Running:
        return earned(self._session)

    @cached_property
    def _scores(self) -> RoundScores:
        run = self._run
        return evaluate([run], [run.reward.models])[0]

    def _save(self, name: str) -> None:
        """Save a site's reward as it is now, and its receipt; the model comes first, so that no line of the ledger is
        without it."""
        federation, dealt = self._session.federation, self._session.prepared.split
        federation.rewards.mkdir(mode=0o700, exist_ok=True)
        arrays, data = self._session.reward_of(name, self._run), dealt.data
        facts = {"client": name, "method": federation.config.method, "round": self._session.run.round}
        units = self._session.units_of(name, self._run.reward)
        network = file_network(self._session.prepared.layout, units, arrays)
        file = ModelFile(network, data.classes, data.features, data.top, dealt.mean, dealt.deviation, facts, data.table)
        write_atomic(_model_path(federation, name), file.pack())
        key = (federation.server / "receipts.key").read_bytes()
        write_json(federation.receipts / f"{name}.json", signed_receipt(self._reward_entry(name, digest(arrays)), key))

    def _reward_entry(self, name: str, sha256: str) -> Entry:
        """The ledger's line about a site's current reward; written if there is none yet."""
        for entry in reversed(self._session.ledger.of_kind("reward")):
            if (entry["body"]["site"], entry["body"]["sha256"]) == (name, sha256):
                return entry
        run = self._run
        i, member = run.task.clients.index(name), self._session.members[name]
        submodel, reputations = run.reward_submodels[i], run.assignment.reputations
        return self._session.ledger.append(
            "reward",
            site=name,
            method=self._session.federation.config.method,
            round=run.round,
            contribution=member.validation,
            contribution_test=member.test,
            reputation=None if reputations is None else reputations[i],
            neurons=submodel.neurons,
            of_neurons=self._session.prepared.layout.neurons,
            parameters=submodel.parameters,
            metric=run.prepared.config.metric,
            accuracy_validation=self._scores.validation[i],
            accuracy_test=self._scores.test[i],
            extra_epoch=run.assignment.extra_epoch,
            samples=member.samples,
            taking_part=taking_part(run.records, name) if self._session.federation.pay == TAKING_PART else None,
            rounds=[record["round"] for record in run.records if name in record["answered"]],
            sha256=sha256,
        )

    def _deliver(self, names: list[str]) -> None:
        """Send sites that are connected their saved rewards and receipts, and log who confirmed."""
        federation, due = self._session.federation, self.due()
        present = self._session.link.present() if due else set()
        bodies = {name: due[name]["body"] for name in names if name in due and name in present}
        orders = {}
        for name, body in bodies.items():
            receipt = read_json(federation.receipts / f"{name}.json")
            network = ModelFile.load(_model_path(federation, name), federation.model or None).network
            units = counts_of(network, self._session.prepared.layout)
            facts = {"receipt": receipt, "extra_epoch": body["extra_epoch"], **units}
            arrays = arrays_of(network)
            token = hashlib.sha256(canonical(receipt)).hexdigest()
            orders[name] = Order("reward", body["round"], token, facts, arrays)
        answered = self._session.requests.ask(orders, {name: {} for name in orders}, {})
        for name in answered.facts:
            sha256, round = bodies[name]["sha256"], bodies[name]["round"]
            self._session.ledger.append("delivered", site=name, sha256=sha256, round=round)
            self._session.say(f"{name}: reward delivered")


def _model_path(federation: Federation, name: str) -> Path:
    return federation.rewards / f"{name}.safetensors"
