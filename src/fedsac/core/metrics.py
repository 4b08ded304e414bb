"""Metrics of classifiers: the scores by which contributions, rewards and calibration can be measured.

A metric is a plain function of labels [n] (integers) and predicted probabilities [n, classes] (float64) and returns a
score: a finite number, higher is better, at most 1. The predicted class is the most probable one, the first of them
where several tie. A sample whose probabilities contain NaN, as those of a diverged model do, counts as wrong: it has no
predicted class, and AUC counts every pair that it belongs to as wrongly ordered.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedsac.core.ranks import average_ranks

Metric = Callable[[np.ndarray, np.ndarray], float]

_DISPLAY_NAMES = {"balanced-accuracy": "balanced accuracy", "macro-f1": "macro-F1", "auc": "AUC"}


def accuracy(labels: np.ndarray, probabilities: np.ndarray) -> float:
    """The share of samples whose predicted class is their label; 0 without samples.

    Three of four:

    >>> accuracy(np.array([0, 0, 0, 1]), np.array([[.9, .1], [.8, .2], [.7, .3], [.6, .4]]))
    0.75
    """
    right = int((_predicted(probabilities) == labels).sum())
    return right / len(labels) if len(labels) else 0.0


def balanced_accuracy(labels: np.ndarray, probabilities: np.ndarray) -> float:
    """Mean recall over the classes that occur in the labels, where recall = (samples of the class that are predicted
    as it) / (samples of the class); 0 without samples.

    Recalls 3/3 and 0/1:

    >>> balanced_accuracy(np.array([0, 0, 0, 1]), np.array([[.9, .1], [.8, .2], [.7, .3], [.6, .4]]))
    0.5
    """
    return _mean_recall(_counts(labels, probabilities))


def macro_f1(labels: np.ndarray, probabilities: np.ndarray) -> float:
    """Mean F1 over the classes that occur in the labels or among the predictions, where F1 = 2 (samples of the class
    that are predicted as it) / (samples of the class + samples predicted as it); 0 without samples.

    A class that is never predicted rightly has F1 = 0 and counts. The same as scikit-learn's
    `f1_score(average="macro", zero_division=0)`.

    F1 = 2 * 2 / (3 + 2) of class 0 and 2 * 1 / (1 + 2) of class 1:

    >>> round(macro_f1(np.array([0, 0, 0, 1]), np.array([[.9, .1], [.8, .2], [.3, .7], [.4, .6]])), 6)
    0.733333
    """
    return _mean_f1(_counts(labels, probabilities))


def auc(labels: np.ndarray, probabilities: np.ndarray) -> float:
    """Area under the ROC curve: the share of pairs of a positive and a negative sample in which the positive one has
    the higher probability, ties counted half (Mann-Whitney's U / (positives * negatives)).

    Of two classes, class 1 is the positive one. Of more, each class in turn is positive and all others negative
    (one-vs-rest), and the mean is taken over the classes that have both positive and negative samples. With no such
    class (only one class occurs in the labels) the score is 0.5, that of a random order.

    Of the four pairs three are ordered rightly and one is a tie:

    >>> auc(np.array([0, 0, 1, 1]), np.array([[.9, .1], [.6, .4], [.6, .4], [.2, .8]]))
    0.875
    """
    defined = ~np.isnan(probabilities).any(1)
    classes = probabilities.shape[1]
    areas = []
    for k in (1,) if classes == 2 else range(classes):
        positive = labels == k
        pairs = int(positive.sum()) * int((~positive).sum())
        if pairs:
            ranks = average_ranks(probabilities[defined, k])[positive[defined]]
            areas.append((float(ranks.sum()) - len(ranks) * (len(ranks) + 1) / 2) / pairs)
    return float(np.mean(areas)) if areas else 0.5


def confusion(labels: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """How many samples of each class (rows) are predicted as which (columns), [classes, classes]. Not a metric: a score
    is one number. Samples without a predicted class are in no column.

    >>> confusion(np.array([0, 0, 0, 1]), np.array([[.9, .1], [.8, .2], [.3, .7], [.4, .6]])).tolist()
    [[2, 1], [0, 1]]
    """
    predicted, classes = _predicted(probabilities), probabilities.shape[1]
    defined = predicted >= 0
    cells = labels[defined] * classes + predicted[defined]
    return np.bincount(cells, minlength=classes * classes).reshape(classes, classes)


def name_of(metric: Metric) -> str:
    """A metric's name: that of the function, or of its class where it is a callable object.

    >>> name_of(macro_f1)
    'macro_f1'
    """
    return str(getattr(metric, "__name__", type(metric).__name__))


def display_name(metric: str) -> str:
    """How a report spells the metric that a config names; one's own keeps its `module:function`.

    >>> [display_name(name) for name in ("accuracy", "balanced-accuracy", "macro-f1", "auc", "mine:recall_of_ill")]
    ['accuracy', 'balanced accuracy', 'macro-F1', 'AUC', 'mine:recall_of_ill']
    """
    return _DISPLAY_NAMES.get(metric, metric)


@dataclass(frozen=True)
class ClassCounts:
    """Samples of each class, [classes] each: row sums, column sums and diagonal of the confusion matrix."""

    labelled: np.ndarray
    predicted: np.ndarray
    right: np.ndarray


def from_counts(metric: Metric) -> Callable[[ClassCounts], float] | None:
    """The metric as a function of class counts, which can be summed over chunks of samples without keeping their
    probabilities; None where counts are not enough to compute it."""
    countable = ((balanced_accuracy, _mean_recall), (macro_f1, _mean_f1))
    return next((counted for one, counted in countable if one is metric), None)


def _mean_recall(counts: ClassCounts) -> float:
    occurs = counts.labelled > 0
    return float((counts.right[occurs] / counts.labelled[occurs]).mean()) if occurs.any() else 0.0


def _mean_f1(counts: ClassCounts) -> float:
    both = counts.labelled + counts.predicted
    occurs = both > 0
    return float((2 * counts.right[occurs] / both[occurs]).mean()) if occurs.any() else 0.0


def _counts(labels: np.ndarray, probabilities: np.ndarray) -> ClassCounts:
    predicted, classes = _predicted(probabilities), probabilities.shape[1]
    return ClassCounts(
        labelled=np.bincount(labels, minlength=classes),
        predicted=np.bincount(predicted[predicted >= 0], minlength=classes),
        right=np.bincount(labels[predicted == labels], minlength=classes),
    )


def _predicted(probabilities: np.ndarray) -> np.ndarray:
    """The most probable class of each sample [n], the first where several tie; -1 where there are NaNs."""
    return np.where(np.isnan(probabilities).any(1), -1, probabilities.argmax(1))
