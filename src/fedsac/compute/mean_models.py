"""Scores of weighted means of a few models, many means at once."""

import torch
from torch import Tensor

from fedsac.compute.evaluation import evaluate, fold_normalisation
from fedsac.compute.samples import Samples
from fedsac.core.metrics import Metric, accuracy
from fedsac.core.module_layout import AnyLayout, ModuleLayout
from fedsac.core.units import Layout

MODELS_AT_ONCE = 16  # means evaluated at a time


class MeanModels:
    """Weighted means of `models` [k, parameters], scored on the samples `on`.

    Before its ReLU, the first layer's output of a mean is the mean of the models' outputs. So this layer, by far the
    largest, is computed once for each model and not for each of hundreds of means.
    """

    def __init__(self, layout: AnyLayout, models: Tensor, on: Samples, metric: Metric) -> None:
        self._y, self._metric = on.y, metric
        self._any = (layout, models, on) if isinstance(layout, ModuleLayout) else None
        if isinstance(layout, ModuleLayout):
            return
        weight, bias = layout.views(fold_normalisation(layout, models, on.scale, on.shift))[0]
        inputs = on.x.to(models.dtype).expand(len(models), -1, -1)
        self._first = torch.baddbmm(bias.unsqueeze(1), inputs, weight)
        self._later_layout, self._later_params = (
            Layout(layout.sizes[1:]),
            models[:, weight[0].numel() + bias[0].numel() :],
        )

    def scores(self, shares: Tensor) -> Tensor:
        """The scores of S means, float64 [S] on the CPU, from the models' shares [S, k], which add up to 1 in each
        row."""
        if self._any is not None:
            layout, models, on = self._any
            parts = shares.to(models).split(MODELS_AT_ONCE)
            return torch.cat([evaluate(layout, part @ models, None, on, metric=self._metric)[0] for part in parts])
        return torch.cat([self._scores(part) for part in shares.to(self._later_params).split(MODELS_AT_ONCE)]).cpu()

    def _scores(self, shares: Tensor) -> Tensor:
        a = (shares @ self._first.flatten(1)).unflatten(1, self._first.shape[1:])
        for w, b in self._later_layout.views(shares @ self._later_params):
            a = torch.baddbmm(b.unsqueeze(1), a.relu_(), w)
        if self._metric is accuracy:
            right: Tensor = (a.argmax(2) == self._y).double()
            return right.mean(1)
        labels = self._y.cpu().numpy()
        return torch.tensor(
            [self._metric(labels, one.double().softmax(1).cpu().numpy()) for one in a], dtype=torch.float64
        )
