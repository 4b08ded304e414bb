"""The round loop's engine for a federation: sites are asked to train; they may join, leave, or fail to answer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsac.compute import evaluation
from fedsac.defences.harm import harmful, without
from fedsac.errors import FedsacError
from fedsac.federation.admission import Admission
from fedsac.federation.asking import CheckedReplies, token
from fedsac.federation.declining import DIVERGED
from fedsac.federation.earning import UNCHANGED
from fedsac.federation.folder import ACTIVE, HARMFUL, REVOKED
from fedsac.federation.members import contributions, members_of
from fedsac.federation.pay import Payer
from fedsac.federation.session import Session
from fedsac.federation.wire import BATCH_LOSSES, LOCAL_LOSS, Order, merged, shapes
from fedsac.methods.base import Updates
from fedsac.runs.running import Running

RETRY_SECONDS = 5.0  # before a round with too few answers is repeated


class AnsweredRound:
    """The updates of one round, complete: sites are asked and awaited in `train`."""

    def __init__(self, updates: Updates) -> None:
        self._updates = updates

    def updates(self) -> list[Updates]:
        return [self._updates]


class SiteEngine:
    """Trains the one run of a session on the sites."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def gather(self, runs: Sequence[Running]) -> list[Running]:
        """Admit sites that have come, drop those that left or were revoked, and let the method assign submodels anew.
        Returns the run if its members have changed."""
        run, members = self._session.run, self._session.members
        if members and not run.begun:  # resumed: first with the members of the checkpoint
            run.begin(contributions(members), members_of(members))
        if run.over or not self._update_members():
            return []
        return [run]

    def train(self, runs: Sequence[Running]) -> AnsweredRound:
        """Train one round; it is repeated until enough sites have answered, at most `repeats` times."""
        federation, run = self._session.federation, self._session.run
        for attempt in range(federation.repeats + 1):
            present = self._session.link.present() & set(run.task.clients)
            asked = [name for name in sorted(present) if not self._session.members[name].aside]
            failures = {name: self._session.members[name].refused for name in asked}
            answered = self._ask(asked)
            updates = self._screened(answered, failures) if answered.arrays else None
            names = [] if updates is None else sorted(run.task.clients[i] for i in updates.clients)
            if updates is not None and len(names) >= federation.min_answers:
                return AnsweredRound(updates)
            self._session.ledger.append("repeated", round=run.round + 1, answered=names, wanted=federation.min_answers)
            self._session.say(
                f"round {run.round + 1}: {len(names)} answer(s), and it takes {federation.min_answers}; once more"
            )
            if attempt < federation.repeats:
                self._session.sleep(RETRY_SECONDS)
                if any(
                    site["status"] != ACTIVE
                    for name, site in federation.sites().items()
                    if name in self._session.members
                ):
                    self._update_members()
        raise FedsacError(
            f"round {run.round + 1} had fewer than {federation.min_answers} answers {attempt + 1} times; "
            f"check the sites, then go on with the same command"
        )

    def reward_models(self, runs: Sequence[Running]) -> list[Tensor]:
        """The models that sites would keep now, without the extra epoch of some methods: only sites can train it."""
        return [run.reward.models for run in runs]

    def _update_members(self) -> bool:
        """Deliver rewards to members that leave, drop them, and admit new ones; returns whether anything changed."""
        run, members = self._session.run, self._session.members
        self._session.requests.readmit()
        sites = self._session.federation.sites()
        gone = [name for name in members if sites.get(name, {}).get("status", REVOKED) != ACTIVE]
        leaving = [name for name in gone if sites.get(name, {}).get("status") != REVOKED]
        if leaving and run.begun:
            Payer(self._session).pay(leaving)
        Payer(self._session).pay_those_who_left()
        for name in gone:
            del members[name]
            status = sites.get(name, {}).get("status", REVOKED)
            self._session.ledger.append("left", site=name, status=status, round=run.round)
        new = Admission(self._session).join()
        if not gone and not new and run.begun:
            return False
        if len(members) < 2:
            reasons = Admission(self._session).recent_refusals()
            raise FedsacError(f"{len(members)} site(s) in the federation, and it takes 2; {reasons}")
        change = run.change_members if run.begun else run.begin
        change(contributions(members), members_of(members))
        names, reputations = run.task.clients, run.assignment.reputations
        self._session.ledger.append(
            "members",
            round=run.round,
            contributions=dict(zip(names, run.task.contributions, strict=True)),
            reputations=None if reputations is None else dict(zip(names, reputations, strict=True)),
        )
        return True

    def _ask(self, names: list[str]) -> CheckedReplies:
        """Send each of these sites its submodel to train."""
        given, round = self._session.run.assignment, self._session.run.round
        wants = {LOCAL_LOSS: given.local_losses, BATCH_LOSSES: given.batch_losses}
        facts = {name: wanted for name, wanted in wants.items() if wanted}
        sent = {name: self._session.submodel_of(name) for name in names}
        orders = {
            name: Order("round", round, token(), facts | self._session.units_of(name), sent[name]) for name in names
        }
        expected = {}
        for name in names:
            expected[name] = shapes(sent[name])
            if given.local_losses:
                expected[name][LOCAL_LOSS] = ((1,), "float64")
            if given.batch_losses:
                batches = -(-self._session.members[name].samples // evaluation.LOSS_BATCH_SAMPLES)
                expected[name][BATCH_LOSSES] = ((batches,), "float64")
        return self._session.requests.ask(orders, expected, sent)

    def _screened(self, answered: CheckedReplies, failures: dict[str, int]) -> Updates:
        """The updates of those whose replies do no harm. The others are refused; `failures` are how many in a row each
        site had before this round."""
        session, updates = self._session, self._updates(answered)
        names, prepared = session.run.task.clients, session.prepared
        if session.federation.refuse == HARMFUL:
            for i, reason in harmful(prepared.layout, prepared.validation, updates).items():
                session.members[names[i]].refused = failures[names[i]]  # a reply in order has ended the row
                answered.failed[names[i]] = session.requests.refuse(names[i], reason)
                updates = without(updates, (i,))
        unchanged = [name for name in sorted(answered.arrays) if self._is_unchanged(name, answered.arrays[name])]
        return replace(updates, remarks=updates.remarks | ({UNCHANGED: unchanged} if unchanged else {}))

    def _is_unchanged(self, name: str, arrays: Mapping[str, np.ndarray]) -> bool:
        """Whether a site has sent back what it was sent."""
        sent = self._session.submodel_of(name)
        return all(np.array_equal(arrays[part], sent[part]) for part in sent)

    def _updates(self, answered: CheckedReplies) -> Updates:
        """The sites' replies as the `Updates` that a method learns from."""
        run = self._session.run
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
            diverged=tuple(i for i, name in enumerate(clients) if answered.failed.get(name, "").startswith(DIVERGED)),
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


def _losses(answered: CheckedReplies, names: list[str], which: str, combine: Callable[[Any], Any]) -> Any:
    return combine([torch.from_numpy(answered.arrays[name][which].copy()) for name in names])
