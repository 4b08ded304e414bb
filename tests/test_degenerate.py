"""Numbers that mean little: equal contributions, no importance, absurd scales, a sample, a class. What comes of them is
one line, or finite."""

import json

import numpy as np
import pytest
import torch
from torch import nn

import fedsac
from fedsac import Config, FedsacError
from fedsac.doors import METHODS

TINY = Config(rounds=2, clients=3, hidden=(4,), local_steps=2, standalone_steps=3)
DRAW = np.random.default_rng(0)
X, Y = DRAW.normal(size=(90, 5)), np.arange(90) % 3
SCORES = {
    "equal": [0.5, 0.5, 0.5],
    "zero": [0.0, 0.0, 0.0],
    "one client": [0.5],
    "huge": [1e150, -1e150, 0.0],
    "tiny": [1e-200, 2e-200, 3e-200],
    "huge and tiny": [1e150, 1e-200, 0.0],
    "the least there is": [5e-324, 0.0, 0.0],
}


def played(data, **settings):
    """A tiny run with its numbers checked: all finite, and the models, too."""
    result = fedsac.run(TINY.replace(**settings), data=data)
    json.dumps(result.summary(), allow_nan=False)
    json.dumps(list(result.records), allow_nan=False)
    assert all(bool(model.params.isfinite().all()) for model in result.reward_models)
    return result


@pytest.mark.parametrize("c", SCORES.values(), ids=SCORES)
def test_measures_of_fairness_are_finite_or_undefined(c):
    theta = c[::-1]
    for measure in (fedsac.gamma, fedsac.bcf, fedsac.alpha_bcf, fedsac.mcg, fedsac.cgs):
        value = measure(c, theta)
        assert value is None or np.isfinite(value).all()
    json.dumps(fedsac.fairness(c, theta).as_dict(), allow_nan=False)
    for limit in (fedsac.gamma_limit(c, 0.9), fedsac.gamma_attainable(c, theta, 0.9)):
        assert limit is None or -100 <= limit <= 100


def test_fairness_does_not_depend_on_the_scale():
    """All scores times the same: gamma and its limits are those of the scores as they were."""
    c, theta = np.array([0.3, 0.48, 0.5]), np.array([0.4, 0.5, 0.6])
    for scale in (1e-200, 1e-80, 1e80, 1e149):
        assert fedsac.gamma(scale * c, scale * theta) == pytest.approx(fedsac.gamma(c, theta), abs=1e-9)
        assert fedsac.gamma_limit(scale * c, scale * 0.6) == pytest.approx(fedsac.gamma_limit(c, 0.6), abs=1e-6)


@pytest.mark.parametrize("beta", [0, 1000, 1e300])
@pytest.mark.parametrize("c", SCORES.values(), ids=SCORES)
def test_reputations_are_from_0_to_100_and_the_best_has_100(c, beta):
    r = fedsac.reputation(c, beta)
    assert r.min() >= 0 and r.max() == 100
    assert r[int(np.argmax(c))] == 100
    if beta == 0:
        assert (r == 100).all()


@pytest.mark.parametrize(
    "values", [[0.0] * 4, [-1.0] * 4, [-1e-200, 0.0, -1e150, 0.0]], ids=["zero", "negative", "of all sizes"]
)
def test_importance_of_none_is_shared_equally(values):
    """By hand: 25 % each, so that a reputation of 50 is worth two of four neurons."""
    assert fedsac.shares(values).tolist() == [25.0] * 4
    assert fedsac.allocate(values, [0, 50, 100]).sum(1).tolist() == [1, 2, 4]


@pytest.mark.parametrize("values", [[1e150, 1e-200, 0.0, -5.0], [5e-324] * 4, [1e-320, 0.0, 0.0, 0.0]])
def test_importance_of_absurd_sizes(values):
    found = fedsac.shares(values)
    assert bool(found.isfinite().all()) and found.sum() == pytest.approx(100)
    held = fedsac.allocate(values, [0, 50, 100])
    assert held.any(1).all() and held[2].all()
    assert bool((held[0] <= held[1]).all())


@pytest.mark.parametrize("values", [[float("nan"), 1.0], [float("inf"), 1.0], [1e308, 1e308], []])
def test_importance_that_is_none_is_refused(values):
    with pytest.raises(FedsacError) as refused:
        fedsac.allocate(values, [50, 100])
    assert "\n" not in str(refused.value)


