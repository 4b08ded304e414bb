"""Details of the paper's formulas, in numbers worked out by hand or found by trying everything."""

import numpy as np
import pytest
import torch

import fedsac
from fedsac import FedsacError, Layout
from fedsac.core.aggregation import aggregate_damped, aggregate_submodels
from fedsac.core.allocation import allocate, shares
from fedsac.core.fairness import alpha_bcf, bcf, collaboration_gain, fairness, gamma, gamma_limit
from fedsac.core.metrics import ClassCounts, accuracy, auc, balanced_accuracy, from_counts, macro_f1


def test_the_hidden_layers_of_a_layout():
    layout = Layout((3, 5, 4, 2))
    assert layout.hidden == (5, 4) and layout.neurons == 9
    assert layout.parameters == 3 * 5 + 5 + 5 * 4 + 4 + 4 * 2 + 2
    assert layout.smaller(torch.tensor([True] * 3 + [False] * 5 + [True])).sizes == (3, 3, 1, 2)


def test_a_damped_average_is_of_updates():
    """Updates (3, 2, -1) and (7, -, -); two holders, one, one. By 2 at least: 1 + 10/2, 2 + 2/2, 3 - 1/2."""
    previous = torch.tensor([1.0, 2.0, 3.0])
    models = torch.tensor([[4.0, 4.0, 2.0], [8.0, 99.0, 99.0]])
    held = torch.tensor([[True, True, True], [True, False, False]])
    assert aggregate_damped(models, held, previous, least_holders=2.0).tolist() == [6.0, 3.0, 2.5]
    assert aggregate_damped(models, held, previous, least_holders=0.0).tolist() == [6.0, 4.0, 2.0]
    assert aggregate_damped(models, ~held & False, previous, least_holders=0.0).tolist() == [1.0, 2.0, 3.0]


def test_where_only_some_hold_a_layers_inputs():
    """A 1-2-1 network: b0 b1 after w0 w1, then v0 v1 and c. Client 0 holds neuron 0, client 1 neuron 1."""
    models = torch.tensor([[1.0, -9, 2, -9, 3, -9, 4], [-9, 10, -9, 20, -9, 30, 40]])
    neurons = torch.tensor([[True, False], [False, True]])
    merged = aggregate_submodels(Layout((1, 2, 1)), models, neurons, torch.zeros(7))
    assert merged.tolist() == [1, 10, 2, 20, 3, 30, 22]


def test_shares_where_nothing_is_positive():
    assert shares(torch.tensor([0.0, 0.0, 0.0, 0.0])).tolist() == [25] * 4
    assert shares(torch.tensor([0.0, -1.0])).tolist() == [50, 50]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_importance_that_is_no_number(value):
    with pytest.raises(FedsacError, match="importance is not a number"):
        allocate(torch.tensor([0.1, value]), [100.0])


def test_a_thousandth_is_forgiven():
    """Ten neurons of 10 each."""
    equal = torch.ones(10, dtype=torch.float64)
    held = allocate(equal, [30.0, 29.9991, 29.9989, 29.0, 100.0]).sum(1)
    assert held.tolist() == [3, 3, 2, 2, 10]


def test_only_the_best_reputation_holds_everything():
    held = allocate(torch.ones(4, dtype=torch.float64), [50.0 - 1e-7, 50.0]).sum(1)
    assert held.tolist() == [2, 4]


def test_bcf_leaves_its_bounds_out():
    """Bounds c and (c + 1) / 2, of which .25, .75 and .625 are exact."""
    c, best = 0.25, 0.875
    assert bcf([c, best - 0.125], [c, 1]).tolist() == [False, True]
    assert bcf([c, best - 0.125], [0.625, 1]).tolist() == [False, True]
    assert bcf([c, best - 0.125], [0.62499, 1]).tolist() == [True, True]
    assert bcf([c, best - 0.125], [0.25001, 1]).tolist() == [True, True]


def test_alpha_bcf_leaves_out_its_lower_bound_alone():
    """Of max c = 1 and max theta = 1, the upper bound at c = .5 is .5 * .5 + .5 = .75."""
    assert alpha_bcf([0.5, 0.75], [0.5, 1.0]).tolist() == [False, True]
    assert alpha_bcf([0.5, 1.0], [0.75, 1.5], alpha=0.0).tolist() == [True, True]
    assert alpha_bcf([0.5, 1.0], [0.75, 1.0]).tolist() == [True, False]
    assert alpha_bcf([0.5, 1.0], [0.7501, 1.0]).tolist() == [False, False]


def test_alpha_bcf_where_nobody_contributes():
    assert alpha_bcf([0.0, 0.0], [0.25, 0.5]).tolist() == [True, True]
    assert alpha_bcf([0.0, 0.0], [0.0, 0.5]).tolist() == [False, True]


