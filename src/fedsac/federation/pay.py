"""The end: what each site has earned, delivered with a receipt, and the run's folder completed."""

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


class Payer:
    """Pays sites. Every step can be done again: a reward is written down once, and delivered until it has arrived."""

    def __init__(self, session: Session) -> None:
        self._s = session

    def pay(self, names: list[str]) -> None:
        """Write down what these sites have earned, and send it to those who are there; not to whom was revoked."""
        names = [name for name in names if self._trusted(name)]
        for name in names:
            self._entry(name)
        self._deliver([name for name in names if name in self._s.link.present()])

    def wait_for_absent(self) -> None:
        """Deliver to those who were away, as long as `wait` says."""
        waited = 0.0
        while (left := self.undelivered()) and waited < self._s.federation.wait:
            self._s.sleep(5.0)
            waited += 5.0
            self._deliver([name for name in left if name in self._s.link.present()])
        if left := self.undelivered():
            self._s.say(f"not delivered: {', '.join(left)}; their rewards wait for the same command")
        else:
            self._s.say("every reward is delivered")

    def undelivered(self) -> list[str]:
        """Members whose reward has not arrived."""
        arrived = {(e["body"]["site"], e["body"]["sha256"]) for e in self._s.ledger.of_kind("delivered")}
        due = [name for name in sorted(self._s.members) if self._trusted(name)]
        return [name for name in due if (name, self._hash(name)) not in arrived]

    def _trusted(self, name: str) -> bool:
        return bool(self._s.federation.sites()[name]["status"] != REVOKED)

    @cached_property
    def _scores(self) -> RoundScores:
        run = self._s.run
        return evaluate([run], [run.assignment.models])[0]

    def _hash(self, name: str) -> str:
        return digest(self._s.submodel_of(name))

    def _entry(self, name: str) -> Entry:
        """The ledger's line about this reward: the one there is, or a new one."""
        for entry in reversed(self._s.ledger.of_kind("reward")):
            if (entry["body"]["site"], entry["body"]["sha256"]) == (name, self._hash(name)):
                return entry
        run = self._s.run
        i, member = run.task.clients.index(name), self._s.members[name]
        submodel, reputations = run.submodels[i], run.assignment.reputations
        return self._s.ledger.append(
            "reward",
            site=name,
            method=self._s.federation.config.method,
            round=run.round,
            contribution=member.validation,
            contribution_test=member.test,
            reputation=None if reputations is None else reputations[i],
            neurons=submodel.neurons,
            of_neurons=self._s.prepared.layout.neurons,
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
        orders = {}
        for name in names:
            receipt = self._receipt(self._entry(name))
            write_json(self._s.federation.receipts / f"{name}.json", receipt)
            facts = {"receipt": receipt, "extra_epoch": self._s.run.assignment.extra_epoch}
            arrays = self._s.submodel_of(name)
            token = hashlib.sha256(canonical(receipt)).hexdigest()
            orders[name] = Order("reward", self._s.run.round, token, facts, arrays)
        answered = self._s.requests.ask(orders, {name: {} for name in orders}, {})
        for name in answered.facts:
            self._s.ledger.append("delivered", site=name, sha256=self._hash(name), round=self._s.run.round)
            self._s.say(f"{name}: reward delivered")

    def _receipt(self, entry: Entry) -> dict[str, Any]:
        """A line of the ledger, signed by the coordinator."""
        said = {"seq": entry["seq"], "hash": entry["hash"], "body": entry["body"]}
        key = (self._s.federation.server / "receipts.key").read_bytes()
        return said | {"signature": identity.sign(key, hashlib.sha256(canonical(said)).digest())}


def verify(federation: Federation) -> list[str]:
    """What was found sound, line by line; `FedsacError` at the first thing that is not."""
    entries = read(federation.ledger)
    said = [f"ledger: {len(entries)} lines, and the chain holds"]
    public = (federation.server / "receipts.pub").read_bytes()
    places = sorted(federation.receipts.glob("*.json")) if federation.receipts.exists() else []
    places += sorted(path / "receipt.json" for path in federation.path.iterdir() if (path / "receipt.json").exists())
    for place in places:
        receipt = read_json(place)
        body = {name: receipt.get(name) for name in ("seq", "hash", "body")}
        if not identity.signed(public, hashlib.sha256(canonical(body)).digest(), str(receipt.get("signature"))):
            raise FedsacError(f"{place}: not signed by the coordinator, or changed since")
        if not 0 <= int(receipt["seq"]) < len(entries):
            raise FedsacError(f"{place}: the ledger has no line {receipt['seq']}; its end was cut off")
        entry = entries[receipt["seq"]]
        if entry["hash"] != receipt["hash"] or entry["body"] != receipt["body"]:
            raise FedsacError(f"{place}: the ledger's line {receipt['seq']} says something else")
        said.append(f"{place.relative_to(federation.path)}: agrees with line {receipt['seq'] + 1} of the ledger")
        reward = place.with_name("reward.safetensors")
        if place.name == "receipt.json" and reward.exists() and not receipt["body"]["extra_epoch"]:
            if digest(arrays_of(ModelFile.load(reward).network)) != receipt["body"]["sha256"]:
                raise FedsacError(f"{reward}: not the model that the receipt is for")
            said.append(f"{reward.relative_to(federation.path)}: the model that the receipt is for")
    return said
