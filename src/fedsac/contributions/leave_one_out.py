"""Leave-one-out: what the common model loses when a client stays away."""

from dataclasses import replace

import torch

from fedsac.clients.training import Clients
from fedsac.compute import evaluation, training
from fedsac.contributions.fedavg_rounds import fedavg
from fedsac.contributions.standalone import Alone

MEMBERS = 128  # models in one stack: all that ten clients need at once, and no more memory than that for a hundred


def measure(run: Alone, on: training.Samples) -> tuple[float, ...]:
    """acc(N) - acc(N without i), the accuracies of FedAvg's models after the same number of rounds."""
    everyone = run.clients
    federations = [everyone, *(_without(everyone, i) for i in range(len(everyone.names)))]
    at_once = max(1, MEMBERS // len(everyone.names))
    accuracy: list[float] = []
    for start in range(0, len(federations), at_once):
        for played in fedavg(federations[start : start + at_once], run):
            last = played
        models = torch.stack([each.after for each in last])
        accuracy += evaluation.evaluate(everyone.layout, models, None, on)[0].tolist()
    return tuple(accuracy[0] - without for without in accuracy[1:])


def _without(clients: Clients, i: int) -> Clients:
    names, rows = clients.names, clients.rows
    return replace(clients, names=names[:i] + names[i + 1 :], rows=rows[:i] + rows[i + 1 :])
