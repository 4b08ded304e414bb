"""The coordinator: joins, contributions, rounds, rewards. Read `run` first; nothing here knows how messages travel.

It is killed at any instant and started again: everything that is final lies in the run's folder (`store.py`), and the
ledger says what was done on the way. A round counts once its checkpoint is in place, and not before.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from fedsac import methods
from fedsac.compute import evaluation
from fedsac.config import FORMAT_VERSION
from fedsac.errors import FedsacError
from fedsac.federation import members as who
from fedsac.federation.admission import Admission
from fedsac.federation.asking import Answered, Desk, token
from fedsac.federation.data import coordinator_split, factory_model
from fedsac.federation.folder import IN, REVOKED, Federation
from fedsac.federation.ledger import Ledger
from fedsac.federation.link import Link
from fedsac.federation.members import Member
from fedsac.federation.pay import Payer
from fedsac.federation.wire import BATCH_LOSSES, LOCAL_LOSS, Order, merged, shapes, submodel
from fedsac.methods.base import Rewards, State, Task, Updates
from fedsac.runs.folder import Checkpoint, Folder, is_run
from fedsac.runs.result import judged
from fedsac.runs.setup import Prepared, placed

PAUSE = 5.0  # seconds before something is tried again
OURS = "federation"  # the coordinator's own part of a checkpoint's state


class Coordinator:
    """One run of a federation, begun or taken up."""

    def __init__(
        self,
        federation: Federation,
        link: Link,
        say: Callable[[str], None] = lambda text: None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.federation, self.link, self.say, self.sleep = federation, link, say, sleep
        self.prepared = _prepared(federation)
        self.method = methods.make(federation.config)
        self.members: dict[str, Member] = {}
        self.clients: tuple[str, ...] = ()  # whom the state is for
        self.state: State = {}
        self.round = 0
        self.records: list[dict[str, Any]] = []
        self.started = time.monotonic()

    def run(self) -> None:
        """Everything that is still to be done, to the last reward."""
        self.federation.receipts.mkdir(parents=True, exist_ok=True)
        with self._folder() as self.folder:
            self.ledger = Ledger(self.federation.ledger)
            self.desk = Desk(self.federation, self.link, self.ledger, self.members, self.say)
            self._take_up()
            while self.round < self.federation.config.rounds:
                self._follow_sites()
                self._play_round()
            payer = Payer(self)
            payer.pay(sorted(self.members))
            payer.finish()
            payer.wait_for_absent()

    # -- begin, go on, commit

    def _folder(self) -> Folder:
        path = self.federation.run
        return Folder.open(path) if is_run(path) else Folder.create(path, self.prepared.config)

    def _take_up(self) -> None:
        found = self.folder.latest(self.say)
        if found is None:
            self.ledger.append("began", fingerprint=self.fingerprint, config=self.prepared.config.toml())
            return
        checkpoint, self.records = found
        if checkpoint.fingerprint != self.fingerprint:
            raise FedsacError(
                f"{self.federation.run}: the validation data or the settings are not what this run began with; bring "
                "them back, or start a new federation"
            )
        self.state = dict(checkpoint.state)
        ours = self.state.pop(OURS)
        self.members.update(who.unpacked(ours["members"]))
        self.clients = tuple(ours["clients"])
        self.round = checkpoint.round
        self.ledger.append("resumed", round=self.round, committed=ours["ledger"])
        self.say(f"going on after round {self.round}")

    @property
    def fingerprint(self) -> str:
        return self.prepared.fingerprint

    def commit(self, records: list[dict[str, Any]]) -> None:
        """Make what was done so far final."""
        ours = {"members": who.packed(self.members), "clients": list(self.clients), "ledger": len(self.ledger.entries)}
        found = Checkpoint(self.round, self.state | {OURS: ours}, who.contributions(self.members), self.fingerprint)
        self.folder.commit(found, records, self.folder.seconds() + time.monotonic() - self.started)
        self.started = time.monotonic()

    # -- who takes part

    def _follow_sites(self) -> None:
        """Let in who has come, let go who has left or whose key was revoked; everybody's rewards follow."""
        sites = self.federation.sites()
        gone = [name for name in self.members if sites.get(name, {}).get("status", REVOKED) != IN]
        leaving = [name for name in gone if sites.get(name, {}).get("status") != REVOKED]
        if leaving and self.state:
            Payer(self).pay(leaving)
        for name in gone:
            del self.members[name]
            self.ledger.append("left", site=name, status=sites.get(name, {}).get("status", REVOKED), round=self.round)
        new = Admission(self).join()
        if not gone and not new and self.state:
            return
        if len(self.members) < 2:
            raise FedsacError(
                f"{len(self.members)} site(s) in the federation, and it takes 2; {Admission(self).why_nobody()}"
            )
        self._settle()

    def _settle(self) -> None:
        """Begin with the members there are, or carry the state over to them, and commit."""
        task = self.task
        if self.state:
            self.state = who.carried_over(self.method, task, self.state, self.clients)
        else:
            self.state = self.method.start(task)
        self.clients = task.clients
        c, reputations = task.contributions, self.method.rewards(task, self.state).reputations
        self.ledger.append(
            "members",
            round=self.round,
            contributions=dict(zip(self.clients, c, strict=True)),
            reputations=None if reputations is None else dict(zip(self.clients, reputations, strict=True)),
        )
        self.commit([])

    @property
    def task(self) -> Task:
        return who.task(self.prepared, self.members)

    # -- a round

    def _play_round(self) -> None:
        """One round, repeated until enough sites have answered."""
        for attempt in range(self.federation.repeats + 1):
            rewards = self.method.rewards(self.task, self.state)
            asked = [n for n in sorted(self.link.present() & set(self.clients)) if not self.members[n].aside]
            answered = self._train(rewards, asked)
            if len(answered.arrays) >= self.federation.min_answers:
                self._learn(rewards, answered)
                return
            self.ledger.append(
                "repeated", round=self.round + 1, answered=sorted(answered.arrays), wanted=self.federation.min_answers
            )
            self.say(
                f"round {self.round + 1}: {len(answered.arrays)} answer(s), and it takes "
                f"{self.federation.min_answers}; once more"
            )
            if attempt < self.federation.repeats:
                self.sleep(PAUSE)
                if any(site["status"] != IN for name, site in self.federation.sites().items() if name in self.members):
                    self._follow_sites()
        raise FedsacError(
            f"round {self.round + 1} had fewer than {self.federation.min_answers} answers {attempt + 1} times; "
            f"see to the sites, then go on with the same command"
        )

    def _train(self, rewards: Rewards, names: list[str]) -> Answered:
        wants = {LOCAL_LOSS: rewards.local_losses, BATCH_LOSSES: rewards.batch_losses}
        facts = {name: True for name, wanted in wants.items() if wanted}
        sent = {name: self.part_of(rewards, name) for name in names}
        orders = {name: Order("round", self.round, token(), facts, sent[name]) for name in names}
        expected = {}
        for name in names:
            expected[name] = shapes(sent[name])
            if rewards.local_losses:
                expected[name][LOCAL_LOSS] = ((1,), "float64")
            if rewards.batch_losses:
                expected[name][BATCH_LOSSES] = ((-(-self.members[name].samples // evaluation.LOSS_BATCH),), "float64")
        return self.desk.ask(orders, expected, sent)

    def part_of(self, rewards: Rewards, name: str) -> dict[str, np.ndarray]:
        """What a site holds: its model, cut to its neurons."""
        i = self.clients.index(name)
        model = rewards.models[i if len(rewards.models) > 1 else 0]
        return submodel(self.prepared.layout, model, rewards.neurons[i])

    def _learn(self, rewards: Rewards, answered: Answered) -> None:
        names = [name for name in self.clients if name in answered.arrays]
        numbers = tuple(self.clients.index(name) for name in names)
        rows = []
        for i, name in zip(numbers, names, strict=True):
            arrays = {k: v for k, v in answered.arrays[name].items() if k not in (LOCAL_LOSS, BATCH_LOSSES)}
            model = rewards.models[i if len(rewards.models) > 1 else 0]
            rows.append(merged(self.prepared.layout, model, rewards.neurons[i], arrays))
        updates = Updates(
            round=self.round,
            clients=numbers,
            params=torch.stack(rows),
            rewards=rewards,
            local_losses=_losses(answered, names, LOCAL_LOSS, torch.cat) if rewards.local_losses else None,
            batch_losses=_losses(answered, names, BATCH_LOSSES, list) if rewards.batch_losses else None,
        )
        self.state = self.method.learn(self.task, self.state, updates)
        self.round += 1
        for name in names:
            self.members[name].rounds.append(self.round)
        record = self._record(names, answered)
        self.records.append(record)
        body = {name: record[name] for name in ("round", "answered", "failed", "bytes", "wire", "neurons")}
        self.ledger.append("round", **body, clients=list(self.clients), reputations=record["reputations"])
        self.commit([record])
        self.say(f"round {self.round} of {self.federation.config.rounds}: {len(names)} of {len(self.clients)} answered")

    def _record(self, names: list[str], answered: Answered) -> dict[str, Any]:
        """What the log says of a round: as `fedsac run` writes it, and what was on the wire."""
        rewards = self.method.rewards(self.task, self.state)
        held = self.prepared.layout.submodels(rewards.neurons)
        test, validation, common = self.evaluated(rewards)
        replies, sent = answered.exchange.replies, answered.exchange.sent
        sizes = {name: sum(array.nbytes for array in arrays.values()) for name, arrays in answered.arrays.items()}
        return {
            "format_version": FORMAT_VERSION,
            "round": self.round,
            "answered": names,
            "failed": answered.failed,
            "diverged": [name for name, reason in answered.failed.items() if reason.startswith("diverged")],
            "losses": [],
            "bytes": {"down": answered.payload, "up": sum(sizes.values())},
            "wire": {"down": sum(sent.values()), "up": sum(reply.size for reply in replies.values())},
            "neurons": [submodel.neurons for submodel in held],
            "parameters": [submodel.parameters for submodel in held],
            "reputations": None if rewards.reputations is None else list(rewards.reputations),
            "rewards": test,
            "rewards_validation": validation,
            "global_accuracy": common,
            **judged(who.contributions(self.members), test),
        }

    def evaluated(self, rewards: Rewards) -> tuple[list[float], list[float], float | None]:
        """Accuracies of what everybody holds, on the test and the validation data, and of the common model."""
        layout, p = self.prepared.layout, self.prepared
        test, validation = (
            evaluation.evaluate(layout, rewards.models, rewards.neurons, samples)[0].tolist()
            for samples in (p.test, p.validation)
        )
        common = self.state.get("model")
        if common is None:
            return test, validation, None
        return test, validation, float(evaluation.evaluate(layout, common.unsqueeze(0), None, p.test)[0])


def _prepared(federation: Federation) -> Prepared:
    """The coordinator's own data and the model's start."""
    dealt = coordinator_split(federation)
    found = placed(federation.config, dealt)
    if not federation.model:
        return found
    network = factory_model(federation.model, dealt.data.x.shape[1], len(dealt.data.classes))
    config = federation.config.replace(hidden=network.layout.sizes[1:-1])
    found = placed(config, dealt)
    return Prepared(
        config, dealt, found.clients, found.validation, found.test, network.params.to(found.initial), found.data_hash
    )


def _losses(answered: Answered, names: list[str], which: str, together: Callable[[Any], Any]) -> Any:
    return together([torch.from_numpy(answered.arrays[name][which].copy()) for name in names])
