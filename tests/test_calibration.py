"""Targets inside BCF, submodels that come near them, damped aggregation."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import fedsac
from benchmarks.plus.variants import ServerOrder
from fedsac import Config
from fedsac.compute.samples import Samples
from fedsac.core import metrics
from fedsac.core.aggregation import aggregate, aggregate_damped
from fedsac.core.allocation import prefixes
from fedsac.core.units import Layout
from fedsac.methods.ablations import NoAllocation
from fedsac.methods.shared.calibration import ValidationParts, _smoothed, calibrated_lengths, standard_error
from fedsac.methods.shared.targets import targets
from tests.golden import small

contributions = st.lists(st.floats(0.1, 0.6), min_size=2, max_size=8).map(np.array)


def calibrated_neurons(task, model, importance, rows, **asked):
    return prefixes(importance, calibrated_lengths(task, model, importance, rows, **asked))


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


def test_generous_targets_by_hand():
    """The bounds are .2 to .35 and .3 to .4, and the best one gets .5. On a line lie (.2, .35, .5) up to (.3, .4, .5);
    (.35, .4, .5), the most that there is, has a correlation of .015 / sqrt(.02 * .011667) = .982."""
    c = np.array([0.2, 0.3, 0.4])
    assert targets(c, 0.5, 0.0, 0.0, 0.02).tolist() == pytest.approx([0.35, 0.4, np.inf])
    first, second, _ = targets(c, 0.5, 0.0, 0.0, 0.001)
    assert 0.29 < first < 0.34 and 0.395 < second <= 0.4
    first, second, _ = targets(c, 0.5, 0.0, 0.0)
    assert second == pytest.approx((first + 0.5) / 2, abs=1e-3)


def test_generous_submodels():
    """Between .2 and .5, and .3 and .55, when the best one gets .8: at most 62 and 68 of 100 neurons, k / 125 each."""
    given = detectors((0.2, 0.3, 0.4))
    rows, importance = torch.arange(125), torch.arange(100.0)
    strict, generous = (
        calibrated_neurons(given, given.initial, importance, rows, room=0.0, smooth=0, generous=share).sum(1).tolist()
        for share in (0.0, 0.1)
    )
    assert generous in ([62, 69, 100], [63, 69, 100])  # .5 lies in the middle of 62 and 63
    assert strict[0] < 62 and strict[1] <= 69
    for share, expected in ((0.0, strict), (0.1, generous)):
        method = NoAllocation(calibrated=True, room=0.0, smooth=0, generous=share)
        assert method.start(given)["neurons"].sum(1).tolist() == expected


def test_equal_contributors_get_equal_targets():
    goal = targets(np.array([0.2, 0.3, 0.3, 0.4, 0.4]), 0.6, 0.005, 1.0)
    assert goal[1] == goal[2] and goal[3] == goal[4] == np.inf


@pytest.mark.parametrize("c", [(0.1, 0.5, 0.6), (0.1, 0.4, 0.6)])
def test_a_model_no_better_than_its_clients_is_given_to_all_of_those(c):
    assert np.isinf(targets(np.array(c), 0.4, 0.01, 1.0)).tolist() == [False, True, True]


def test_a_target_in_the_middle_where_there_is_little_room():
    """Between .4 and (.4 + .5) / 2 = .45, or between .2 and .35, with a margin of 1 asked for."""
    assert targets(np.array([0.4, 0.45]), 0.5, 1.0, 1.0).tolist() == pytest.approx([0.425, np.inf])
    assert targets(np.array([0.2, 0.45]), 0.5, 1.0, 1.0).tolist() == pytest.approx([0.275, np.inf])


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


def test_the_standard_error_of_an_accuracy():
    """100 of 125 right: sqrt(.8 .2 / 125), to float64's last digits."""
    given = detectors((0.1, 0.4, 0.35))
    assert standard_error(given, given.initial, torch.arange(125), 0.8) == pytest.approx(0.16 / 20**0.5, rel=1e-13)


def test_the_standard_error_of_one_sample_and_of_a_score_below_zero():
    given = replace(small.task(), metric=lambda labels, p: -1.0 - p[:, 0].mean())
    score = float(given.evaluate(given.initial.unsqueeze(0), None))
    rows = torch.arange(len(small.LABELS))
    assert score < 0 < standard_error(given, given.initial, rows, score) < 0.1
    assert standard_error(given, given.initial, rows[:1], score) == 0


