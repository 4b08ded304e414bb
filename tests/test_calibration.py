"""Targets inside BCF, submodels that come near them, damped aggregation."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import fedsac
from fedsac import Config
from fedsac.compute.samples import Samples
from fedsac.core import metrics
from fedsac.core.aggregation import aggregate, aggregate_damped
from fedsac.methods.shared.calibration import _smoothed, standard_error
from fedsac.methods.shared.targets import targets
from tests.golden import small

contributions = st.lists(st.floats(0.1, 0.6), min_size=2, max_size=8).map(np.array)


def rewards(c, best, error, room):
    goal = targets(c, best, error, room)
    return np.where(np.isinf(goal), best, goal)


@settings(deadline=None)
@given(contributions, st.floats(0.05, 0.3), st.floats(0, 0.02), st.floats(0.1, 3))
def test_targets_are_inside_bcf(c, above, error, room):
    assume(error > 1e-6)
    best = c.max() + above
    assert fedsac.bcf(c, rewards(c, best, error, room)).all()


@settings(deadline=None)
@given(contributions, st.floats(0.05, 0.3))
def test_without_noise_they_reach_the_limit(c, above):
    assume(np.ptp(c) > 0.02)
    best = c.max() + above
    reached = fedsac.gamma(c, rewards(c, best, 0.0, 0.0))
    assert reached == pytest.approx(fedsac.gamma_limit(c, best), abs=0.5)


@settings(deadline=None)
@given(contributions, st.floats(0.05, 0.3), st.floats(0.001, 0.01), st.floats(0.001, 0.05))
def test_generous_targets_give_more_for_as_little_correlation_as_allowed(c, above, error, generous):
    assume(np.ptp(c) > 0.02)
    best = c.max() + above
    strict, more = (targets(c, best, error, 1.0, share) for share in (0.0, generous))
    given_to_all = [np.where(np.isinf(goal), best, goal) for goal in (strict, more)]
    assert given_to_all[1].mean() >= given_to_all[0].mean() - 1e-12
    assert fedsac.gamma(c, given_to_all[1]) >= fedsac.gamma(c, given_to_all[0]) - 100 * generous - 1e-6
    assert fedsac.bcf(c, given_to_all[1]).all()


def test_equal_contributors_get_equal_targets():
    goal = targets(np.array([0.2, 0.3, 0.3, 0.4, 0.4]), 0.6, 0.005, 1.0)
    assert goal[1] == goal[2] and goal[3] == goal[4] == np.inf


def test_a_model_no_better_than_its_clients_is_given_to_all_of_those():
    assert np.isinf(targets(np.array([0.1, 0.5, 0.6]), 0.4, 0.01, 1.0)[1:]).all()


def test_damping_by_hand():
    models = torch.tensor([[4.0, 4.0, 1.0], [8.0, 0.0, 1.0]])
    held = torch.tensor([[True, True, False], [True, False, False]])
    previous = torch.tensor([2.0, 2.0, 7.0])
    # Two hold the first: (2 + 6) / 2 = 4 more. One holds the second: 2 / max(1, 2) = 1 more. Nobody holds the third.
    assert aggregate_damped(models, held, previous, least_holders=2.0).tolist() == [6.0, 3.0, 7.0]
    undamped = aggregate_damped(models, held, previous, least_holders=0.0)
    assert undamped.tolist() == aggregate(models, held, previous).tolist()


def test_smoothing_leaves_the_whole_model_alone():
    lengths, accuracy = np.array([1, 2, 3, 4, 5]), np.array([0.1, 0.3, 0.2, 0.4, 0.9])
    assert _smoothed(lengths, accuracy, 1).tolist() == pytest.approx([0.2, 0.2, 0.3, 0.3, 0.9])
    assert _smoothed(lengths, accuracy, 0).tolist() == accuracy.tolist()


def drawn(rng, metric, n=500):
    """A task whose V has n fresh samples, one of ten in class 1, 1.4 further on in x and in y."""
    y = (rng.random(n) < 0.1).astype(int)
    x = rng.normal(size=(n, 2)) + 1.4 * y[:, None]
    given = small.task(metric=metric)
    one, zero = torch.ones(1, 2, dtype=torch.float64), torch.zeros(1, 2, dtype=torch.float64)
    return replace(given, validation=Samples(torch.from_numpy(x), torch.from_numpy(y), one, zero))


# Class 1 where x + y > 2: relu(x + y + .6) is its logit, 2.6 the other's; the second neuron does nothing.
LINE = torch.tensor([1.0, 0, 1, 0, 0.6, 0, 0, 1, 0, 0, 2.6, 0], dtype=torch.float64)


@pytest.mark.parametrize("name", ["accuracy", "balanced_accuracy", "macro_f1", "auc"])
def test_the_standard_error_is_how_far_scores_of_fresh_samples_scatter(name):
    rng, metric = np.random.default_rng(0), getattr(metrics, name)
    scores, errors = [], []
    for _ in range(120):
        given = drawn(rng, metric)
        score = float(given.evaluate(LINE.unsqueeze(0), None))
        scores.append(score)
        errors.append(standard_error(given, LINE, torch.arange(500), score))
    true, n = float(np.std(scores)), 500
    assert np.median(errors) == pytest.approx(true, rel=0.2)
    if name == "balanced_accuracy":  # accuracy's formula does not see that class 1 has fifty samples only
        p = float(np.mean(scores))
        assert np.sqrt(p * (1 - p) / n) < 0.7 * true


def test_the_standard_error_of_one_sample_and_of_a_score_below_zero():
    given = replace(small.task(), metric=lambda labels, p: -1.0 - p[:, 0].mean())
    score = float(given.evaluate(given.initial.unsqueeze(0), None))
    rows = torch.arange(len(small.LABELS))
    assert score < 0 < standard_error(given, given.initial, rows, score) < 0.1
    assert standard_error(given, given.initial, rows[:1], score) == 0


def test_calibrated_submodels_hold_bcf_on_validation_data_better_than_fedsacs():
    config = Config(data="digits", scene="cla", rounds=30, clients=6, hidden=(60, 40))
    shares = {}
    for method in ("fedsac", "fedsac-plus"):
        result = fedsac.run(config.replace(method=method))
        last = result.last["rewards_validation"]
        shares[method] = fedsac.bcf(result.contributions.validation, last).mean()
    assert shares["fedsac-plus"] > shares["fedsac"]


def test_submodels_are_nested_prefixes():
    result = fedsac.run(Config(rounds=4, clients=5, hidden=(30, 20), method="fedsac-plus", standalone_steps=40))
    sizes = sorted(result.reward_models, key=lambda network: network.params.numel())
    for less, more in pairwise(sizes):
        assert all(a <= b for a, b in zip(less.layout.sizes, more.layout.sizes, strict=True))
        assert set(less.params.tolist()) <= set(more.params.tolist())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"server_share": 0.0}, "server_share must lie between 0 and 1"),
        ({"server_steps": -3}, "server_steps must be at least 0"),
        ({"importance_every": 0}, "importance_every must be at least 1"),
        ({"room": "nan"}, "option room must be a number"),
        ({"smooth": 2.5}, "option smooth must be a whole number"),
    ],
)
def test_impossible_options_are_refused(options, says):
    with pytest.raises(fedsac.FedsacError, match=says):
        fedsac.run(Config(rounds=1, options=options))


def test_each_part_is_an_option_of_fedsac():
    base = Config(rounds=3, clients=4, hidden=(20, 15), local_steps=5, standalone_steps=20)
    plain = fedsac.run(base)
    for options in ({"damping": 1.0}, {"server_steps": 3}, {"calibrated": True}):
        other = fedsac.run(base.replace(options=options))
        assert (other.global_model.params != plain.global_model.params).any(), options
