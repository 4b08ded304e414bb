"""One round of local training on this machine: from the models assigned to the clients to the updates they send."""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from fedsac.clients.population import Clients
from fedsac.clients.training import Job, PendingTraining, Trained, is_private, train
from fedsac.compute import evaluation
from fedsac.core.transfer import to_device
from fedsac.errors import FedsacError
from fedsac.methods.base import Assignment, State, Updates

Absent = Callable[[int, str], bool]
"""From a round and a client's name: does this client drop out of this round?"""


RunRound = tuple[Clients, Assignment, int]
"""A round of one run: its clients, what they are assigned, and the number of the round."""


class Conduct(Protocol):
    """What the clients of a run do besides training honestly: a behaviour, or an attack."""

    def behave(
        self, clients: Clients, given: Assignment, round: int, trained: Tensor
    ) -> tuple[list[Tensor | None], State]:
        """What each client sends, from models trained honestly [N, parameters], and what clients remember after it."""
        ...


class LocalRound:
    """A round of local training for each of several runs, in progress: `updates` waits for what the clients send back.

    A client that is `absent` sends nothing, and neither does one whose training ended in NaN or infinity: it is left
    out of this round, and listed in `Updates.diverged`. `conducts` (one per run; None: its clients are honest) may
    change what is sent after training.
    """

    def __init__(
        self, work: Sequence[RunRound], absent: Absent, conducts: Sequence[Conduct | None] | None = None
    ) -> None:
        for clients, given, _ in work:
            if is_private(clients) and (given.local_losses or given.batch_losses):
                raise FedsacError("noise: this method has clients report losses, which no epsilon covers; take another")
        self._work, self._absent = work, absent
        self._conducts = conducts or [None] * len(work)
        self._training = PendingTraining(
            [
                Job(
                    clients,
                    given.models,
                    given.neurons,
                    (clients.local_steps,) * len(clients.names),
                    "batches",
                    i,
                    i / clients.rounds,
                )
                for clients, given, i in work
            ]
        )

    def updates(self) -> list[Updates]:
        """Wait for the training to end: the updates of each run."""
        return [self._answer(*each) for each in zip(self._work, self._training.wait(), self._conducts, strict=True)]

    def _answer(self, work: RunRound, trained: Trained, conduct: Conduct | None) -> Updates:
        clients, given, round = work
        models, finite = trained.models, trained.finite.tolist()
        present = [i for i, name in enumerate(clients.names) if not self._absent(round, name)]
        memory: State = {}
        if conduct is not None:
            sent, memory = conduct.behave(clients, given, round, trained.models)
            present = [i for i in present if sent[i] is not None]
            models = torch.stack([trained.models[i] if s is None else s for i, s in enumerate(sent)])
            # What is sent counts: whoever diverged, and sends something else, is not found out.
            honest = (models == trained.models).all(1)
            finite = (models.isfinite().all(1) & (trained.finite.to(honest.device) | ~honest)).tolist()
        answered = tuple(i for i in present if finite[i])
        return Updates(
            local_losses=_local_losses(clients, given, answered) if given.local_losses else None,
            batch_losses=_batch_losses(clients, given, models, answered) if given.batch_losses else None,
            round=round,
            clients=answered,
            params=models if len(answered) == len(finite) else models[list(answered)],
            assignment=given,
            losses=tuple(trained.losses.tolist()),
            diverged=tuple(i for i in present if not finite[i]),
            memory=memory,
        )


def train_round(work: Sequence[RunRound], absent: Absent) -> list[Updates]:
    """A round of local training for each run: the updates that its clients send back."""
    return LocalRound(work, absent).updates()


def _batch_losses(clients: Clients, given: Assignment, models: Tensor, answered: tuple[int, ...]) -> list[Tensor]:
    """The loss of the trained model, or of the one received, on each batch of a client's own data, which the client
    reports."""
    own = [clients.rows[i] for i in answered]
    wanted = given.models.expand_as(models) if given.batch_losses == "received" else models
    return evaluation.batch_losses(clients.layout, wanted[list(answered)], clients.pool, own)


def _local_losses(clients: Clients, given: Assignment, answered: tuple[int, ...]) -> Tensor:
    """The mean loss of the model received on a client's own data, which the client reports."""
    models = given.models if len(given.models) == 1 else given.models[list(answered)]
    return evaluation.mean_losses(clients.layout, models, clients.pool, [clients.rows[i] for i in answered])


def personalised(runs: Sequence[RunRound]) -> list[Tensor]:
    """The models [N or 1, parameters] whose scores are the rewards of each run's clients: those assigned to them, or,
    where the method says so (`Assignment.extra_epoch`), copies [N, parameters] after one more epoch on each client's
    own data."""
    extra = [i for i, (_, given, _) in enumerate(runs) if given.extra_epoch]
    jobs = [
        Job(
            clients,
            given.models,
            given.neurons,
            clients.steps_per_epoch(),
            "extra epoch",
            round,
            max(0, round - 1) / clients.rounds,  # at the learning rate of the round that is over
        )
        for clients, given, round in (runs[i] for i in extra)
    ]
    models = [given.models for _, given, _ in runs]
    for i, trained in zip(extra, train(jobs), strict=True):
        # A client that diverges in that epoch keeps the model it was assigned.
        finite = to_device(trained.finite.unsqueeze(1), models[i].device)
        models[i] = torch.where(finite, trained.models, models[i])
    return models
