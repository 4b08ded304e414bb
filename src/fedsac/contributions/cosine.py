"""CGSV's contribution (Xu et al., NeurIPS 2021): how far a client's updates point where everybody's do."""

import torch

from fedsac.compute.samples import Samples
from fedsac.contributions.fedavg_rounds import fedavg
from fedsac.contributions.measurement import Measurement
from fedsac.methods.shared.gradients import cosines


def measure(run: Measurement, on: Samples) -> tuple[float, ...]:
    """The mean over FedAvg's rounds of cos(D_i, D), D_i = trained - received and D = sum_i n_i D_i / n.

    No samples are looked at; a round that a client did not come out of as numbers counts as 0 for it.
    """
    total, count = torch.zeros(len(run.clients.names), dtype=torch.float64), 0
    for (played,) in fedavg([run.clients], run):
        count += 1
        # float64: the square of an update that is still a number must be one, too.
        updates = played.trained.double() - played.before
        total[list(played.clients)] += cosines(updates, played.samples / played.samples.sum() @ updates)
    return tuple((total / count).tolist())
