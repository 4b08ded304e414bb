"""The end: what each site has earned, delivered with a receipt, and the run's folder completed."""

import hashlib
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from fedsac.errors import FedsacError
from fedsac.federation import identity
from fedsac.federation.folder import REVOKED, Federation, read_json, write_json
from fedsac.federation.ledger import Entry, canonical, read
from fedsac.federation.members import contributions
from fedsac.federation.wire import Order, digest
from fedsac.models.files import ModelFile, serialised_bytes
from fedsac.models.network import Network
from fedsac.models.submodels import extract
from fedsac.runs.result import Result

if TYPE_CHECKING:
    from fedsac.federation.coordinator import Coordinator


class Payer:
    """Pays sites. Every step can be done again: a reward is written down once, and delivered until it has arrived."""

    def __init__(self, coordinator: "Coordinator") -> None:
        self.c = coordinator
        self.rewards = coordinator.method.rewards(coordinator.task, coordinator.state)

    def pay(self, names: list[str]) -> None:
        """Write down what these sites have earned, and send it to those who are there; not to whom was revoked."""
        names = [name for name in names if self._trusted(name)]
        for name in names:
            self._entry(name)
        self._deliver([name for name in names if name in self.c.link.present()])

    def wait_for_absent(self) -> None:
        """Deliver to those who were away, as long as `wait` says."""
        waited = 0.0
        while (left := self.undelivered()) and waited < self.c.federation.wait:
            self.c.sleep(5.0)
            waited += 5.0
            self._deliver([name for name in left if name in self.c.link.present()])
        if left := self.undelivered():
            self.c.say(f"not delivered: {', '.join(left)}; their rewards wait for the same command")
        else:
            self.c.say("every reward is delivered")

    def undelivered(self) -> list[str]:
        """Members whose reward has not arrived."""
        arrived = {(e["body"]["site"], e["body"]["sha256"]) for e in self.c.ledger.of_kind("delivered")}
        due = [name for name in sorted(self.c.members) if self._trusted(name)]
        return [name for name in due if (name, self._hash(name)) not in arrived]

    def _trusted(self, name: str) -> bool:
        return bool(self.c.federation.sites()[name]["status"] != REVOKED)

    @cached_property
    def _scores(self) -> tuple[list[float], list[float], float | None]:
        return self.c.evaluated(self.rewards)

    def _hash(self, name: str) -> str:
        return digest(self.c.part_of(self.rewards, name))

    def _entry(self, name: str) -> Entry:
        """The ledger's line about this reward: the one there is, or a new one."""
        for entry in reversed(self.c.ledger.of_kind("reward")):
            if (entry["body"]["site"], entry["body"]["sha256"]) == (name, self._hash(name)):
                return entry
        c, i = self.c, self.c.clients.index(name)
        member, held = c.members[name], c.prepared.layout.submodels(self.rewards.neurons)[i]
        reputations = self.rewards.reputations
        test, validation, _ = self._scores
        return c.ledger.append(
            "reward",
            site=name,
            method=c.federation.config.method,
            round=c.round,
            contribution=member.validation,
            contribution_test=member.test,
            reputation=None if reputations is None else reputations[i],
            neurons=held.neurons,
            of_neurons=c.prepared.layout.neurons,
            parameters=held.parameters,
            accuracy_validation=validation[i],
            accuracy_test=test[i],
            extra_epoch=self.rewards.extra_epoch,
            samples=member.samples,
            rounds=member.rounds,
            sha256=self._hash(name),
        )

    def _deliver(self, names: list[str]) -> None:
        orders = {}
        for name in names:
            receipt = self._receipt(self._entry(name))
            write_json(self.c.federation.receipts / f"{name}.json", receipt)
            facts = {"receipt": receipt, "extra_epoch": self.rewards.extra_epoch}
            arrays = self.c.part_of(self.rewards, name)
            orders[name] = Order("reward", self.c.round, hashlib.sha256(canonical(receipt)).hexdigest(), facts, arrays)
        answered = self.c.desk.ask(orders, {name: {} for name in orders}, {})
        for name in answered.facts:
            self.c.ledger.append("delivered", site=name, sha256=self._hash(name), round=self.c.round)
            self.c.say(f"{name}: reward delivered")

    def _receipt(self, entry: Entry) -> dict[str, Any]:
        """A line of the ledger, signed by the coordinator."""
        said = {"seq": entry["seq"], "hash": entry["hash"], "body": entry["body"]}
        key = (self.c.federation.server / "receipts.key").read_bytes()
        return said | {"signature": identity.sign(key, hashlib.sha256(canonical(said)).digest())}

    def finish(self) -> None:
        """The models, the summary and all a run's folder has at its end."""
        c, rewards = self.c, self.rewards
        layout, dtype = c.prepared.layout, c.prepared.initial.dtype
        held = layout.submodels(rewards.neurons)
        models = [rewards.models[i if len(rewards.models) > 1 else 0].cpu() for i in range(len(c.clients))]
        common = c.state.get("model")
        result = Result(
            config=c.prepared.config,
            clients=c.clients,
            samples=tuple(c.members[name].samples for name in c.clients),
            contributions=contributions(c.members),
            records=_comparable(c.records, c.clients),
            reputations=rewards.reputations,
            layout=layout,
            global_model=None if common is None else Network(layout, common.cpu()),
            reward_models=tuple(
                extract(Network(layout, model), rewards.neurons[i].cpu()) for i, model in enumerate(models)
            ),
            reward_bytes={
                "counted": torch.empty((), dtype=dtype).element_size() * sum(part.parameters for part in held),
                "serialised": sum(serialised_bytes(part, dtype) for part in held),
            },
            seconds=c.folder.seconds(),
            folder=c.folder.path,
            reported_on="validation" if c.prepared.split.test_is_validation else "test",
        )
        c.folder.finish(result, c.prepared.split)


def _comparable(records: list[dict[str, Any]], clients: tuple[str, ...]) -> tuple[dict[str, Any], ...]:
    """Rounds with as many rewards as there are members now: those before somebody came or left say something else."""
    return tuple(record for record in records if len(record["rewards"]) == len(clients))


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
            from fedsac.federation.wire import arrays_of

            if digest(arrays_of(ModelFile.load(reward).network)) != receipt["body"]["sha256"]:
                raise FedsacError(f"{reward}: not the model that the receipt is for")
            said.append(f"{reward.relative_to(federation.path)}: the model that the receipt is for")
    return said
