"""The study of the paper's theorems: numbers by hand, second routes, and properties."""

import json
from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import fedsac
from fedsac.models.network import Network
from fedsac.paper import theorem1, theorem2, theorems, theorems_page
from fedsac.paper.curvature import curvature, extremes
from fedsac.paper.theorem1 import Quadratic
from tests import plain

TINY = theorems.Effort(trials=5, orders=1, rounds=2, hidden=(6, 5), lanczos=10, steps=200, constant_steps=100)
numbers = st.floats(-3, 3).map(lambda value: value if abs(value) > 1e-3 else 1e-3)
models = st.lists(numbers, min_size=2, max_size=12)
contributions = st.lists(st.floats(0, 1), min_size=2, max_size=6)


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


@pytest.fixture(scope="module")
def found():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(theorems, "QUICK", TINY)
        return theorems.study(quick=True)


# Theorem 1


def test_the_counterexample_by_hand():
    """H = [1 0 0; 0 2 -1; 0 -1 2], theta_g = (1, 1, 2): without 2 and 3, F = (2 - 4 + 8)/2; without 3 alone, 8/2."""
    e = theorem1.counterexample()
    assert e.hessian == ((1, 0, 0), (0, 2, -1), (0, -1, 2))
    assert np.linalg.eigvalsh(np.array(e.hessian)) == pytest.approx([1, 1, 3])
    assert e.model == (1, 1, 2)
    assert e.importance == pytest.approx((0.5, 1, 4))
    assert e.held == ((1,), (1, 2), (1, 2, 3))
    assert e.delta_squared == pytest.approx((5, 4, 0))
    assert e.losses == pytest.approx((3, 4, 0))


@given(st.floats(0.01, 100), st.floats(1.05, 1e4))
def test_there_is_a_counterexample_for_every_l_above_mu(mu, ratio):
    e = theorem1.counterexample(mu, mu * ratio)
    values = np.linalg.eigvalsh(np.array(e.hessian))
    assert values[0] >= mu * (1 - 1e-9) and values[-1] <= mu * ratio * (1 + 1e-9)
    assert e.reputations[0] < e.reputations[1] and e.held[:2] == ((1,), (1, 2))
    assert e.delta_squared[1] < e.delta_squared[0]
    assert e.losses[1] - e.losses[0] == pytest.approx(mu * (1 + ratio) / 4, rel=1e-6)


@given(models, contributions, st.floats(0.1, 10), st.lists(numbers, min_size=12, max_size=12), st.floats(0, 1))
def test_l_equal_to_mu_and_a_small_gradient_order_the_losses(model, c, mu, direction, length):
    """The theorem itself, for any order of neurons: `direction` serves as importance, too."""
    model, direction = tensor(model), tensor(direction)[: len(model)]
    held = fedsac.allocate(direction, fedsac.reputation(c, 5))
    larger, smaller = theorem1.pairs(held)
    bound = theorem1.gradient_bound(model, mu, held[larger], held[smaller])
    least = float(bound.min()) if len(bound) else 0.0
    gradient = direction / direction.norm() * least * length
    problem = Quadratic(mu * torch.eye(len(model), dtype=torch.float64), model, gradient)
    assert not theorem1.reversed_pairs(problem.loss(held), larger, smaller).any()


@given(models, st.integers(1, 11), st.floats(0.1, 10))
def test_the_bound_on_the_gradient_is_half_l_times_the_distance_and_sharp(model, size, mu):
    model = tensor(model)
    smaller = torch.arange(len(model)) < min(size, len(model) - 1)
    larger = torch.ones_like(smaller)
    apart = torch.where(smaller, 0, model)
    bound = float(theorem1.gradient_bound(model, mu, larger, smaller))
    assert bound == pytest.approx(mu * float(apart.norm()) / 2)
    for factor, worse in ((0.99, False), (1.01, True)):
        gradient = apart / apart.norm() * bound * factor
        problem = Quadratic(mu * torch.eye(len(model), dtype=torch.float64), model, gradient)
        assert bool(problem.loss(larger) > problem.loss(smaller)) is worse


@given(models, contributions, st.lists(numbers, min_size=24, max_size=24))
def test_uncoupled_parameters_in_the_order_of_importance_need_no_bound(model, c, rest):
    model = tensor(model)
    gradient, diagonal = tensor(rest[: len(model)]), tensor(rest[12 : 12 + len(model)]).abs()
    problem = Quadratic(diagonal.diag(), model, gradient)
    if problem.importance().max() > 0:
        held = fedsac.allocate(problem.importance(), fedsac.reputation(c, 5))
        assert not theorem1.reversed_pairs(problem.loss(held), *theorem1.pairs(held)).any()


def test_importance_of_a_quadratic_is_the_rise_of_its_loss():
    rng = np.random.default_rng(0)
    hessian = theorem1.random_hessian(rng, 4, 1.0, 10.0)
    model, gradient = rng.standard_normal((2, 4))
    values = Quadratic(*map(torch.from_numpy, (hessian, model, gradient))).importance()
    for j, value in enumerate(values.tolist()):
        away = -model * (np.arange(4) == j)
        assert value == pytest.approx(gradient @ away + away @ hessian @ away / 2)
    assert np.linalg.eigvalsh(hessian)[[0, -1]] == pytest.approx([1, 10])


