"""Fast importance against the plain leave-one-out loop."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fedsac
from fedsac.compute.importance import first_order_importance
from fedsac.contributions.base import Contributions
from fedsac.methods.fedsac import FedSAC
from fedsac.models.network import Network
from fedsac.runs.setup import prepare
from tests import plain


@pytest.mark.parametrize("sizes", [(30, 17, 13, 10), (12, 9, 3), (8, 7, 6, 5, 4), (5, 40, 1, 2), (6, 5, 5, 20)])
def test_equals_the_plain_loop(sizes):
    module = plain.random_module(sizes)
    x, y = plain.random_data(200, sizes[0], sizes[-1])
    assert plain.worst(fedsac.importance(module, x, y), plain.importance(module, x, y)) < 1e-8


@settings(max_examples=25, deadline=None)
@given(
    hidden=st.lists(st.integers(1, 12), min_size=1, max_size=3),
    classes=st.integers(2, 18),
    samples=st.integers(1, 40),
    seed=st.integers(0, 1000),
)
def test_equals_the_plain_loop_for_any_shape(hidden, classes, samples, seed):
    sizes = (6, *hidden, classes)
    module = plain.random_module(sizes, seed)
    x, y = plain.random_data(samples, 6, classes, seed)
    ours, theirs = fedsac.importance(module, x, y), plain.importance(module, x, y)
    assert float((ours - theirs).abs().max()) < 1e-10


@pytest.mark.parametrize("chunk", [1, 1 << 12, 1 << 28])
def test_all_neurons_at_once_give_the_same(chunk, monkeypatch):
    """The route that a GPU takes, here on the CPU."""
    import importlib

    module = importlib.import_module("fedsac.compute.importance")
    monkeypatch.setattr(module, "_loss_increases", module._loss_increases_dense)
    monkeypatch.setattr(module, "GPU_DENSE_BYTES", chunk)
    network = plain.random_module((12, 9, 7, 4))
    x, y = plain.random_data(60, 12, 4)
    assert plain.worst(fedsac.importance(network, x, y), plain.importance(network, x, y)) < 1e-8


def test_float32_agrees_with_float64():
    module = plain.random_module((30, 17, 13, 10))
    x, y = plain.random_data(300, 30, 10)
    exact = fedsac.importance(module, x, y)
    rounded = fedsac.importance(module.float(), x.float(), y)
    assert plain.worst(rounded, exact) < 1e-4


def test_a_neuron_that_is_never_active_has_no_importance():
    module = plain.random_module((5, 4, 3))
    with torch.no_grad():
        module[0].bias[2] = -1e6
    x, y = plain.random_data(50, 5, 3)
    assert fedsac.importance(module, x, y)[2] == 0


def test_shares_without_a_positive_value_are_equal():
    assert fedsac.shares(torch.tensor([-1.0, -2.0, 0.0, -0.5])).tolist() == [25.0] * 4


@pytest.mark.parametrize(("n", "label"), [(5, 3), (5, -1)])
def test_labels_the_model_does_not_have_are_refused(n, label):
    with pytest.raises(fedsac.FedsacError, match=r"each in 0\.\.2"):
        fedsac.importance(plain.random_module((4, 3, 3)), torch.zeros(n, 4).double(), torch.full((n,), label))


def test_layers_that_do_not_fit_are_refused():
    network = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(5, 2))
    with pytest.raises(fedsac.FedsacError, match="do not fit together"):
        fedsac.importance(network, torch.zeros(1, 4), torch.zeros(1, dtype=torch.long))


def test_importance_that_is_no_number_allocates_nothing():
    with pytest.raises(fedsac.FedsacError, match="importance is not a number"):
        fedsac.allocate(torch.tensor([float("nan"), 1.0]), [50.0, 100.0])


@pytest.mark.parametrize("calibrated", [False, True])
def test_a_run_whose_importance_overflows_ends_with_one_line(calibrated, monkeypatch):
    config = fedsac.Config(rounds=3, clients=3, hidden=(8,), method="fedsac-plus" if calibrated else "fedsac")
    measured = FedSAC.measure_importance

    def overflows(self, task, model, over):
        return measured(self, task, model, over) * (float("inf") if over == 2 else 1)

    monkeypatch.setattr(FedSAC, "measure_importance", overflows)
    with pytest.raises(fedsac.FedsacError, match="importance is not a number"):
        fedsac.run(config)


def test_a_module_of_another_kind_is_refused():
    with pytest.raises(fedsac.FedsacError, match="Linear, ReLU"):
        fedsac.importance(torch.nn.Sequential(torch.nn.Conv2d(1, 1, 1)), torch.zeros(1, 1), torch.zeros(1))


@pytest.mark.parametrize("budget", [1, 5000, 1 << 30])
def test_chunks_of_samples_give_the_same(budget, monkeypatch):
    import importlib

    monkeypatch.setattr(importlib.import_module("fedsac.compute.importance"), "ACTIVATION_BYTES", budget)
    module = plain.random_module((12, 9, 7, 4))
    x, y = plain.random_data(60, 12, 4)
    assert plain.worst(fedsac.importance(module, x, y), plain.importance(module, x, y)) < 1e-8


@pytest.mark.parametrize("sizes", [(12, 9, 3), (8, 7, 6, 5, 4)])
def test_first_order_is_the_derivative(sizes):
    """Two ways: by autograd, each neuron's output scaled by a factor s_j: -dL/ds_j at s = 1; and as the limit of exact
    importance, when only a small part of each neuron is taken out."""
    module = plain.random_module(sizes)
    x, y = plain.random_data(50, sizes[0], sizes[-1])
    found = first_order_importance(Network.of(module), x, y)

    def loss(scales):
        a = x
        layers = [part for part in module if isinstance(part, torch.nn.Linear)]
        for layer, scale in zip(layers[:-1], scales.split(sizes[1:-1]), strict=True):
            a = torch.relu(layer(a)) * scale
        return torch.nn.functional.cross_entropy(layers[-1](a), y)

    ones = torch.ones(sum(sizes[1:-1]), dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(loss(ones), ones)
    assert float((found + gradient).abs().max()) < 1e-12
    small = 1e-6
    with torch.no_grad():
        for j in range(len(ones)):
            less = torch.ones_like(ones)
            less[j] -= small
            assert float((loss(less) - loss(torch.ones_like(ones))) / small) == pytest.approx(float(found[j]), abs=1e-5)


def test_importance_on_a_sample_of_v():
    """All of V and more is V; fewer are drawn by name, anew every round; the estimate gets better with their number."""
    prepared = prepare([fedsac.Config(clients=3, hidden=(12, 8), dtype="float64")])[0]
    task, model = prepared.task(prepared.members, Contributions((0.3, 0.4, 0.5), (0.3, 0.4, 0.5))), prepared.initial
    v = len(task.validation.y)
    exact = FedSAC().measure_importance(task, model, 3)
    assert (FedSAC(importance_samples=v).measure_importance(task, model, 3) == exact).all()
    part = FedSAC(importance_samples=v // 2)
    assert (part.measure_importance(task, model, 3) == part.measure_importance(task, model, 3)).all()
    assert (part.measure_importance(task, model, 3) != part.measure_importance(task, model, 4)).any()
    mean = torch.stack([part.measure_importance(task, model, i) for i in range(200)]).mean(0)
    one = (part.measure_importance(task, model, 0) - exact).abs().max()
    assert (mean - exact).abs().max() < one / 3


@pytest.mark.parametrize("options", [{"first_order": "true"}, {"importance_samples": 40}])
def test_cheaper_importance_in_a_run(options):
    """It is another order of neurons, and still a fair one."""
    config = fedsac.Config(rounds=30, eval_every=30, hidden=(40, 40))
    exact, cheap = fedsac.run_together([config, config.replace(options=options)])
    assert cheap.records[0]["neurons"] != exact.records[0]["neurons"]
    assert cheap.last["gamma"] > 80
