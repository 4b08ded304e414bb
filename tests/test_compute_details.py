"""Training and evaluation of many models at once, in numbers worked out by hand."""

import numpy as np
import pytest
import torch

from fedsac.compute import evaluation, training
from fedsac.compute.mean_models import MeanModels
from fedsac.compute.samples import Batches, Samples
from fedsac.core import metrics
from fedsac.core.units import Layout

INF, NAN = float("inf"), float("nan")


def test_finite_asks_for_numbers_in_the_model_and_in_the_loss():
    params = torch.tensor([[1.0, -2.0], [1.0, NAN], [INF, 1.0], [-INF, INF], [1.0, 1.0], [1.0, 1.0]])
    losses = torch.tensor([0.5, 0.5, 0.5, 0.5, INF, NAN])
    assert training.finite(params, losses).tolist() == [True, False, False, False, False, False]


def test_a_loss_can_overflow_while_the_weights_do_not():
    """One input, one hidden neuron, two classes. The logits are 2e38 and -2e38, so that the label's log-probability is
    -4e38, which float32 does not have; the step itself is small. The other member has the same weights over 1e38."""
    layout = Layout((1, 1, 2))
    models = torch.tensor([[1.0, 0.0, 2e38, -2e38, 0.0, 0.0], [1.0, 0.0, 2.0, -2.0, 0.0, 0.0]])
    samples = Samples(torch.ones(1, 1), torch.tensor([1]), torch.ones(1, 1), torch.zeros(1, 1))
    drawn = Batches(torch.zeros(1, 2, 1, dtype=torch.long), torch.ones(1, 2, 1))
    trained, losses = training.train(layout, models, None, samples, drawn, torch.tensor([0.1, 0.1]))
    assert trained.isfinite().all()
    assert losses[0] == INF and losses[1].isfinite()
    assert training.finite(trained, losses).tolist() == [False, True]


LAYOUT = Layout((3, 5, 4, 3))


def some(models: int, normalisations: int, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, Samples]:
    """Models and 150 samples, stored as bytes."""
    draw = np.random.default_rng(0)
    params = torch.from_numpy(draw.normal(size=(models, LAYOUT.parameters))).to(dtype)
    scale, shift = (torch.from_numpy(draw.uniform(0.1, 0.5, (normalisations, 3))).to(dtype) for _ in range(2))
    x, y = draw.integers(0, 9, (150, 3)).astype(np.uint8), draw.integers(0, 3, 150)
    return params, Samples(torch.from_numpy(x), torch.from_numpy(y), scale, shift)


def loss(params: torch.Tensor, samples: Samples, member: int, row: int) -> float:
    """Cross-entropy of one model on one sample, layer by layer."""
    at = member if len(samples.scale) > 1 else 0
    a = samples.x[row].to(params.dtype) * samples.scale[at] + samples.shift[at]
    layers = LAYOUT.views(params)
    for w, b in layers[:-1]:
        a = (a @ w + b).clamp_min(0)
    logits = a @ layers[-1][0] + layers[-1][1]
    return -float(logits.double().log_softmax(0)[samples.y[row]])


ROWS = [np.arange(10, 140), np.array([5]), np.array([3, 77, 149, 0])]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("models", "normalisations"), [(1, 1), (3, 1), (1, 3), (3, 3)])
def test_losses_on_own_samples_one_by_one(models, normalisations, dtype):
    """130 samples are two batches of 64 and one of 2."""
    params, samples = some(models, normalisations, dtype)
    own = [[loss(params[i if models > 1 else 0], samples, i, row) for row in rows] for i, rows in enumerate(ROWS)]
    close = {"rel": 0, "abs": 1e-12 if dtype == torch.float64 else 1e-4}
    means = evaluation.mean_losses(LAYOUT, params, samples, ROWS)
    assert means.dtype == torch.float64
    assert means.tolist() == pytest.approx([np.mean(losses) for losses in own], **close)
    batches = evaluation.batch_losses(LAYOUT, params, samples, ROWS)
    for found, losses in zip(batches, own, strict=True):
        assert found.dtype == torch.float64
        expected = [np.mean(losses[start : start + 64]) for start in range(0, len(losses), 64)]
        assert found.tolist() == pytest.approx(expected, **close)
    assert [len(found) for found in batches] == [3, 1, 1]


@pytest.mark.parametrize("models", [1, 3])
def test_losses_of_nobody(models):
    params, samples = some(models, 1, torch.float32)
    means = evaluation.mean_losses(LAYOUT, params, samples, [])
    assert means.tolist() == [] and means.dtype == torch.float64
    assert evaluation.batch_losses(LAYOUT, params, samples, []) == []


@pytest.mark.parametrize("metric", [metrics.accuracy, metrics.macro_f1, metrics.auc], ids=metrics.name_of)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_scores_of_means_are_those_of_models_that_were_averaged(metric, dtype):
    """Twenty means, more than are evaluated at a time."""
    params, samples = some(3, 1, dtype)
    shares = torch.from_numpy(np.random.default_rng(1).dirichlet([0.5] * 3, 20))
    found = MeanModels(LAYOUT, params, samples, metric).scores(shares)
    assert found.dtype == torch.float64 and found.shape == (20,)
    expected, _ = evaluation.evaluate(LAYOUT, shares.to(dtype) @ params, None, samples, metric=metric)
    assert len(set(expected.tolist())) > 5
    assert found.tolist() == pytest.approx(expected.tolist(), abs=1e-12 if dtype == torch.float64 else 0.02)


def test_the_batches_of_some_members():
    """Five members, of which 5, 3, 1 and none train: of the third and fourth, 2, 1, none and none do."""
    rows = torch.arange(4 * 5 * 2).view(4, 5, 2)
    some_of = Batches(rows, rows / 2, (5, 3, 1, 0)).of_members(2, 4)
    assert some_of.members_at_step == (2, 1, 0, 0)
    assert torch.equal(some_of.rows, rows[:, 2:4]) and torch.equal(some_of.weight, rows[:, 2:4] / 2)
    assert Batches(rows, rows / 2).of_members(0, 1).members_at_step is None
