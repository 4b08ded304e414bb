"""The public functions take lists, numpy and torch alike, and refuse what has no answer in one line."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import fedsac
from fedsac import Config, FedsacError
from tests import plain

NAN, INF = math.nan, math.inf
C, THETA = [0.3, 0.4, 0.5], [0.4, 0.55, 0.6]
SIZES = (4, 5, 4, 3)
AS = {
    "list": list,
    "tuple": tuple,
    "numpy": np.asarray,
    "float32 array": lambda v: np.asarray(v, dtype=np.float32).astype(np.float64),
    "reversed bytes": lambda v: np.asarray(v).astype(">f8"),
    "torch": lambda v: torch.tensor(v, dtype=torch.float64),
    "with gradient": lambda v: torch.tensor(v, dtype=torch.float64, requires_grad=True),
    "tensors in a list": lambda v: [torch.tensor(x, dtype=torch.float64) for x in v],
}
OF_SCORES = {
    "gamma": fedsac.gamma,
    "bcf": fedsac.bcf,
    "alpha_bcf": fedsac.alpha_bcf,
    "mcg": fedsac.mcg,
    "cgs": fedsac.cgs,
    "fairness": lambda c, theta: fedsac.fairness(c, theta).as_dict() | {"accuracy": 0},
    "gamma_attainable": lambda c, theta: fedsac.gamma_attainable(c, theta, 0.7),
}


@pytest.mark.parametrize("kind", AS)
@pytest.mark.parametrize("name", OF_SCORES)
def test_scores_come_as_lists_arrays_or_tensors(name, kind):
    of, as_kind = OF_SCORES[name], AS[kind]
    found, expected = of(as_kind(C), as_kind(THETA)), of(C, THETA)
    close = pytest.approx(expected.tolist() if isinstance(expected, np.ndarray) else expected, abs=1e-5)
    assert (found.tolist() if isinstance(found, np.ndarray) else found) == close


@pytest.mark.parametrize("name", OF_SCORES)
@pytest.mark.parametrize(
    ("c", "theta", "says"),
    [
        (C, [0.5], "as many"),  # once broadcast
        ([0.5], THETA, "as many"),
        ([], [], "at least one"),
        ([0.3, NAN, 0.5], THETA, "number 2 is nan"),
        (C, [0.4, 0.5, INF], "number 3 is inf"),
        (C, [0.4, 0.5, 1e200], "at most 1e\\+150"),
        ([[0.3, 0.4, 0.5]], THETA, r"shape \(1, 3\)"),
        (C, ["a", "b", "c"], "must be numbers"),
        (C, [0.1, [0.2], 0.3], "equal rows"),
        (C, None, "must be numbers"),
        (C, 0.5, "a single number"),
        (C, [True, False, True], "must be numbers"),
        (C, [1j, 2, 3], "must be numbers"),
    ],
)
def test_scores_that_are_none_are_refused(name, c, theta, says):
    with pytest.raises(FedsacError, match=says) as refused:
        OF_SCORES[name](c, theta)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("kind", AS)
def test_reputation_of_lists_arrays_and_tensors(kind):
    assert fedsac.reputation(AS[kind](C), np.float32(5)).tolist() == pytest.approx(
        [100 * math.exp(-1), 100 * math.exp(-0.5), 100], abs=1e-4
    )


@pytest.mark.parametrize("bad", [[0.1, NAN], [0.1, INF], [-INF, 0.1], [], [[0.1]], "0.1", [None]])
def test_no_reputation_without_contributions(bad):
    with pytest.raises(FedsacError, match="contributions"):
        fedsac.reputation(bad, 5)


@pytest.mark.parametrize("beta", [-5, NAN, INF, "5", None, [5, 5], True])
def test_beta_is_a_number_of_at_least_0(beta):
    with pytest.raises(FedsacError, match="beta must be"):
        fedsac.reputation(C, beta)


@given(st.lists(st.floats(-1e150, 1e150), min_size=1, max_size=6), st.floats(0, 1e300))
def test_reputation_is_a_number_whatever_the_contributions(c, beta):
    r = fedsac.reputation(c, beta)
    assert ((r >= 0) & (r <= 100)).all()
    assert r.max() == 100


@pytest.mark.parametrize("kind", AS)
def test_allocation_from_lists_arrays_and_tensors(kind):
    mask = fedsac.allocate(AS[kind]([0.02, 0.1, 0.05, -0.01, 0.04]), AS[kind]([36.79, 100.0]))
    assert [row.nonzero().squeeze(1).tolist() for row in mask] == [[0, 3, 4], [0, 1, 2, 3, 4]]
    assert fedsac.shares(AS[kind]([1.0, 3.0])).tolist() == [25, 75]


@pytest.mark.parametrize(
    ("importance", "reputation", "says"),
    [
        ([0.1, 0.2], [NAN, 100], "number 1 is nan"),  # once gave everyone everything
        ([0.1, 0.2], [-1, 100], "from 0 to 100"),
        ([0.1, 0.2], [50, 101], "from 0 to 100"),
        ([0.1, 0.2], [], "at least one"),
        ([0.1, NAN], [50, 100], "not a number"),
        ([1e308, 1e308], [50, 100], "not a number"),  # their sum
        ([], [50, 100], "importance must be one number"),
        ([[0.1]], [50, 100], "importance must be one number"),
        ([True, False], [50, 100], "importance must be one number"),
        (["a"], [100], "must be numbers"),
    ],
)
def test_no_allocation_without_importance_and_reputation(importance, reputation, says):
    with pytest.raises(FedsacError, match=says):
        fedsac.allocate(importance, reputation)


@pytest.mark.parametrize("bad", [[NAN], [INF, 1], [], [[1.0]], "abc"])
def test_no_shares_without_importance(bad):
    with pytest.raises(FedsacError):
        fedsac.shares(bad)


@pytest.mark.parametrize(("alpha", "best"), [(-0.1, NAN), (1.1, INF), (NAN, "0.7"), ("0.5", None), (None, [0.7])])
def test_bounds_are_checked(alpha, best):
    with pytest.raises(FedsacError, match="alpha must be"):
        fedsac.alpha_bcf(C, THETA, alpha)
    with pytest.raises(FedsacError, match="best reward must be"):
        fedsac.gamma_limit(C, best)
    with pytest.raises(FedsacError, match="best reward must be"):
        fedsac.gamma_attainable(C, C, best)


@pytest.mark.parametrize("unit", [1e-170, 1e-90, 1, 1e90, 1e148])
def test_gamma_does_not_depend_on_units(unit):
    c, theta = unit * np.array([1, 9, 11]), unit * np.array([99, 99.2, 99.3]) / 100
    assert fedsac.gamma(c, theta) == pytest.approx(98.974332, abs=1e-5)


@pytest.mark.parametrize("kind", ["list", "numpy", "torch"])
def test_aggregate_of_lists_arrays_and_tensors(kind):
    as_kind = {"list": lambda v: v, "numpy": np.asarray, "torch": torch.tensor}[kind]
    models, held = [[1.0, 2.0, NAN], [3.0, INF, 9.0]], [[True, True, False], [True, False, False]]
    merged = fedsac.aggregate(as_kind(models), as_kind(held), as_kind([0.0, 0.0, 7.0]))
    assert merged.tolist() == [2, 2, 7]


@pytest.mark.parametrize(
    ("models", "held", "previous", "says"),
    [
        ([[1.0, 2.0]], [[True]], [0.0, 0.0], "held of the same shape"),
        ([[1.0, 2.0]], [[True, True]], [0.0], "held of the same shape"),  # once broadcast
        ([1.0, 2.0], [True, True], [0.0, 0.0], "held of the same shape"),
        (np.zeros((0, 2)), np.zeros((0, 2), bool), [0.0, 0.0], "held of the same shape"),
        ([[1.0, 2.0]], [[1, 1]], [0.0, 0.0], "boolean"),
        ([[1.0, NAN]], [[True, True]], [0.0, 0.0], "1 of 2 parameters"),
        ([[1.0, 2.0]], [[True, False]], [0.0, INF], "1 of 2 parameters"),
    ],
)
def test_what_does_not_aggregate_is_refused(models, held, previous, says):
    with pytest.raises(FedsacError, match=says):
        fedsac.aggregate(models, held, previous)


def test_submodels_with_masks_as_lists_and_arrays():
    module, mask = plain.random_module(SIZES), [True, False] * 4 + [True]
    for given_mask in (mask, np.array(mask), torch.tensor(mask)):
        assert fedsac.extract(module, given_mask).layout.sizes == (4, 3, 2, 3)
    for bad in ([1, 0] * 4 + [1], mask[:4], [mask], "mask", None):
        with pytest.raises(FedsacError, match="neurons must be"):
            fedsac.extract(module, bad)


def test_what_is_extracted_or_merged_can_be_called():
    """Of a module, `merge` gives a module: with its Flatten, in its mode, and the one that was given is unchanged."""
    module = nn.Sequential(nn.Flatten(), *plain.random_module((4, 3, 2))).eval()
    before, x = module(torch.ones(2, 2, 2, dtype=torch.float64)), torch.ones(2, 2, 2, dtype=torch.float64)
    mask = [True, False, True]
    small = fedsac.extract(module, mask)
    assert torch.equal(small(x), small.module()(x.flatten(1)))
    assert torch.equal(small(x.tolist()), small(x.numpy()))
    with pytest.raises(FedsacError, match="4 features"):
        small(torch.ones(2, 3))
    merged = fedsac.merge(module, mask, small)
    assert isinstance(merged, nn.Sequential)
    assert [type(part) for part in merged] == [type(part) for part in module]
    assert not merged.training
    assert torch.equal(merged(x), before)
    trained = small.module()
    with torch.no_grad():
        trained[2].bias += 1
    assert torch.allclose(fedsac.merge(module, mask, trained)(x), before + 1)
    assert torch.equal(module(x), before)
    assert isinstance(fedsac.merge(fedsac.Network.of(module), mask, small), fedsac.Network)


def test_importance_of_lists_arrays_and_tensors():
    module, (x, y) = plain.random_module(SIZES), plain.random_data(20, 4, 3)
    expected = fedsac.importance(module, x, y)
    for as_kind in (
        lambda t: t.tolist(),
        lambda t: t.numpy(),
        lambda t: t.float() if t.is_floating_point() else t.int(),
    ):
        assert torch.allclose(fedsac.importance(module, as_kind(x), as_kind(y)), expected, atol=1e-6)
    table = fedsac.find_units(module, x)
    for exact in (True, False):
        of_units = fedsac.unit_importance(module, table, x, y, exact=exact)
        from_lists = fedsac.unit_importance(module, table, x.tolist(), y.tolist(), exact=exact)
        assert torch.equal(of_units, from_lists)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda x, y: (x, y[:-1]), "as many targets as samples"),
        (lambda x, y: (x[:0], y[:0]), "at least one"),
        (lambda x, y: (torch.where(x > 0, x, NAN), y), "entries are NaN"),
        (lambda x, y: (x, y.float()), "whole numbers"),
        (lambda x, y: (x, y - 1), "0..2"),
        (lambda x, y: (x, y + 1), "0..2"),
        (lambda x, y: (x[:, :3], y), "4 features"),
        (lambda x, y: (x[:, 0], y), "4 features"),
        (lambda x, y: (x, y.unsqueeze(1)), "whole numbers"),
        (lambda x, y: ("x", y), "must be numbers"),
    ],
)
def test_no_importance_without_samples(change, says):
    x, y = plain.random_data(20, 4, 3)
    y[0], y[1] = 0, 2
    with pytest.raises(FedsacError, match=says):
        fedsac.importance(plain.random_module(SIZES), *change(x, y))


def test_units_of_any_network_are_checked():
    module, (x, y) = plain.random_module(SIZES), plain.random_data(20, 4, 3)
    table = fedsac.find_units(module, x)
    values = fedsac.unit_importance(module, table, x, y)
    masks = table.allocate(values.tolist(), [20, 100])
    assert torch.equal(masks, table.allocate(values, torch.tensor([20, 100])))
    small = fedsac.smaller(module, table, masks[0].tolist())
    assert small(x).shape == (20, 3)
    state, good = module.state_dict(), (masks[0], small.state_dict())
    assert table.aggregate(state, [good]).keys() == state.keys()
    for bad, says in (
        ({"0.bias": torch.zeros(99)}, "a submodel with these units has"),
        ({"0.bias": small.state_dict()["0.bias"] * NAN}, "0.bias of submodel 2 has entries that are NaN"),
    ):
        with pytest.raises(FedsacError, match=says):
            table.aggregate(state, [good, (masks[0], {**small.state_dict(), **bad})])
    with pytest.raises(FedsacError, match="has no tensor"):
        table.aggregate(state, [(masks[0], {k: v for k, v in small.state_dict().items() if k != "0.bias"})])
    with pytest.raises(FedsacError, match="each of 9 units, not 8"):
        table.allocate(values[:-1], [20, 100])
    with pytest.raises(FedsacError, match="units must be a boolean mask"):
        fedsac.smaller(module, table, [1] * 9)
    with pytest.raises(FedsacError, match="as many targets"):
        fedsac.unit_importance(module, table, x, y[:3])
    with pytest.raises(FedsacError, match="entries are NaN"):
        fedsac.unit_importance(module, table, x * NAN, y)


def test_statistics_need_finite_samples():
    module = nn.Sequential(nn.Identity(), nn.BatchNorm1d(1))
    assert fedsac.with_statistics_of(module, [[0.0], [2.0]])[1].running_mean.tolist() == [1]
    for bad in ([[0.0], [NAN]], np.zeros((0, 1)), 3.0):
        with pytest.raises(FedsacError):
            fedsac.with_statistics_of(module, bad)


def test_runs_are_described_by_configs(tmp_path):
    tiny = Config(rounds=1, clients=2, hidden=(4,))
    for configs, outs, says in (
        ([{"rounds": 1}], None, "fedsac.Config"),
        ([], None, "at least one"),
        ([tiny, tiny], [tmp_path / "a"], "2 configs, 1 folders"),
        ([tiny, tiny], [tmp_path / "a", tmp_path / "b" / ".." / "a"], "same folder"),
    ):
        with pytest.raises(FedsacError, match=says):
            fedsac.run_together(configs, outs)
    assert not list(tmp_path.iterdir())


def test_settings_may_be_numpys():
    config = Config(rounds=np.int64(3), hidden=(np.int32(8),), beta=np.float32(2), seed=np.uint8(1))
    assert config == Config(rounds=3, hidden=(8,), beta=2.0, seed=1)
    assert config.toml() == Config(rounds=3, hidden=(8,), beta=2.0, seed=1).toml()
    for bad in ({"rounds": True}, {"rounds": 1.0}, {"beta": 10**400}, {"beta": np.float32(NAN)}, {"lr": INF}):
        with pytest.raises(FedsacError, match="must be"):
            Config(**bad)


def test_what_is_no_module_is_refused():
    x, y = plain.random_data(20, 4, 3)
    module = plain.random_module(SIZES)
    table = fedsac.find_units(module, x)
    for wrong in (
        lambda: fedsac.find_units(module.state_dict(), x),
        lambda: fedsac.find_units(module),
        lambda: fedsac.units_by_hand("module", {}, x),
        lambda: fedsac.units_by_hand(module, {}),
        lambda: fedsac.smaller(None, table, [True] * 9),
        lambda: fedsac.unit_importance(x, table, x, y),
        lambda: fedsac.with_statistics_of(x, x),
        lambda: fedsac.importance("model", x, y),
        lambda: fedsac.extract(fedsac.Network(fedsac.Layout(SIZES), torch.zeros(3)), [True] * 9),
        lambda: fedsac.counted_in_classes("pow"),
    ):
        with pytest.raises(FedsacError) as refused:
            wrong()
        assert "\n" not in str(refused.value)


def test_units_are_found_with_numpy_inputs():
    module = plain.random_module(SIZES)
    assert fedsac.find_units(module, np.ones((2, 4), dtype=np.float32)).units == 9
    written = {"hidden": (5, {"0.weight": 0, "0.bias": 0, "2.weight": 1})}
    assert fedsac.units_by_hand(module, written, np.ones((2, 4))).units == 5
