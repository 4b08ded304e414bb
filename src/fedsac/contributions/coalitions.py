"""The utility of a coalition of clients in a round of FedAvg: the score of their mean model."""

import numpy as np
import torch

from fedsac.compute.mean_models import MeanModels
from fedsac.compute.samples import Samples
from fedsac.contributions.fedavg_rounds import FedAvgRound
from fedsac.core.metrics import Metric
from fedsac.core.module_layout import AnyLayout


class CoalitionScores:
    """U(S), the score on the samples `on` of the mean model sum_S n_i theta_i / sum_S n_i of a coalition S; for the
    empty coalition, the score of the model received."""

    def __init__(self, layout: AnyLayout, fedavg_round: FedAvgRound, on: Samples, metric: Metric) -> None:
        models = torch.cat([fedavg_round.trained, fedavg_round.received.unsqueeze(0)])
        self._means, self._samples = MeanModels(layout, models, on, metric), fedavg_round.samples

    def __call__(self, coalitions: np.ndarray) -> np.ndarray:
        """The utilities of S coalitions, float64 [S], from their members: boolean [S, k] over the k clients that
        answered."""
        members = torch.from_numpy(coalitions).to(self._samples.device)
        weights = members * self._samples
        empty = ~members.any(1, keepdim=True)
        shares = torch.cat([weights / weights.sum(1, keepdim=True).clamp_min(1), empty], 1)
        return self._means.scores(shares).numpy()
