"""CGSV's contribution (Xu et al., NeurIPS 2021): the cosine similarity of a client's updates to the aggregated ones."""

import torch

from fedsac.compute.samples import Samples
from fedsac.contributions.fedavg_rounds import train_fedavg
from fedsac.contributions.measurement import Measurement
from fedsac.methods.shared.gradients import cosines


def measure(run: Measurement, on: Samples) -> tuple[float, ...]:
    """The mean over rounds of FedAvg of cos(D_i, D), with D_i = trained - received and D = sum_i n_i D_i / n.

    The samples `on` are not used. A round in which a client's training diverged counts as 0 for it.
    """
    total, count = torch.zeros(len(run.clients.names), dtype=torch.float64), 0
    for (fedavg_round,) in train_fedavg([run.clients], run):
        count += 1
        # float64, so that the squares of large but finite updates are finite, too.
        updates = fedavg_round.trained.double() - fedavg_round.received
        total[list(fedavg_round.clients)] += cosines(
            updates, fedavg_round.samples / fedavg_round.samples.sum() @ updates
        )
    return tuple((total / count).tolist())
