"""Leave-one-out: how much lower the score of the common model is without a client."""

from dataclasses import replace

import torch

from fedsac.clients.population import Clients
from fedsac.compute import evaluation
from fedsac.compute.samples import Samples
from fedsac.contributions.fedavg_rounds import train_fedavg
from fedsac.contributions.measurement import Measurement

MODELS_AT_ONCE = 128  # trained in one stack: enough for ten clients, and no more memory than that for a hundred


def measure(run: Measurement, on: Samples) -> tuple[float, ...]:
    """score(N) - score(N without i) for each client i: scores `on` these samples of FedAvg's models after the same
    number of rounds."""
    everyone = run.clients
    federations = [everyone, *(_without(everyone, i) for i in range(len(everyone.names)))]
    at_once = max(1, MODELS_AT_ONCE // len(everyone.names))
    scores: list[float] = []
    for start in range(0, len(federations), at_once):
        for rounds in train_fedavg(federations[start : start + at_once], run):
            last = rounds
        models = torch.stack([each.aggregated for each in last])
        scores += evaluation.evaluate(everyone.layout, models, None, on, metric=run.metric)[0].tolist()
    return tuple(scores[0] - without for without in scores[1:])


def _without(clients: Clients, i: int) -> Clients:
    names, rows = clients.names, clients.rows
    return replace(clients, names=names[:i] + names[i + 1 :], rows=rows[:i] + rows[i + 1 :])