def test_importance_of_a_model_that_says_nothing():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    found = fedsac.importance(model, torch.zeros(1, 3), torch.zeros(1, dtype=torch.int64))
    assert found.tolist() == [0.0] * 4
    with pytest.raises(FedsacError):
        fedsac.importance(model, torch.full((1, 3), float("nan")), torch.zeros(1, dtype=torch.int64))


@pytest.mark.parametrize("scale", [2.0**498, 2.0**-664], ids=["1e150", "1e-200"])
def test_the_scale_of_features_does_not_matter(scale):
    """A power of two: normalised, the features are the same to the last bit, and so is everything after."""
    as_it_was, scaled = played((X, Y)), played((X * scale, Y))
    assert scaled.contributions == as_it_was.contributions
    assert scaled.rewards == as_it_was.rewards


@pytest.mark.parametrize("method", [name for name in METHODS if "server" not in name and name != "fedavg-v-client"])
def test_features_of_all_sizes_at_once(method):
    mixed = X * np.array([1e150, 1e-200, 1.0, 0.0, 1e-320])
    played((mixed, Y), method=method)
    played((mixed, Y), method=method, beta=1000.0, scene="iid")


@pytest.mark.parametrize("beta", [0.0, 1000.0])
@pytest.mark.parametrize("method", ["fedsac", "fedsac-plus", "fedrac", "aequa"])
def test_beta_at_its_ends(method, beta):
    result = played((X, Y), method=method, beta=beta)
    if method == "fedsac" and beta == 0:  # everybody's reputation is 100
        assert result.records[-1]["neurons"] == [4, 4, 4]


def test_equal_silos_contribute_equally_and_hold_everything():
    part = X[:30], Y[:30]
    result = played({"a": part, "b": part, "validation": (X[60:], Y[60:])}, clients=None)
    assert len(set(result.contributions.validation)) <= 2
    assert fedsac.reputation([0.4, 0.4], 5).tolist() == [100, 100]


@pytest.mark.parametrize("method", ["fedsac", "fedsac-plus", "fedavg", "cgsv", "qffl", "iafl"])
def test_clients_with_one_sample_or_one_class(method):
    silos = {"one": (X[:1], Y[:1]), "same": (X[Y == 1][:9], Y[Y == 1][:9]), "all": (X[3:60], Y[3:60])}
    result = played(silos | {"validation": (X[60:], Y[60:])}, method=method)
    assert result.clients == ("all", "one", "same")
    silos["validation"] = X[60:61], Y[60:61]  # the server has one sample, too
    if method == "fedsac-plus":
        with pytest.raises(FedsacError, match="leaves none for it or for calibration"):
            played(silos, method=method)
    else:
        played(silos, method=method)


def test_constant_features_say_nothing_and_break_nothing():
    played((np.full_like(X, 7.0), Y))
    played((np.zeros_like(X), Y))


@pytest.mark.parametrize(
    ("x", "y", "says"),
    [
        (np.where(X > 2, np.nan, X), Y, "is nan; fill it in"),
        (np.where(X > 2, np.inf, X), Y, "is inf; fill it in"),
        (np.where(X > 0, 1.7e308, X), Y, "features are so large that their mean overflows"),
        (X, Y * 0, "every label is '0'; give samples of at least 2 classes"),
        (X[:3], Y[:3], "3 samples are too few"),
        (X[:1], Y[:1], "give samples of at least 2 classes"),
        (X[:0], Y[:0], "no sample"),
    ],
)
def test_data_that_cannot_be_used_is_refused_in_a_line(x, y, says):
    with pytest.raises(FedsacError) as refused:
        played((x, y))
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_given_contributions_that_are_all_equal_or_absurd(tmp_path):
    path = tmp_path / "given.json"
    for values in ([0.5] * 3, [0.0] * 3, [1e150, 1e-200, 0.0], [-1.0, -2.0, -3.0]):
        path.write_text(json.dumps(dict(zip(("client-01", "client-02", "client-03"), values, strict=True))))
        result = played((X, Y), contributions=str(path))
        if len(set(values)) == 1:
            assert result.records[-1]["neurons"] == [4, 4, 4]
