"""gamma, BCF, and the limit that BCF sets to gamma."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import pearsonr, spearmanr

import fedsac
from fedsac.core.fairness import cgs, collaboration_gain, mcg, spearman

accuracy = st.floats(0.01, 0.99)


@given(st.lists(st.tuples(accuracy, accuracy), min_size=2, max_size=12))
def test_gamma_is_pearsons(pairs):
    c, theta = np.array(pairs).T
    assume(np.ptp(c) > 1e-6 and np.ptp(theta) > 1e-6)
    assert fedsac.gamma(c, theta) == pytest.approx(100 * pearsonr(c, theta).statistic, abs=1e-6)


@pytest.mark.parametrize(
    ("c", "theta"), [([0.1, 0.1], [0.2, 0.3]), ([0.1, 0.2], [0.3, 0.3]), ([0.1], [0.2]), ([0.1] * 3, [0.1] * 3)]
)
def test_gamma_is_undefined_without_spread(c, theta):
    assert fedsac.gamma(c, theta) is None
    assert fedsac.fairness(c, theta).gamma is None
    assert spearman(c, theta) is None


@given(st.lists(st.tuples(accuracy, accuracy), min_size=2, max_size=12), st.integers(1, 3))
def test_spearman_is_scipys_to_the_last_bit(pairs, digits):
    c, theta = np.array(pairs).round(digits).T  # with ties
    assume(np.ptp(c) > 0 and np.ptp(theta) > 0)
    assert spearman(c, theta) == float(100 * spearmanr(c, theta).statistic)


def test_spearman_of_the_same_order_is_100():
    assert spearman([0.1, 0.5, 0.2], [0.2, 0.9, 0.8]) == pytest.approx(100)
    assert spearman([0.1, 0.5, 0.2], [0.9, 0.2, 0.8]) == pytest.approx(-100)
    # Ranks 1, 2.5, 2.5 and 1, 2, 3, less their means: (-1, .5, .5) . (-1, 0, 1) = 1.5, over the norms' product.
    assert spearman([0.1, 0.2, 0.2], [0.3, 0.4, 0.5]) == pytest.approx(100 * 1.5 / np.sqrt(1.5 * 2))


def test_collaboration_gain_by_hand():
    c, theta = [0.2, 0.4, 0.6, 0.6], [0.5, 0.5, 0.7, 0.5]
    gains = [0.3, 0.1, 0.1, -0.1]
    assert collaboration_gain(c, theta).tolist() == pytest.approx(gains)
    assert mcg(c, theta) == pytest.approx(0.1)
    # Deviations .2, 0, 0 and -.2: a variance of .08 / 4, not .08 / 3.
    assert cgs(c, theta) == pytest.approx(np.sqrt(0.02))
    found = fedsac.fairness(c, theta)
    assert (found.mcg, found.cgs) == (mcg(c, theta), cgs(c, theta))
    assert list(found.as_dict()) == ["gamma", "gamma_limit", "bcf", "alpha_bcf", "accuracy", "mcg", "cgs"]


def test_gamma_cannot_see_that_everybody_lost():
    c, theta = np.array([0.5, 0.6, 0.7]), np.array([0.2, 0.3, 0.4])
    assert fedsac.gamma(c, theta) == pytest.approx(100)
    assert mcg(c, theta) == pytest.approx(-0.3) and cgs(c, theta) == pytest.approx(0, abs=1e-12)


@given(st.lists(st.tuples(accuracy, accuracy), min_size=1, max_size=8), st.randoms())
def test_permuting_clients_permutes_who_is_inside(pairs, random):
    order = list(range(len(pairs)))
    random.shuffle(order)
    c, theta = np.array(pairs).T
    for inside in (fedsac.bcf, fedsac.alpha_bcf):
        assert (inside(c[order], theta[order]) == inside(c, theta)[order]).all()


def test_equal_models_for_all_are_no_bounded_fairness():
    # Seven of ten hold the whole model; the upper bounds of the first three are .35 .36 .37.
    c = [0.2, 0.22, 0.24, 0.3, 0.31, 0.32, 0.33, 0.34, 0.35, 0.36]
    inside = fedsac.bcf(c, [0.3, 0.355, 0.38, *[0.5] * 7])
    assert inside.tolist() == [True, True, False, *[False] * 6, True]


def test_whoever_contributes_most_is_exempt_whatever_it_gets():
    # Two contribute most, one of them gets less than another client: the bound (.4 + .6) / 2 is not asked of it.
    assert fedsac.bcf([0.1, 0.4, 0.4], [0.6, 0.55, 0.6]).tolist() == [False, True, True]
    assert fedsac.bcf([0.1, 0.4, 0.4], [0.3, 0.4, 0.6]).tolist() == [True, False, True]


def test_alpha_bcf_by_hand():
    # c/max c = .5, 1; bounds (.5 * .5 + .5) * .8 = .6 and .8, both included.
    assert fedsac.alpha_bcf([0.2, 0.4], [0.6, 0.8]).tolist() == [True, True]
    assert fedsac.alpha_bcf([0.2, 0.4], [0.601, 0.8]).tolist() == [False, True]
    # No better than alone; and the best reward to someone who is not the best contributor: bound (1/3 + .5) * .8.
    assert fedsac.alpha_bcf([0.6, 0.4], [0.6, 0.8]).tolist() == [False, False]


def by_optimiser(c: np.ndarray, best: float) -> float:
    """gamma* found by a general optimiser over the box, from many starts."""
    top = c == c.max()
    free = ~top
    low, high = c[free], (c[free] + best) / 2

    def loss(theta: np.ndarray) -> float:
        whole = np.full(len(c), best)
        whole[free] = theta
        return -(fedsac.gamma(c, whole) or -100)

    rng = np.random.default_rng(0)
    starts = [low, high, (low + high) / 2, *(rng.uniform(low, high) for _ in range(10))]
    bounds = list(zip(low, high, strict=True))
    return -min(minimize(loss, start, bounds=bounds, method="L-BFGS-B").fun for start in starts)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0.1, 0.6), min_size=2, max_size=6), st.floats(0.01, 0.3))
def test_gamma_limit_is_what_an_optimiser_finds(c, above):
    c = np.array(c)
    assume(np.ptp(c) > 0.02)
    best = c.max() + above
    limit = fedsac.gamma_limit(c, best)
    assert limit == pytest.approx(by_optimiser(c, best), abs=2e-3)


@given(st.lists(st.tuples(st.floats(0.1, 0.6), st.floats(0.001, 0.999)), min_size=2, max_size=8), st.floats(0.01, 0.3))
def test_no_rewards_inside_bcf_exceed_the_limit(pairs, above):
    c, inside = np.array(pairs).T
    assume(np.ptp(c) > 1e-3)
    best = c.max() + above
    theta = np.where(c == c.max(), best, c + inside * (best - c) / 2)
    limit = fedsac.gamma_limit(c, best)
    assert limit is not None
    assert (fedsac.gamma(c, theta) or -100) <= limit + 1e-3


def test_gamma_limit_of_contributions_that_lie_close():
    assert fedsac.gamma_limit([0.1, 0.1001, 0.1002], 0.9) == pytest.approx(100, abs=1e-3)


def test_gamma_limit_does_not_exist_where_nothing_is_inside_bcf():
    assert fedsac.gamma_limit([0.3, 0.5], 0.5) is None
    assert fedsac.gamma_limit([0.3, 0.3], 0.5) is None
