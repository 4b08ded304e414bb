"""One round of local training on this machine: from what clients are given to what they send back."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fedsac.clients.behaviour import Conduct
from fedsac.clients.population import Clients
from fedsac.clients.training import Job, PendingTraining, Trained, train
from fedsac.compute import evaluation
from fedsac.core.transfer import moved
from fedsac.methods.base import Assignment, State, Updates

Absent = Callable[[int, str], bool]
"""Does this client (by name) drop out of this round?"""


Work = tuple[Clients, Assignment, int]
"""One run's round: its clients, what they are given, and which round it is."""


class LocalRound:
    """One round of local training for each run, under way: `updates` are what the clients send back.

    Whoever is `absent` does not answer, and neither does a client whose training ended in NaN or infinity: it is left
    out of this round, and named in `Updates.diverged`. `conducts` (one per run, None: all are honest) may change what
    is sent after training.
    """

    def __init__(self, work: Sequence[Work], absent: Absent, conducts: Sequence[Conduct | None] | None = None) -> None:
        self._work, self._absent = work, absent
        self._conducts = conducts or [None] * len(work)
        self._training = PendingTraining(
            [
                Job(clients, given.models, given.neurons, (clients.local_steps,) * len(clients.names), "batches", i)
                for clients, given, i in work
            ]
        )

    def updates(self) -> list[Updates]:
        """Wait for the training to end."""
        return [self._answer(*each) for each in zip(self._work, self._training.wait(), self._conducts, strict=True)]

    def _answer(self, work: Work, trained: Trained, conduct: Conduct | None) -> Updates:
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
            batch_losses=_batch_losses(clients, models, answered) if given.batch_losses else None,
            round=round,
            clients=answered,
            params=models if len(answered) == len(finite) else models[list(answered)],
            assignment=given,
            losses=tuple(trained.losses.tolist()),
            diverged=tuple(i for i in present if not finite[i]),
            memory=memory,
        )


def train_round(work: Sequence[Work], absent: Absent) -> list[Updates]:
    """One round of local training for each run: what its clients send back."""
    return LocalRound(work, absent).updates()


def _batch_losses(clients: Clients, models: Tensor, answered: tuple[int, ...]) -> list[Tensor]:
    """What a client reports of its trained model: the loss on each batch of its own data."""
    own = [clients.rows[i] for i in answered]
    return evaluation.batch_losses(clients.layout, models[list(answered)], clients.pool, own)


def _local_losses(clients: Clients, given: Assignment, answered: tuple[int, ...]) -> Tensor:
    """What a client reports of the model it received: the mean loss on its own data."""
    models = given.models if len(given.models) == 1 else given.models[list(answered)]
    return evaluation.mean_losses(clients.layout, models, clients.pool, [clients.rows[i] for i in answered])


def personalised(runs: Sequence[Work]) -> list[Tensor]:
    """The models [N, parameters] that each run's clients end with: for some methods, after one epoch more on their own
    data; all runs' epochs side by side."""
    extra = [i for i, (_, given, _) in enumerate(runs) if given.extra_epoch]
    jobs = [
        Job(clients, given.models, given.neurons, clients.epoch(), "extra epoch", round)
        for clients, given, round in (runs[i] for i in extra)
    ]
    models = [given.models for _, given, _ in runs]
    for i, trained in zip(extra, train(jobs), strict=True):
        # Who diverges in that epoch keeps the model it was given.
        finite = moved(trained.finite.unsqueeze(1), models[i].device)
        models[i] = torch.where(finite, trained.models, models[i])
    return models
