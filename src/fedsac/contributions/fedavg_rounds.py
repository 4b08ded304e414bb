"""A short run of FedAvg from which contributions are measured: what the clients send in each round."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedsac.clients.population import Clients
from fedsac.clients.training import Job, Trained, train
from fedsac.contributions.measurement import Measurement

MAX_ROUNDS = 10  # enough to tell clients apart; far fewer than a run has, because some measures train many federations


@dataclass(frozen=True)
class FedAvgRound:
    """One round of FedAvg: the model that all clients `received` [parameters], the `clients` (by index) that answered,
    their `trained` models [k, parameters] and numbers of `samples` [k]."""

    number: int
    received: Tensor
    clients: tuple[int, ...]
    trained: Tensor
    samples: Tensor

    @property
    def aggregated(self) -> Tensor:
        """The next round's model, sum_i n_i theta_i / n, [parameters]; the one received where no client answered."""
        if not self.clients:
            return self.received
        return (self.samples / self.samples.sum()).to(self.trained) @ self.trained


def number_of_rounds(run: Measurement) -> int:
    """`MAX_ROUNDS`, or fewer: no more steps than standalone training has."""
    return min(MAX_ROUNDS, -(-run.steps // run.clients.local_steps))


def train_fedavg(federations: Sequence[Clients], run: Measurement) -> Iterator[list[FedAvgRound]]:
    """Train several federations with FedAvg at the same time, independently, from the run's initial weights. Yields
    their rounds, one after the other.

    A client draws the same batches in every federation that it is in.
    """
    models, rounds_in_all = [run.initial] * len(federations), number_of_rounds(run)
    for number in range(rounds_in_all):
        jobs = [
            Job(
                clients,
                model.unsqueeze(0),
                None,
                (clients.local_steps,) * len(clients.names),
                "contribution",
                number,
                number / rounds_in_all,
            )
            for clients, model in zip(federations, models, strict=True)
        ]
        rounds = [_round_of(job, trained) for job, trained in zip(jobs, train(jobs), strict=True)]
        models = [each.aggregated for each in rounds]
        yield rounds


def _round_of(job: Job, trained: Trained) -> FedAvgRound:
    # A client whose training ended in NaN or infinity is left out of the round, as in a run.
    who = tuple(trained.finite.nonzero().squeeze(1).tolist())
    samples = torch.tensor([len(job.clients.rows[i]) for i in who], dtype=torch.float64, device=job.models.device)
    return FedAvgRound(job.round, job.models[0], who, trained.models[list(who)], samples)