def test_small_whole_numbers_do_not_wrap_around():
    """Percents in one byte: 60 + 90 is more than it holds, and 50 - 60 less."""
    c, theta = np.array([50, 60, 70], dtype=np.int8), np.array([60, 76, 90], dtype=np.int8)
    assert bcf(c, theta).tolist() == [True, False, True]
    byte = np.uint8
    assert collaboration_gain(np.array([60, 50], dtype=byte), np.array([50, 70], dtype=byte)).tolist() == [-10, 20]
    assert gamma_limit(np.array([50, 60, 100], dtype=byte), 120.0) == gamma_limit([50.0, 60.0, 100.0], 120.0)


def test_scores_of_four_bytes_are_worked_out_in_eight():
    draw = np.random.default_rng(0)
    for _ in range(50):
        c, theta = draw.uniform(0.1, 0.5, 6).astype(np.float32), draw.uniform(0.5, 1, 6).astype(np.float32)
        # On the edge of alpha-BCF, but for rounding.
        theta[:5] = ((0.5 * c / c.max() + 0.5) * theta.max())[:5]
        wide = c.astype(np.float64), theta.astype(np.float64)
        assert fairness(c, theta) == fairness(*wide)
        assert gamma(c, theta) == gamma(*wide)
        assert alpha_bcf(c, theta).tolist() == alpha_bcf(*wide).tolist()
        assert gamma_limit(c, float(theta.max())) == gamma_limit(wide[0], float(theta.max()))


def test_gamma_is_never_more_than_100():
    draw = np.random.default_rng(0)
    for _ in range(200):
        c = draw.uniform(0.1, 0.5, 7)
        assert 99.999999 < gamma(c, 0.3 * c + 0.2) <= 100
        assert -100 <= gamma(c, 0.9 - 0.3 * c) < -99.999999
        assert gamma_limit(c, 2.0) <= 100


def by_trying_everything(c: list[float], best: float) -> float:
    """gamma*, of three contributions the last of which is the best: a grid over the two other rewards, again and
    again closing in on its highest point."""
    c = np.array(c)
    low, high = c[:2].copy(), (c[:2] + best) / 2
    centre, width = (low + high) / 2, high - low
    for _ in range(14):
        steps = centre + width * np.linspace(-0.5, 0.5, 41)[:, None]
        one, two = (axis.ravel() for axis in np.meshgrid(*np.clip(steps, low, high).T))
        theta = np.stack([one, two, np.full(len(one), best)], 1)
        centred, spread = c - c.mean(), theta - theta.mean(1, keepdims=True)
        scores = spread @ centred / np.sqrt((spread**2).sum(1) * (centred @ centred))
        at = scores.argmax()
        centre, width = theta[at, :2], width * 0.3
    return float(100 * scores[at])


@pytest.mark.parametrize(
    ("c", "best"),
    [
        ([0.3, 0.48, 0.5], 0.6),
        ([0.1, 0.49, 0.5], 0.9),
        ([0.1, 0.12, 0.5], 0.51),
        ([0.48, 0.3, 0.5], 0.95),
        ([0.1, 0.3, 0.31], 0.99),
        ([0.01, 0.5, 0.98], 0.99),
    ],
)
def test_gamma_limit_is_what_trying_everything_finds(c, best):
    assert gamma_limit(c, best) == pytest.approx(by_trying_everything(c, best), abs=1e-6)


def by_trying_every_line(c: np.ndarray, best: float, steepest: float = 6.0) -> float:
    """gamma*, of any number of contributions: the lines m + b (c - mean c), clipped to the bounds, on a grid of
    heights m and slopes b (of up to `steepest`) that closes in on its highest point."""
    top = c == c.max()
    low, high = np.where(top, best, c), np.where(top, best, (c + best) / 2)
    centre, width, finest = np.array([best, steepest]) / 2, np.array([best, steepest]), np.linspace(-0.5, 0.5, 101)
    for _ in range(24):
        m, b = (axis.ravel() for axis in np.meshgrid(*(centre + width * finest[:, None]).T))
        theta = np.clip(m[:, None] + b[:, None] * (c - c.mean()), low, high)
        centred, spread = c - c.mean(), theta - theta.mean(1, keepdims=True)
        scores = spread @ centred / np.sqrt((spread**2).sum(1) * (centred @ centred))
        at = scores.argmax()
        centre, width = np.array([m[at], b[at]]), width * 0.5
    return float(100 * scores[at])


@pytest.mark.parametrize("seed", range(12))
def test_gamma_limit_is_that_of_the_best_line(seed):
    draw = np.random.default_rng(seed)
    c = draw.uniform(0.1, 0.6, 3 + seed % 5)
    best = c.max() + (0.02, 0.1, 0.3)[seed % 3]
    assert gamma_limit(c, best) == pytest.approx(by_trying_every_line(c, best), abs=1e-5)


@pytest.mark.parametrize(
    ("c", "best"),
    [
        ([0.3, 0.12, 0.14, 0.31, 0.27], 0.58),
        ([0.11, 0.29, 0.25, 0.2, 0.27, 0.09], 0.48),
        ([0.09, 0.47, 0.1, 0.49, 0.41, 0.1], 0.69),
    ],
)
def test_gamma_limit_where_the_best_line_lies_between_two_that_are_tried(c, best):
    assert gamma_limit(c, best) == pytest.approx(by_trying_every_line(np.array(c), best), abs=1e-8)