def test_the_standard_error_of_two_samples():
    """By the jackknife, half of the difference between the two: so much for a mean of two values."""
    given = replace(small.task(), metric=lambda labels, p: float(p[:, 0].mean()))
    first, second = (
        float(given.evaluate(given.initial.unsqueeze(0), None, given.part(torch.tensor([i])))) for i in (0, 9)
    )
    assert first != second
    error = standard_error(given, given.initial, torch.tensor([0, 9]), (first + second) / 2)
    assert error == pytest.approx(abs(first - second) / 2)


def detectors(contributions):
    """A network of 100 neurons, and a V of 125 samples, all of class 1: neuron j sees sample j and nothing else, and
    nothing sees the last 25. So k neurons are right on k of 125 samples."""
    layout = Layout((100, 100, 2))
    model = torch.zeros(layout.parameters, dtype=torch.float64)
    (first, _), (second, bias) = layout.views(model)
    first.fill_diagonal_(1)
    second[:, 1], bias[0] = 1, 0.5
    one, zero = torch.ones(1, 100, dtype=torch.float64), torch.zeros(1, 100, dtype=torch.float64)
    seen = Samples(torch.eye(125, 100, dtype=torch.float64), torch.ones(125, dtype=torch.long), one, zero)
    return replace(small.task(contributions=contributions), layout=layout, initial=model, validation=seen)


@pytest.mark.parametrize("room", [0.0, 1.0])
def test_each_client_gets_the_prefix_nearest_to_its_target(room):
    """Of prefixes up to 80 neurons shorter than the whole, all are measured; of the shorter ones, every fourth."""
    measured = [1, 5, 9, 13, 17, *range(20, 101)]
    importance = torch.from_numpy(np.random.default_rng(0).permutation(100) * 1.0)
    order, error, lengths = importance.argsort().tolist(), np.sqrt(0.8 * 0.2 / 125), set()
    for least in np.linspace(0.005, 0.3, 60):
        given = detectors((float(least), 0.4, 0.35))
        held = calibrated_neurons(given, given.initial, importance, torch.arange(125), room=room, smooth=0).tolist()
        goals = targets(np.array(given.contributions), 0.8, error, room)
        for own, goal in zip(held, goals, strict=True):
            k = 100 if goal == np.inf else min(measured, key=lambda k, goal=goal: abs(k / 125 - goal))
            assert own == [n in order[:k] for n in range(100)]
            lengths.add(k)
    assert {13, 17, 20, 100} <= lengths  # both kinds were chosen


def test_prefixes_are_measured_on_the_calibration_rows_alone():
    """On the 100 samples that are seen, k neurons score k / 100, and the whole model makes no error."""
    given, rows = detectors((0.1, 0.4, 0.35)), torch.arange(100)
    held = calibrated_neurons(given, given.initial, torch.arange(100.0), rows, room=1.0, smooth=0)
    goals = targets(np.array(given.contributions), 1.0, 0.0, 1.0)
    expected = [100 if goal == np.inf else round(100 * goal) for goal in goals]
    assert held.sum(1).tolist() == pytest.approx(expected, abs=1)


def test_submodels_calibrated_by_another_metric():
    """Where all samples are of one class, balanced accuracy is accuracy; its error is the jackknife's."""
    given, rows = replace(detectors((0.2, 0.4, 0.35)), metric=metrics.balanced_accuracy), torch.arange(125)
    held = calibrated_neurons(given, given.initial, torch.arange(100.0), rows, room=1.0, smooth=0)
    error = standard_error(given, given.initial, rows, 0.8)
    assert error == pytest.approx(np.sqrt(0.8 * 0.2 / 125), rel=0.5)
    goals = targets(np.array(given.contributions), 0.8, error, 1.0)
    assert [n / 125 for n in held.sum(1).tolist()] == pytest.approx(
        np.where(goals == np.inf, 0.8, goals), abs=0.5 / 125
    )


