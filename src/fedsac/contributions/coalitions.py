"""What any coalition of a round's clients would have made: the score of their mean model."""

import numpy as np
import torch

from fedsac.compute.mean_models import MeanModels
from fedsac.compute.samples import Samples
from fedsac.contributions.fedavg_rounds import Round
from fedsac.core.metrics import Metric
from fedsac.core.units import Layout


class Coalitions:
    """U(S): score on some samples of sum_S n_i theta_i / sum_S n_i; of the model before the round for nobody."""

    def __init__(self, layout: Layout, played: Round, on: Samples, metric: Metric) -> None:
        models = torch.cat([played.trained, played.before.unsqueeze(0)])
        self._means, self._samples = MeanModels(layout, models, on, metric), played.samples

    def __call__(self, coalitions: np.ndarray) -> np.ndarray:
        """From boolean [S, k], over those who answered, to float64 [S]."""
        members = torch.from_numpy(coalitions).to(self._samples.device)
        weights = members * self._samples
        nobody = ~members.any(1, keepdim=True)
        shares = torch.cat([weights / weights.sum(1, keepdim=True).clamp_min(1), nobody], 1)
        return self._means.scores(shares).numpy()
