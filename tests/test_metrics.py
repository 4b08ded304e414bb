"""Accuracy, balanced accuracy, macro-F1 and AUC against scikit-learn, and by hand where it has no answer."""

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata
from sklearn import metrics as sklearn_metrics

from fedsac import doors
from fedsac.core.metrics import accuracy, auc, balanced_accuracy, macro_f1, name_of
from fedsac.core.ranks import average_ranks

NAN = float("nan")
METRICS = {name: doors.METRICS.resolve(name) for name in doors.METRICS}


@st.composite
def predictions(draw, classes=(2, 5), samples=(1, 30)):
    """Labels, and probabilities of few different values, so that there are ties within samples and between them."""
    n, k = draw(st.integers(*samples)), draw(st.integers(*classes))
    labels = draw(st.lists(st.integers(0, k - 1), min_size=n, max_size=n))
    weights = draw(st.lists(st.lists(st.integers(1, 4), min_size=k, max_size=k), min_size=n, max_size=n))
    probabilities = np.array(weights, dtype=np.float64).reshape(n, k)
    return np.array(labels, dtype=np.int64), probabilities / probabilities.sum(1, keepdims=True)


@given(predictions())
def test_accuracy_is_scikit_learns(case):
    labels, probabilities = case
    assert accuracy(labels, probabilities) == sklearn_metrics.accuracy_score(labels, probabilities.argmax(1))


@given(predictions())
def test_balanced_accuracy_is_scikit_learns(case):
    labels, probabilities = case
    recall = sklearn_metrics.recall_score(
        labels, probabilities.argmax(1), labels=np.unique(labels), average="macro", zero_division=0
    )
    assert balanced_accuracy(labels, probabilities) == pytest.approx(recall, abs=1e-12)


@given(predictions())
def test_macro_f1_is_scikit_learns(case):
    labels, probabilities = case
    expected = sklearn_metrics.f1_score(labels, probabilities.argmax(1), average="macro", zero_division=0)
    assert macro_f1(labels, probabilities) == pytest.approx(expected, abs=1e-12)


@given(predictions(classes=(2, 2)))
def test_auc_of_two_classes_is_the_binary_auc_of_class_1(case):
    labels, probabilities = case
    if len(np.unique(labels)) == 1:
        assert auc(labels, probabilities) == 0.5
    else:
        expected = sklearn_metrics.roc_auc_score(labels, probabilities[:, 1])
        assert auc(labels, probabilities) == pytest.approx(expected, abs=1e-12)


def test_auc_of_two_classes_does_not_look_at_class_0():
    # 1 - 1e-17 rounds to 1: class 0's probabilities tie where class 1's do not.
    probabilities = np.array([[1.0, 1e-18], [1.0, 1e-17]])
    assert auc(np.array([0, 1]), probabilities) == 1


@given(predictions(classes=(3, 5)))
def test_auc_of_more_classes_is_the_mean_of_one_versus_rest(case):
    labels, probabilities = case
    occurring = [k for k in range(probabilities.shape[1]) if 0 < (labels == k).sum() < len(labels)]
    each = [sklearn_metrics.roc_auc_score(labels == k, probabilities[:, k]) for k in occurring]
    assert auc(labels, probabilities) == pytest.approx(np.mean(each) if each else 0.5, abs=1e-12)
    if len(occurring) == probabilities.shape[1]:
        expected = sklearn_metrics.roc_auc_score(labels, probabilities, multi_class="ovr", average="macro")
        assert auc(labels, probabilities) == pytest.approx(expected, abs=1e-12)


@given(predictions(), st.randoms())
def test_the_order_of_samples_does_not_matter(case, random):
    labels, probabilities = case
    order = list(range(len(labels)))
    random.shuffle(order)
    for metric in METRICS.values():
        assert metric(labels[order], probabilities[order]) == pytest.approx(metric(labels, probabilities), abs=1e-12)


@given(predictions(samples=(0, 6)), st.data())
def test_every_score_is_a_number_between_0_and_1(case, data):
    labels, probabilities = case
    spoilt = data.draw(st.lists(st.booleans(), min_size=len(labels), max_size=len(labels)))
    probabilities[np.array(spoilt, dtype=bool), 0] = NAN
    for metric in METRICS.values():
        score = metric(labels, probabilities)
        assert type(score) is float and math.isfinite(score) and 0 <= score <= 1


def test_a_sample_without_numbers_is_predicted_wrongly():
    labels = np.array([0, 0, 1, 1])
    probabilities = np.array([[0.9, 0.1], [NAN, NAN], [0.2, 0.8], [0.3, 0.7]])
    assert accuracy(labels, probabilities) == 3 / 4
    assert balanced_accuracy(labels, probabilities) == (1 / 2 + 2 / 2) / 2
    # F1 = 2 * 1 / (2 + 1) of class 0 and 2 * 2 / (2 + 2) of class 1: it is a prediction of neither.
    assert macro_f1(labels, probabilities) == pytest.approx((2 / 3 + 1) / 2)
    # Two of the four pairs contain it; the other two are in order.
    assert auc(labels, probabilities) == 2 / 4
    nothing = np.full((4, 2), NAN)
    assert [metric(labels, nothing) for metric in METRICS.values()] == [0, 0, 0, 0]


def test_a_nan_in_one_class_spoils_the_sample():
    # As numpy's argmax would have it, the NaN would win and class 1 be right.
    labels, probabilities = np.array([0, 1]), np.array([[0.9, 0.1], [0.2, NAN]])
    assert accuracy(labels, probabilities) == 1 / 2


def test_without_samples():
    labels, probabilities = np.zeros(0, dtype=np.int64), np.zeros((0, 3))
    scores = {name: metric(labels, probabilities) for name, metric in METRICS.items()}
    assert scores == {"accuracy": 0, "balanced-accuracy": 0, "macro-f1": 0, "auc": 0.5}


def test_the_first_of_equally_probable_classes_is_predicted():
    labels, probabilities = np.array([0, 1]), np.array([[0.5, 0.5, 0.0], [0.2, 0.4, 0.4]])
    assert accuracy(labels, probabilities) == 1


def test_names():
    assert [name_of(metric).replace("_", "-") for metric in METRICS.values()] == list(METRICS)

    def brier(labels, probabilities):
        return 1 - float(((probabilities - np.eye(2)[labels]) ** 2).sum(1).mean()) / 2

    class Weighted:
        def __call__(self, labels, probabilities):
            return 0.0

    assert name_of(brier) == "brier"
    assert name_of(Weighted()) == "Weighted"


@given(st.lists(st.integers(-3, 3), max_size=20))
def test_ranks_are_scipys(values):
    values = np.array(values, dtype=np.float64)
    assert average_ranks(values).tolist() == rankdata(values).tolist()


def test_neither_torch_nor_scipy_is_loaded():
    code = """
import importlib.util, sys
# The package without what its __init__ imports: only the two modules are asked about.
sys.modules["fedsac"] = importlib.util.module_from_spec(importlib.util.find_spec("fedsac"))
import fedsac.core.metrics
import fedsac.core.fairness
print(sorted({"torch", "scipy", "sklearn"} & set(sys.modules)))
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
