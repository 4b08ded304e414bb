"""The engine behind a network: sites that are asked to train, that may come and go, and that may not answer."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from fedsac.compute import evaluation
from fedsac.errors import FedsacError
from fedsac.federation.admission import Admission
from fedsac.federation.asking import Answered, token
from fedsac.federation.folder import IN, REVOKED
from fedsac.federation.members import contributions, members_of
from fedsac.federation.pay import Payer
from fedsac.federation.session import Session
from fedsac.federation.wire import BATCH_LOSSES, LOCAL_LOSS, Order, merged, shapes
from fedsac.methods.base import Updates
from fedsac.runs.running import Running

PAUSE_SECONDS = 5.0  # before something is tried again


class AnsweredRound:
    """A round whose answers have come."""

    def __init__(self, updates: Updates) -> None:
        self._updates = updates

    def updates(self) -> list[Updates]:
        return [self._updates]


class SiteEngine:
    """Plays the one run of a session."""

    def __init__(self, session: Session) -> None:
        self._s = session

    def gather(self, runs: Sequence[Running]) -> list[Running]:
        """Let in who has come, let go who has left or whose key was revoked; all assignments follow."""
        run, members = self._s.run, self._s.members
        if members and not run.begun:  # taken up: first as it was
            run.begin(contributions(members), members_of(members))
        if run.over or not self._follow_sites():
            return []
        return [run]

    def train(self, runs: Sequence[Running]) -> AnsweredRound:
        """One round, repeated until enough sites have answered."""
        federation, run = self._s.federation, self._s.run
        for attempt in range(federation.repeats + 1):
            present = self._s.link.present() & set(run.task.clients)
            answered = self._ask([name for name in sorted(present) if not self._s.members[name].aside])
            if len(answered.arrays) >= federation.min_answers:
                return AnsweredRound(self._updates(answered))
            self._s.ledger.append(
                "repeated", round=run.round + 1, answered=sorted(answered.arrays), wanted=federation.min_answers
            )
            self._s.say(
                f"round {run.round + 1}: {len(answered.arrays)} answer(s), and it takes {federation.min_answers}; "
                "once more"
            )
            if attempt < federation.repeats:
                self._s.sleep(PAUSE_SECONDS)
                if any(site["status"] != IN for name, site in federation.sites().items() if name in self._s.members):
                    self._follow_sites()
        raise FedsacError(
            f"round {run.round + 1} had fewer than {federation.min_answers} answers {attempt + 1} times; "
            f"see to the sites, then go on with the same command"
        )

    def reward_models(self, runs: Sequence[Running]) -> list[Tensor]:
        """What sites are assigned: an extra epoch, where there is one, is theirs alone, since they have the data."""
        return [run.assignment.models for run in runs]

    def _follow_sites(self) -> bool:
        """Bring the members up to date; has anything changed?"""
        run, members = self._s.run, self._s.members
        sites = self._s.federation.sites()
        gone = [name for name in members if sites.get(name, {}).get("status", REVOKED) != IN]
        leaving = [name for name in gone if sites.get(name, {}).get("status") != REVOKED]
        if leaving and run.begun:
            Payer(self._s).pay(leaving)
        for name in gone:
            del members[name]
            status = sites.get(name, {}).get("status", REVOKED)
            self._s.ledger.append("left", site=name, status=status, round=run.round)
        new = Admission(self._s).join()
        if not gone and not new and run.begun:
            return False
        if len(members) < 2:
            why = Admission(self._s).why_nobody()
            raise FedsacError(f"{len(members)} site(s) in the federation, and it takes 2; {why}")
        change = run.change_members if run.begun else run.begin
        change(contributions(members), members_of(members))
        names, reputations = run.task.clients, run.assignment.reputations
        self._s.ledger.append(
            "members",
            round=run.round,
            contributions=dict(zip(names, run.task.contributions, strict=True)),
            reputations=None if reputations is None else dict(zip(names, reputations, strict=True)),
        )
        return True

    def _ask(self, names: list[str]) -> Answered:
        """Send each of these sites its submodel to train."""
        given, round = self._s.run.assignment, self._s.run.round
        wants = {LOCAL_LOSS: given.local_losses, BATCH_LOSSES: given.batch_losses}
        facts = {name: True for name, wanted in wants.items() if wanted}
        sent = {name: self._s.submodel_of(name) for name in names}
        orders = {name: Order("round", round, token(), facts, sent[name]) for name in names}
        expected = {}
        for name in names:
            expected[name] = shapes(sent[name])
            if given.local_losses:
                expected[name][LOCAL_LOSS] = ((1,), "float64")
            if given.batch_losses:
                batches = -(-self._s.members[name].samples // evaluation.LOSS_BATCH_SAMPLES)
                expected[name][BATCH_LOSSES] = ((batches,), "float64")
        return self._s.requests.ask(orders, expected, sent)

    def _updates(self, answered: Answered) -> Updates:
        """The answers as a method takes them."""
        run = self._s.run
        given, clients = run.assignment, run.task.clients
        numbers = tuple(i for i, name in enumerate(clients) if name in answered.arrays)
        rows = []
        for i in numbers:
            arrays = {k: v for k, v in answered.arrays[clients[i]].items() if k not in (LOCAL_LOSS, BATCH_LOSSES)}
            rows.append(merged(run.prepared.layout, given.model(i), given.neurons[i], arrays))
        names = [clients[i] for i in numbers]
        replies = answered.exchange.replies
        up = sum(array.nbytes for arrays in answered.arrays.values() for array in arrays.values())
        return Updates(
            round=run.round,
            clients=numbers,
            params=torch.stack(rows),
            assignment=given,
            diverged=tuple(i for i, name in enumerate(clients) if answered.failed.get(name, "").startswith("diverged")),
            local_losses=_losses(answered, names, LOCAL_LOSS, torch.cat) if given.local_losses else None,
            batch_losses=_losses(answered, names, BATCH_LOSSES, list) if given.batch_losses else None,
            traffic={"down": answered.payload, "up": up},
            remarks={
                "clients": list(clients),
                "failed": answered.failed,
                "wire": {
                    "down": sum(answered.exchange.sent.values()),
                    "up": sum(reply.size for reply in replies.values()),
                },
            },
        )


def _losses(answered: Answered, names: list[str], which: str, together: Callable[[Any], Any]) -> Any:
    return together([torch.from_numpy(answered.arrays[name][which].copy()) for name in names])