def test_what_the_server_trains_on_is_not_what_submodels_are_calibrated_on():
    """NoAllocation: all neurons count the same, so that the order does not depend on V."""
    given = detectors((0.1, 0.4, 0.35))
    for steps, share in ((0, 0.0), (1, 0.5)):
        state = NoAllocation(calibrated=True, server_steps=steps).start(given)
        rows = ValidationParts.draw(given, share).calibration_rows
        asked = {"room": 2.0, "smooth": 4, "generous": 0.0}
        expected = calibrated_neurons(given, given.initial, state["importance"], rows, **asked)
        assert len(rows) == (63 if steps else 125) and state["neurons"].tolist() == expected.tolist()


def test_a_variant_orders_by_the_servers_part_and_calibrates_on_the_other():
    """What lies in one part of V does not reach what follows from the other: its labels are exchanged."""
    given = small.task()
    parts, labels = ValidationParts.draw(given, 0.5), given.validation.y
    method = ServerOrder(room=0.5)
    state = method.start(given)
    expected = given.importance(given.initial, parts.server_rows)
    assert torch.equal(state["importance"], expected)
    assert not torch.allclose(expected, given.importance(given.initial))
    for rows, changes_order in ((parts.calibration_rows, False), (parts.server_rows, True)):
        y = labels.clone()
        y[rows] = 1 - y[rows]
        other = method.start(replace(given, validation=replace(given.validation, y=y)))
        assert torch.equal(other["importance"], state["importance"]) != changes_order
    asked = {"room": 0.5, "smooth": method.smooth, "generous": method.generous}
    lengths = calibrated_lengths(given, given.initial, expected, parts.calibration_rows, **asked)
    assert torch.equal(state["neurons"], prefixes(expected, lengths))


def test_who_has_a_target_below_the_whole_model_does_not_get_it():
    """The second client's target is between .7999 and .79995: the whole model's .8 is nearer than 99 neurons' .792."""
    given = detectors((0.5, 0.7999, 0.79995))
    state = NoAllocation(calibrated=True, room=0.0, smooth=0).start(given)
    assert state["neurons"].sum(1).tolist()[1:] == [99, 100] and not state["neurons"][0].all()


@pytest.mark.parametrize(("neurons", "held"), [(1, [1, 1, 1]), (2, [1, 1, 2]), (3, [1, 2, 3])])
def test_prefixes_of_very_small_networks(neurons, held):
    """Of k neurons, each right on one of four samples: targets from .05 on, just below k / 4, and all of them. A single
    neuron cannot be divided."""
    layout, best = Layout((4, neurons, 2)), neurons / 4
    model = torch.zeros(layout.parameters, dtype=torch.float64)
    (first, _), (second, bias) = layout.views(model)
    first.fill_diagonal_(1)
    second[:, 1], bias[0] = 1, 0.5
    one, zero = torch.ones(1, 4, dtype=torch.float64), torch.zeros(1, 4, dtype=torch.float64)
    seen = Samples(torch.eye(4, dtype=torch.float64), torch.ones(4, dtype=torch.long), one, zero)
    given = replace(
        small.task(contributions=(0.05, best - 0.002, best - 0.001)), layout=layout, initial=model, validation=seen
    )
    found = calibrated_neurons(given, model, torch.arange(neurons * 1.0), torch.arange(4), room=0.0, smooth=0)
    assert found.sum(1).tolist() == held


def test_nobody_but_the_best_contributor_holds_everything():
    given = detectors((0.1, 0.4, 0.399))
    assert NoAllocation(calibrated=True).start(given)["neurons"].all(1).tolist() == [False, True, False]


@pytest.mark.parametrize(("share", "server"), [(0.0, 0), (0.01, 1), (0.5, 75), (0.25, 37), (0.99, 148)])
def test_v_is_dealt_out_between_the_server_and_calibration(share, server):
    given = small.task()
    parts = ValidationParts.draw(given, share)
    own, rest = parts.server_rows.tolist(), parts.calibration_rows.tolist()
    assert len(own) == server and sorted(own + rest) == list(range(150))
    assert own == sorted(own) and rest == sorted(rest)
    if server > 1:  # at random, the same in every round
        assert own != list(range(server)) and own == ValidationParts.draw(given, share).server_rows.tolist()
        assert own != ValidationParts.draw(replace(given, seed=1), share).server_rows.tolist()


@pytest.mark.parametrize("share", [0.006, 1.0])
def test_both_parts_of_v_have_at_least_one_sample(share):
    with pytest.raises(fedsac.FedsacError, match="of V's 150 samples leaves none"):
        ValidationParts.draw(small.task(), share)


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
