"""What is kept of the logits of a stack's members, one chunk of samples after the other, until scores can be computed:
no more than the metric needs."""

import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from fedsac.core.metrics import ClassCounts, Metric, accuracy, from_counts, name_of
from fedsac.errors import FedsacError

PROBABILITY_BYTES = 64 << 20  # of float64 probabilities at a time, for metrics that need all samples of a member


class Tally(Protocol):
    """Accumulates what the scores of a stack's S members are computed from."""

    @property
    def members_at_once(self) -> int:
        """How many members may be evaluated at a time: all samples of these are added before any of the next ones."""

    def add(self, members: slice, rows: slice, logits: Tensor, labels: Tensor) -> None:
        """Add the logits [members, rows, classes] of some members on some samples, and the labels [members, rows]."""

    def scores(self) -> Tensor:
        """The scores of all members, float64 [S] on the CPU; waits for a GPU."""


def make_tally(metric: Metric, members: int, classes: int, labels: Tensor) -> Tally:
    """The tally for a metric, of members that are evaluated on samples with `labels` [n]."""
    if metric is accuracy:
        return AccuracyTally(members, labels)
    counted = from_counts(metric)
    if counted is not None:
        return ClassCountTally(counted, members, classes, labels)
    return ProbabilityTally(metric, members, classes, labels)


class AccuracyTally:
    """For accuracy: counts the right predictions of each member."""

    def __init__(self, members: int, labels: Tensor) -> None:
        self.members_at_once = max(1, members)
        self._right = torch.zeros(members, dtype=torch.int64, device=labels.device)
        self._samples = len(labels)

    def add(self, members: slice, rows: slice, logits: Tensor, labels: Tensor) -> None:
        self._right[members] += (logits.argmax(2) == labels).sum(1)

    def scores(self) -> Tensor:
        # Counts become fractions on the CPU: a GPU's division may differ in the last bit.
        return self._right.cpu().double() / self._samples


class ClassCountTally:
    """For metrics of class counts: counts how often each class is predicted, and how often rightly, by each member."""

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


class ProbabilityTally:
    """For any other metric, a function of the probabilities of all samples: called for one member after another.

    Logits are kept on the device, for as many members as `PROBABILITY_BYTES` has room for (at least one). They are
    copied to the CPU and scored before those of the next members replace them; the last ones in `scores`.
    """

    def __init__(self, metric: Metric, members: int, classes: int, labels: Tensor) -> None:
        member_bytes = torch.float64.itemsize * len(labels) * classes
        self.members_at_once = max(1, min(members, PROBABILITY_BYTES // max(1, member_bytes)))
        self._metric, self._members, self._labels = metric, members, labels
        self._first, self._logits = 0, torch.empty(0)  # index of the first kept member; logits [kept, n, classes]
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
        """Compute the scores of the members whose logits are kept, and drop the logits."""
        labels = self._labels.cpu().numpy()
        labels.setflags(write=False)  # a user's metric must not change them: on a CPU they are the data set's own array
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