def test_ridge_regression_is_at_its_minimum_and_reversed_only_when_badly_conditioned():
    x, y = plain.random_data(60, 8, 3)
    x[:, 1:] = x[:, :1] + 0.3 * x[:, 1:]  # inputs that stand in for each other
    strong, weak = (theorem1.ridge_regression(x, y, ridge, 10, 0) for ridge in (1000.0, 1e-3))
    assert strong.gradient_norm < 1e-6 and weak.gradient_norm < 1e-6
    assert strong.ratio < 1.1 and weak.ratio > 1000
    assert strong.prefixes_by_importance.reversed == strong.prefixes_at_random.reversed == 0
    assert weak.prefixes_at_random.pairs == 70
    assert weak.prefixes_by_importance.reversed + weak.prefixes_at_random.reversed > 0


# Curvature


def test_extreme_eigenvalues_against_a_dense_hessian():
    module, (x, y) = plain.random_module((5, 7, 6, 3)), plain.random_data(40, 5, 3)
    network = Network.of(module)

    def loss(params):
        return F.cross_entropy(Network(network.layout, params).logits(x), y)

    dense = torch.linalg.eigvalsh(torch.autograd.functional.hessian(loss, network.params))
    measured = curvature(loss, network.params, steps=60)
    assert dense[0] < 0, "a network whose loss is not convex"
    assert measured.largest == pytest.approx(float(dense[-1]), rel=1e-8)
    assert measured.smallest == pytest.approx(float(dense[0]), rel=1e-6)
    module.zero_grad()
    F.cross_entropy(module(x), y).backward()
    norm = torch.cat([p.grad.flatten() for p in module.parameters()]).norm()
    assert measured.gradient_norm == pytest.approx(float(norm))


@given(st.integers(0, 1000), st.integers(1, 12))
def test_some_eigenvalue_lies_within_the_error(seed, steps):
    rng = np.random.default_rng(seed)
    matrix = torch.from_numpy(theorem1.random_hessian(rng, 12, 1.0, 50.0)) - 10 * torch.eye(12)
    (least, most), (least_error, most_error) = extremes(
        lambda v: matrix @ v, torch.from_numpy(rng.standard_normal(12)), steps
    )
    values = torch.linalg.eigvalsh(matrix)
    assert float((values - least).abs().min()) <= least_error + 1e-9
    assert float((values - most).abs().min()) <= most_error + 1e-9
    assert values[0] - 1e-9 <= least <= most <= values[-1] + 1e-9


# Theorem 2


def path(holding, *, coupled, differ, steps=4000):
    task = theorem2.problem(0, coupled=coupled, differ=differ)
    return task, theorem2.local_sgd(task, holding, theorem2.decreasing_rate(5), steps=steps, local_steps=5, seed=0)


def test_where_everybody_holds_everything_the_rate_is_one_over_t_and_the_bound_holds():
    task, full = path(theorem2.EVERYTHING, coupled=True, differ=True, steps=10000)
    assert full.slope == pytest.approx(-1, abs=0.1)
    bounds = theorem2.bound(task, full.steps, 5, full.gradient)
    assert all(gap <= bound for gap, bound in zip(full.gaps, bounds, strict=True))


@pytest.mark.parametrize("holding", [theorem2.NESTED, theorem2.TURNING])
@pytest.mark.parametrize(("coupled", "differ"), [(False, True), (True, False), (True, True)])
def test_submodels_leave_a_gap_as_large_as_the_fixed_point_says(holding, coupled, differ):
    task, path_ = path(holding, coupled=coupled, differ=differ)
    gap = float(task.gap(task.limit(theorem2.submodels(task, holding))))
    assert gap > 0.01
    assert path_.gaps[-1] == pytest.approx(gap, rel=0.05)


@pytest.mark.parametrize("holding", [theorem2.NESTED, theorem2.TURNING])
def test_submodels_leave_no_gap_where_nothing_is_coupled_and_all_optima_agree(holding):
    task, path_ = path(holding, coupled=False, differ=False)
    assert float(task.gap(task.limit(theorem2.submodels(task, holding)))) < 1e-20
    assert path_.gaps[-1] < 2e-4


def test_fedsacs_own_submodels_leave_a_gap_unless_nothing_is_coupled_and_all_optima_agree():
    assert path(theorem2.ALLOTTED, coupled=True, differ=True, steps=1000)[1].gaps[-1] > 0.05
    assert path(theorem2.ALLOTTED, coupled=False, differ=False, steps=1000)[1].gaps[-1] < 0.002


