"""Validation, test and normalisation."""

import numpy as np
import pytest

from fedsac.data.catalogue import DataSet, load
from fedsac.data.split import split, stratified
from fedsac.errors import FedsacError
from fedsac.rng import stream


def test_digits_are_split_80_20_and_then_90_10_with_nothing_shared():
    dealt = split(load("digits"), "pow", 10, None, seed=0)
    whole = dealt.data
    assert len(dealt.y_test) == pytest.approx(0.2 * 1797, abs=5)
    assert len(dealt.validation) == pytest.approx(0.1 * 0.8 * 1797, abs=5)
    for labels in (dealt.y_test, whole.y[dealt.validation]):
        counts = np.bincount(labels, minlength=10)
        assert counts.max() - counts.min() <= 2
    mine = np.concatenate(dealt.rows)
    assert len(np.unique(mine)) == len(mine) <= 1797 - len(dealt.y_test) - len(dealt.validation)
    assert not set(mine) & set(dealt.validation)


@pytest.mark.parametrize("clients", [2, 10, 40])
@pytest.mark.parametrize("scene", ["pow", "cla"])
def test_the_default_for_digits_fits(scene, clients):
    assert len(split(load("digits"), scene, clients, None, seed=1).rows) == clients


def test_seeds_deal_differently_and_each_the_same_every_time():
    data = load("digits")
    one, again, two = (split(data, "pow", 5, None, seed) for seed in (0, 0, 1))
    assert all((a == b).all() for a, b in zip(one.rows, again.rows, strict=True))
    assert set(one.validation) != set(two.validation)


def test_normalisation_comes_from_validation_data_alone():
    data = load("digits")
    dealt = split(data, "pow", 5, None, seed=0)
    x = data.x[dealt.validation] / 16
    assert dealt.mean == pytest.approx(x.mean())  # one channel
    assert dealt.deviation == pytest.approx(x.std())


def table(columns: np.ndarray) -> DataSet:
    n, d = columns.shape
    y = np.arange(n) % 2
    return DataSet("own", columns, y, ("a", "b"), np.arange(d), 1.0)


def test_a_constant_feature_counts_as_deviation_1():
    rng = np.random.default_rng(0)
    columns = np.stack([np.full(200, 0.1), rng.normal(5, 3, 200), np.zeros(200)], 1)
    dealt = split(table(columns), "iid", 2, None, seed=0)
    assert dealt.deviation[[0, 2]].tolist() == [1, 1]
    assert dealt.mean[1] == pytest.approx(columns[dealt.validation, 1].mean())


def test_too_few_samples_for_three_sets():
    with pytest.raises(FedsacError, match="6 samples are too few"):
        split(table(np.ones((6, 1))), "iid", 2, None, seed=0)


def test_stratified_parts_are_disjoint_and_whole():
    y = np.repeat([0, 1, 2], [50, 30, 21])
    chosen, rest = stratified(y, np.arange(101), 0.1, stream(0, "v"))
    assert np.bincount(y[chosen]).tolist() == [5, 3, 2]
    assert sorted([*chosen, *rest]) == list(range(101))
