"""Which classes the members of a stack take for which."""

import numpy as np
from torch import Tensor

from fedsac.compute.evaluation import evaluate
from fedsac.compute.samples import Samples
from fedsac.core.metrics import confusion
from fedsac.core.module_layout import AnyLayout


def confusions(layout: AnyLayout, params: Tensor, neurons: Tensor | None, samples: Samples) -> np.ndarray:
    """Of every member, how many samples of each class (rows) it predicts as which (columns): [S, classes, classes].
    The arguments are those of `evaluate`."""
    counts: list[np.ndarray] = []

    def count(labels: np.ndarray, probabilities: np.ndarray) -> float:
        counts.append(confusion(labels, probabilities))
        return 0.0

    # `evaluate` calls what is no metric of class counts with all probabilities of one member after the other.
    evaluate(layout, params, neurons, samples, metric=count)
    return np.stack(counts)
