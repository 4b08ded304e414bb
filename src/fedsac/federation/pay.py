"""Paying sites: rewards (submodels) delivered with signed receipts."""

import hashlib
from functools import cached_property

from fedsac.federation.folder import REVOKED, write_json
from fedsac.federation.history import signed_receipt
from fedsac.federation.ledger import Entry, canonical
from fedsac.federation.session import Session
from fedsac.federation.wire import Order, digest
from fedsac.runs.records import RoundScores, evaluate

POLL_SECONDS = 5.0  # between two attempts to deliver rewards


class Payer:
    """Pays sites. Every step may be repeated: a reward is written to the ledger once, and sent until the site has
    confirmed it."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def pay(self, names: list[str]) -> None:
        """Write the rewards of these sites to the ledger and send them to those connected; revoked sites get none."""
        names = [name for name in names if self._not_revoked(name)]
        for name in names:
            self._reward_entry(name)
        self._deliver([name for name in names if name in self._session.link.present()])

    def wait_for_absent(self) -> None:
        """Deliver rewards to sites that were not connected, for at most `wait` seconds."""
        waited = 0.0
        while (left := self.undelivered()) and waited < self._session.federation.wait:
            self._session.sleep(POLL_SECONDS)
            waited += POLL_SECONDS
            self._deliver([name for name in left if name in self._session.link.present()])
        if left := self.undelivered():
            self._session.say(f"not delivered: {', '.join(left)}; the same command delivers these rewards later")
        else:
            self._session.say("every reward is delivered")

    def undelivered(self) -> list[str]:
        """Members that have not confirmed their reward."""
        arrived = {(e["body"]["site"], e["body"]["sha256"]) for e in self._session.ledger.of_kind("delivered")}
        due = [name for name in sorted(self._session.members) if self._not_revoked(name)]
        return [name for name in due if (name, self._hash(name)) not in arrived]

    def _not_revoked(self, name: str) -> bool:
        return bool(self._session.federation.sites()[name]["status"] != REVOKED)

    @cached_property
    def _scores(self) -> RoundScores:
        run = self._session.run
        return evaluate([run], [run.reward.models])[0]

    def _hash(self, name: str) -> str:
        return digest(self._session.reward_of(name))

    def _reward_entry(self, name: str) -> Entry:
        """The ledger's line about a site's current reward; written if there is none yet."""
        for entry in reversed(self._session.ledger.of_kind("reward")):
            if (entry["body"]["site"], entry["body"]["sha256"]) == (name, self._hash(name)):
                return entry
        run = self._session.run
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
            rounds=[record["round"] for record in run.records if name in record["answered"]],
            sha256=self._hash(name),
        )

    def _deliver(self, names: list[str]) -> None:
        """Send sites their rewards and receipts, and log who confirmed."""
        orders = {}
        key = (self._session.federation.server / "receipts.key").read_bytes()
        for name in names:
            receipt = signed_receipt(self._reward_entry(name), key)
            write_json(self._session.federation.receipts / f"{name}.json", receipt)
            facts = {"receipt": receipt, "extra_epoch": self._session.run.assignment.extra_epoch}
            arrays = self._session.reward_of(name)
            token = hashlib.sha256(canonical(receipt)).hexdigest()
            orders[name] = Order("reward", self._session.run.round, token, facts, arrays)
        answered = self._session.requests.ask(orders, {name: {} for name in orders}, {})
        for name in answered.facts:
            self._session.ledger.append("delivered", site=name, sha256=self._hash(name), round=self._session.run.round)
            self._session.say(f"{name}: reward delivered")
