"""What any coalition of a round's clients would have made: the accuracy of their mean model."""

import numpy as np
import torch
from torch import Tensor

from fedsac.compute import evaluation, training
from fedsac.contributions.fedavg_rounds import Round
from fedsac.core.units import Layout

MODELS = 16  # coalitions evaluated at a time


class Coalitions:
    """U(S): accuracy on some samples of sum_S n_i theta_i / sum_S n_i; of the model before the round for nobody.

    Before its ReLU, the first layer of a mean is the mean of the first layers. By far the largest layer is so computed
    once for each client and not for each of the hundreds of coalitions.
    """

    def __init__(self, layout: Layout, played: Round, on: training.Samples) -> None:
        models = torch.cat([played.trained, played.before.unsqueeze(0)])
        weight, bias = layout.views(evaluation.fold(layout, models, on.scale, on.shift))[0]
        inputs = on.x.to(models.dtype).expand(len(models), -1, -1)
        self._first = torch.baddbmm(bias.unsqueeze(1), inputs, weight)
        self._above, self._rest = Layout(layout.sizes[1:]), models[:, weight[0].numel() + bias[0].numel() :]
        self._samples, self._y = played.samples, on.y

    def __call__(self, coalitions: np.ndarray) -> np.ndarray:
        """From boolean [S, k], over those who answered, to float64 [S]."""
        some = torch.from_numpy(coalitions).to(self._y.device).split(MODELS)
        return torch.cat([self._accuracy(members) for members in some]).cpu().numpy()

    def _accuracy(self, members: Tensor) -> Tensor:
        weights = members * self._samples
        nobody = ~members.any(1, keepdim=True)
        shares = torch.cat([weights / weights.sum(1, keepdim=True).clamp_min(1), nobody], 1).to(self._rest)
        a = (shares @ self._first.flatten(1)).unflatten(1, self._first.shape[1:])
        for w, b in self._above.views(shares @ self._rest):
            a = torch.baddbmm(b.unsqueeze(1), a.relu_(), w)
        return (a.argmax(2) == self._y).double().mean(1)
