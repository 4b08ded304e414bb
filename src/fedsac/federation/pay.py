"""Paying sites: rewards (submodels) delivered with signed receipts; `verify` checks receipts against the ledger."""

import hashlib
from functools import cached_property
from typing import Any

from fedsac.errors import FedsacError
from fedsac.federation import identity
from fedsac.federation.folder import REVOKED, Federation, read_json, write_json
from fedsac.federation.ledger import Entry, canonical, read
from fedsac.federation.session import Session
from fedsac.federation.wire import Order, arrays_of, digest
from fedsac.models.files import ModelFile
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
        for name in names:
            receipt = self._receipt(self._reward_entry(name))
            write_json(self._session.federation.receipts / f"{name}.json", receipt)
            facts = {"receipt": receipt, "extra_epoch": self._session.run.assignment.extra_epoch}
            arrays = self._session.reward_of(name)
            token = hashlib.sha256(canonical(receipt)).hexdigest()
            orders[name] = Order("reward", self._session.run.round, token, facts, arrays)
        answered = self._session.requests.ask(orders, {name: {} for name in orders}, {})
        for name in answered.facts:
            self._session.ledger.append("delivered", site=name, sha256=self._hash(name), round=self._session.run.round)
            self._session.say(f"{name}: reward delivered")

    def _receipt(self, entry: Entry) -> dict[str, Any]:
        """A line of the ledger, signed by the coordinator."""
        line = {"seq": entry["seq"], "hash": entry["hash"], "body": entry["body"]}
        key = (self._session.federation.server / "receipts.key").read_bytes()
        return line | {"signature": identity.sign(key, hashlib.sha256(canonical(line)).digest())}


def verify(federation: Federation) -> list[str]:
    """Check the ledger, all receipts and the rewards beside them: a line on each that is right, `FedsacError` at the
    first that is wrong."""
    entries = read(federation.ledger)
    lines = [f"ledger: {len(entries)} lines, and the chain holds"]
    public = (federation.server / "receipts.pub").read_bytes()
    paths = sorted(federation.receipts.glob("*.json")) if federation.receipts.exists() else []
    paths += sorted(site / "receipt.json" for site in federation.path.iterdir() if (site / "receipt.json").exists())
    for path in paths:
        receipt = read_json(path)
        body = {name: receipt.get(name) for name in ("seq", "hash", "body")}
        if not identity.signed(public, hashlib.sha256(canonical(body)).digest(), str(receipt.get("signature"))):
            raise FedsacError(f"{path}: not signed by the coordinator, or changed since")
        if not 0 <= int(receipt["seq"]) < len(entries):
            raise FedsacError(f"{path}: the ledger has no line {receipt['seq']}; its end was cut off")
        entry = entries[receipt["seq"]]
        if entry["hash"] != receipt["hash"] or entry["body"] != receipt["body"]:
            raise FedsacError(f"{path}: the ledger's line {receipt['seq']} says something else")
        lines.append(f"{path.relative_to(federation.path)}: agrees with line {receipt['seq'] + 1} of the ledger")
        reward = path.with_name("reward.safetensors")
        if path.name == "receipt.json" and reward.exists() and not receipt["body"]["extra_epoch"]:
            if digest(arrays_of(ModelFile.load(reward).network)) != receipt["body"]["sha256"]:
                raise FedsacError(f"{reward}: not the model that the receipt is for")
            lines.append(f"{reward.relative_to(federation.path)}: the model that the receipt is for")
    return lines