def test_the_limit_is_a_fixed_point_of_a_round_without_noise():
    """With a tiny step the round is the mean over holders of one gradient step, worked out client by client."""
    task = theorem2.problem(3, coupled=True, differ=True)
    held = theorem2.submodels(task, theorem2.NESTED)[0]
    limit = task.limit(held.unsqueeze(0))
    steps = torch.zeros(len(limit), dtype=torch.float64)
    for mask, hessian, optimum in zip(held, task.hessians, task.optima, strict=True):
        own = torch.where(mask, limit, 0).requires_grad_()
        ((own - optimum) @ hessian @ (own - optimum) / 2).backward()
        steps += torch.where(mask, own.grad, 0)
    assert float((steps / held.sum(0)).abs().max()) < 1e-12


def test_each_parameter_is_held_equally_often_where_the_order_turns():
    held = theorem2.submodels(theorem2.problem(0, coupled=True, differ=True), theorem2.TURNING)
    times = held.sum((0, 1))
    assert (times == times[0]).all()
    for round in held:
        assert all((one <= two).all() for one, two in pairwise(sorted(round, key=lambda mask: int(mask.sum()))))


def test_the_gap_of_a_problem_is_what_its_clients_losses_say():
    task = theorem2.problem(1, coupled=True, differ=True)

    def loss(model):
        return sum((model - a) @ h @ (model - a) / 2 for h, a in zip(task.hessians, task.optima, strict=True)) / 10

    model = torch.ones(10, dtype=torch.float64)
    assert task.least == pytest.approx(float(loss(task.best)))
    assert float(task.gap(model)) == pytest.approx(float(loss(model) - loss(task.best)))
    assert task.weighted_gap([7] * 10) == pytest.approx(0, abs=1e-20)
    assert task.weighted_gap([1, *[7] * 9]) > 0
    without = [float(loss(model * (torch.arange(10) != j)) - loss(model)) for j in range(10)]
    assert task.importance(model).tolist() == pytest.approx(without)


@pytest.mark.parametrize("local_steps", [1, 5])
def test_a_constant_rate_ends_at_the_floor_of_its_recursion(local_steps):
    task = theorem2.problem(0, coupled=True, differ=True)
    exact, drift = theorem2.constant_rate(task, 0.05, local_steps)
    options = {"steps": 3000, "local_steps": local_steps, "seed": 0, "at_rounds": range(1, 3001)}
    noisy = theorem2.local_sgd(task, theorem2.EVERYTHING, lambda t: 0.05, **options)
    silent = theorem2.local_sgd(task, theorem2.EVERYTHING, lambda t: 0.05, noise=0.0, **options)
    assert noisy.settled() == pytest.approx(exact, rel=0.05)
    assert silent.settled() == pytest.approx(drift, rel=1e-6, abs=1e-20)


# The study


def test_the_study_is_the_same_for_the_same_seed(found, monkeypatch):
    monkeypatch.setattr(theorems, "QUICK", TINY)
    notes = []
    assert theorems.study(quick=True, note=notes.append) == found
    assert any("theorem 1" in note for note in notes) and any("theorem 2" in note for note in notes)


def test_what_the_theorems_do_say_holds_in_the_study(found):
    assert found.isotropic[0].by_importance.reversed == found.isotropic[0].at_random.reversed == 0
    assert found.quadratics[0].prefixes_at_random.reversed == 0 and found.quadratics[0].ratio == 1
    assert all(q.uncoupled.reversed == 0 for q in found.quadratics)
    assert found.network.delta.reversed == 0 and found.network.delta.pairs == 10
    assert all(b.largest_share < 1 for b in found.convergence.bounded)


def test_the_network_part_is_what_fedsac_run_finds(found):
    result = fedsac.run(fedsac.Config(rounds=2, hidden=(6, 5), dtype="float64", threads=1, eval_every=2))
    assert found.network.samples == result.samples
    assert found.network.shortest == min(result.last["neurons"])
    sizes = np.mean([record["parameters"] for record in result.records], axis=0)
    assert found.network.size_shares == pytest.approx(sizes / result.layout.parameters)


def test_texts_have_no_holes_and_fit(found):
    text, page = theorems_page.text(found), theorems_page.markdown(found)
    assert max(map(len, text.splitlines())) < 100
    assert json.loads(json.dumps(found.as_dict(), allow_nan=False))["seed"] == 0
    for words in (text, page):
        assert "nan" not in words.lower().replace("lanczos", "") and "None" not in words and "inf" not in words
    rows = [line for line in page.splitlines() if line.startswith("|")]
    for one, two in pairwise(page.splitlines()):
        if one.startswith("|") and two.startswith("|"):
            assert one.count("|") == two.count("|")
    assert len(rows) > 40 and page.startswith("# ")


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 100))
def test_other_seeds_draw_other_problems_with_the_same_constants(seed):
    task = theorem2.problem(seed, coupled=True, differ=True)
    values = torch.linalg.eigvalsh(task.hessians)
    assert float(values.min()) == pytest.approx(theorem2.MU) and float(values.max()) == pytest.approx(theorem2.SMOOTH)
    assert not torch.equal(task.optima, theorem2.problem(seed + 1, coupled=True, differ=True).optima)