@pytest.mark.parametrize(
    ("c", "best"),
    [
        # Clients far below the best reward, whose upper bounds decide.
        ([0.11, 0.1, 0.11, 0.12, 0.1, 0.09, 0.09, 0.06], 0.92),
        ([0.21, 0.21, 0.24, 0.25, 0.07, 0.14, 0.2], 0.75),
        # Lines as flat as the contributions, and a best reward just above them.
        ([0.6, 0.76, 0.82, 0.85, 0.75, 0.85, 0.84], 0.87),
        ([0.78, 0.52, 0.67, 0.61, 0.77], 0.8),
        # Steep and shallow ones.
        ([0.09, 0.1, 0.11, 0.11, 0.05, 0.11, 0.08, 0.09], 0.91),
        ([0.39, 0.35, 0.15, 0.54, 0.38, 0.46, 0.4], 1.0),
        # A line that fits all bounds, found at an end of a grid.
        ([0.22, 0.44, 0.21, 0.18, 0.3, 0.3, 0.58, 0.15], 0.59),
        ([0.62, 0.51, 0.6], 0.63),
    ],
)
def test_gamma_limit_of_many_clients_near_and_far_from_the_best(c, best):
    c = np.array(c)
    steepest = 2 * (best - c.min()) / np.ptp(c)
    assert gamma_limit(c, best) == pytest.approx(by_trying_every_line(c, best, steepest), abs=1e-5)


def test_gamma_limit_where_a_line_fits():
    """c and (c + .75) / 2 leave room for a line through (.5, .75) with a slope of .6 or more, up to 1."""
    assert gamma_limit([0.1, 0.2, 0.5], 0.75) == pytest.approx(by_trying_everything([0.1, 0.2, 0.5], 0.75), abs=1e-6)
    assert gamma_limit([0.25, 0.5], 0.75) == pytest.approx(100, abs=1e-9)


def test_everything_reported_of_a_round():
    c, theta = [0.3, 0.4, 0.5], [0.4, 0.55, 0.6]
    found = fairness(c, theta)
    assert found.gamma == pytest.approx(100 * np.corrcoef(c, theta)[0, 1])
    assert found.gamma_limit == pytest.approx(by_trying_everything(c, 0.6), abs=1e-6)
    # The second client has more than (.4 + .6) / 2 = .5, and more than (.5 * .8 + .5) * .6 = .54.
    assert found.bcf == pytest.approx(2 / 3) and found.alpha_bcf == pytest.approx(2 / 3)
    assert found.accuracy == pytest.approx({"max": 0.6, "mean": 1.55 / 3, "min": 0.4})
    assert found.mcg == pytest.approx(0.35 / 3)
    assert found.cgs == pytest.approx(np.std([0.1, 0.15, 0.1]))
    # Inside BCF but outside alpha-BCF, and the other way round, so that the two cannot be taken for each other.
    one = fairness([0.1, 0.5, 0.5], [0.44, 0.55, 1.0])
    assert (one.bcf, one.alpha_bcf) == (1.0, pytest.approx(1.0))
    other = fairness([0.1, 0.2], [0.6, 0.8])
    assert (other.bcf, other.alpha_bcf) == (0.5, 1.0)


def test_metrics_from_counts_alone():
    """Recalls 3/4, 1/2 and none; F1 6/(4 + 5), 2/(2 + 1), and nothing of the class that never occurs."""
    counts = ClassCounts(np.array([4, 2, 0]), np.array([5, 1, 0]), np.array([3, 1, 0]))
    recall, f1 = from_counts(balanced_accuracy), from_counts(macro_f1)
    assert recall(counts) == pytest.approx((3 / 4 + 1 / 2) / 2)
    assert f1(counts) == pytest.approx((6 / 9 + 2 / 3) / 2)
    nothing = ClassCounts(*[np.zeros(3, dtype=int)] * 3)
    assert recall(nothing) == 0 and f1(nothing) == 0
    # A class that is only ever predicted counts for F1; one with a single sample counts for both.
    lone = ClassCounts(np.array([1, 0]), np.array([0, 1]), np.array([0, 0]))
    assert recall(lone) == 0 and f1(lone) == 0
    assert f1(ClassCounts(np.array([2, 1]), np.array([3, 0]), np.array([2, 0]))) == pytest.approx((4 / 5 + 0) / 2)
    assert from_counts(accuracy) is None and from_counts(auc) is None and from_counts(lambda y, p: 0.5) is None


def test_auc_of_three_classes():
    """One-vs-rest areas: class 0 puts its one sample last of three (0 of 2 pairs), class 1 first, class 2 at a tie."""
    labels = np.array([0, 1, 2])
    p = np.array([[0.1, 0.2, 0.3], [0.2, 0.9, 0.3], [0.3, 0.1, 0.3]])
    assert auc(labels, p) == pytest.approx((0 + 1 + 0.5) / 3)


def test_a_reputation_from_a_tensor_or_a_list():
    values = [0.1, 0.7]
    assert torch.equal(fedsac.reputation(values, 5), fedsac.reputation(torch.tensor(values, dtype=torch.float64), 5))
