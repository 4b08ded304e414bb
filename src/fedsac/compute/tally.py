"""What is kept of the members' logits, chunk by chunk, until their scores can be computed: as little as the metric
needs."""

import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from fedsac.core.metrics import ClassCounts, Metric, accuracy, from_counts, name_of
from fedsac.errors import FedsacError

PROBABILITY_BYTES = 64 << 20  # of float64 probabilities at a time, for metrics that want all of a member's


class Tally(Protocol):
    """The scores of a stack's members under way."""

    @property
    def members_at_once(self) -> int:
        """How many members may be in work at a time: all samples of these before any of the next ones."""

    def add(self, members: slice, rows: slice, logits: Tensor, labels: Tensor) -> None:
        """Some members' logits [members, rows, classes] of some samples, and their labels [members, rows]."""

    def scores(self) -> Tensor:
        """Of all members: float64 [S] on the CPU. A GPU is waited for."""


def tally(metric: Metric, members: int, classes: int, labels: Tensor) -> Tally:
    """What a metric needs, of members evaluated on samples with `labels` [n]."""
    if metric is accuracy:
        return Right(members, labels)
    counted = from_counts(metric)
    if counted is not None:
        return PerClass(counted, members, classes, labels)
    return Gathered(metric, members, classes, labels)


class Right:
    """Accuracy: how many predictions are right."""

    def __init__(self, members: int, labels: Tensor) -> None:
        self.members_at_once = max(1, members)
        self._right = torch.zeros(members, dtype=torch.int64, device=labels.device)
        self._samples = len(labels)

    def add(self, members: slice, rows: slice, logits: Tensor, labels: Tensor) -> None:
        self._right[members] += (logits.argmax(2) == labels).sum(1)

    def scores(self) -> Tensor:
        # Counts become fractions on the CPU: a GPU's division may differ in the last bit.
        return self._right.cpu().double() / self._samples


class PerClass:
    """Metrics of each class's counts: how often it is predicted, and how often rightly."""

    def __init__(self, metric: Callable[[ClassCounts], float], members: int, classes: int, labels: Tensor) -> None:
        self.members_at_once = max(1, members)
        self._metric, self._labels = metric, labels
        self._predicted = torch.zeros(members, classes, dtype=torch.int64, device=labels.device)
        self._right = torch.zeros_like(self._predicted)

    def add(self, members: slice, rows: slice, logits: Tensor, labels: Tensor) -> None:
        predicted = logits.argmax(2)
        # Otherwise the probabilities are NaN: no class is predicted (see core.metrics).
        defined = logits.amax(2).isfinite()
        self._predicted[members].scatter_add_(1, predicted, defined.long())
        self._right[members].scatter_add_(1, labels, (defined & (predicted == labels)).long())

    def scores(self) -> Tensor:
        predicted, right = self._predicted.cpu().numpy(), self._right.cpu().numpy()
        labelled = np.bincount(self._labels.cpu().numpy(), minlength=predicted.shape[1])
        counts = (ClassCounts(labelled, *of_member) for of_member in zip(predicted, right, strict=True))
        return torch.tensor([self._metric(each) for each in counts], dtype=torch.float64)


class Gathered:
    """Any other metric: a function of all samples' probabilities, called for one member after another.

    Logits are kept where they were computed, of as many members as `PROBABILITY_BYTES` has room for (at least one),
    and moved to the CPU before those of the next members replace them; the last ones when the scores are asked for.
    """

    def __init__(self, metric: Metric, members: int, classes: int, labels: Tensor) -> None:
        each = torch.float64.itemsize * len(labels) * classes
        self.members_at_once = max(1, min(members, PROBABILITY_BYTES // max(1, each)))
        self._metric, self._members, self._labels = metric, members, labels
        self._first, self._logits = 0, torch.empty(0)  # the first member that is kept; logits [kept, n, classes]
        self._scores: list[float] = []

    def add(self, members: slice, rows: slice, logits: Tensor, labels: Tensor) -> None:
        first = members.start - members.start % self.members_at_once
        if first != self._first or not len(self._logits):
            self._measure()
            kept = min(self.members_at_once, self._members - first)
            self._first, self._logits = first, logits.new_empty(kept, len(self._labels), logits.shape[2])
        start = members.start - first
        self._logits[start : start + len(logits), rows] = logits

    def scores(self) -> Tensor:
        self._measure()
        return torch.tensor(self._scores, dtype=torch.float64)

    def _measure(self) -> None:
        """The scores of the members whose logits are kept; these are then given up."""
        labels = self._labels.cpu().numpy()
        labels.setflags(write=False)  # the same for every member, and on a CPU the data set's own
        for logits in self._logits.cpu():
            score = self._metric(labels, logits.double().softmax(1).numpy())
            self._scores.append(_finite(score, self._metric))
        self._logits = torch.empty(0)


def _finite(score: Any, metric: Metric) -> float:
    try:
        number = float(score) if np.ndim(score) == 0 else math.nan
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        shown = " ".join(repr(score).split())[:60]
        raise FedsacError(
            f"the metric {name_of(metric)} returned {shown}: make it return one finite number, also for the NaN "
            "probabilities of a model that diverged"
        )
    return number
