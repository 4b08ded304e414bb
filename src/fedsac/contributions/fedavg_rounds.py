"""FedAvg as a measuring instrument: what clients send in each round."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedsac.clients.population import Clients
from fedsac.clients.training import Job, Trained, train
from fedsac.contributions.measurement import Measurement

ROUNDS = 10  # enough for clients to show what they bring; far fewer than a run has, because measures repeat them


@dataclass(frozen=True)
class Round:
    """One round of FedAvg: the model all were given and, of those who answered (by number), the models [k, parameters]
    and samples [k] they have."""

    number: int
    before: Tensor
    clients: tuple[int, ...]
    trained: Tensor
    samples: Tensor

    @property
    def after(self) -> Tensor:
        """The next round's model, sum_i n_i theta_i / n; nobody answering changes nothing."""
        if not self.clients:
            return self.before
        return (self.samples / self.samples.sum()).to(self.trained) @ self.trained


def rounds(run: Measurement) -> int:
    """`ROUNDS`, or fewer where standing alone takes fewer steps than they would."""
    return min(ROUNDS, -(-run.steps // run.clients.local_steps))


def fedavg(federations: Sequence[Clients], run: Measurement) -> Iterator[list[Round]]:
    """Train several federations side by side, each for itself, from the run's initial weights; round by round.

    A client draws the same batches in every federation that it is in.
    """
    models = [run.initial] * len(federations)
    for number in range(rounds(run)):
        jobs = [
            Job(clients, model.unsqueeze(0), None, (clients.local_steps,) * len(clients.names), "contribution", number)
            for clients, model in zip(federations, models, strict=True)
        ]
        played = [_answered(job, trained) for job, trained in zip(jobs, train(jobs), strict=True)]
        models = [each.after for each in played]
        yield played


def _answered(job: Job, trained: Trained) -> Round:
    # A client whose training ended in NaN or infinity is set aside for the round, as in the federation.
    who = tuple(trained.finite.nonzero().squeeze(1).tolist())
    samples = torch.tensor([len(job.clients.rows[i]) for i in who], dtype=torch.float64, device=job.models.device)
    return Round(job.round, job.models[0], who, trained.models[list(who)], samples)
