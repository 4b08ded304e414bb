"""Every metric through the stack's evaluation against the plain route: logits of one model, softmax, metric."""

import numpy as np
import pytest
import torch

import fedsac
from fedsac import FedsacError, Network
from fedsac.compute import evaluation, tally, training
from fedsac.core import metrics
from fedsac.core.units import Layout
from fedsac.doors import METRICS
from tests import plain

SIZES = (20, 16, 12, 5)
LAYOUT = Layout(SIZES)
MEMBERS, SAMPLES = 5, 97


def mean_probability(labels, probabilities):
    """A metric of one's own: the probability of the right class, on average."""
    return probabilities[np.arange(len(labels)), labels].mean()


ALL = [*map(METRICS.resolve, METRICS), mean_probability]


def stack(shared=False, masked=True, dtype=torch.float64):
    """Models, neurons, and samples stored as bytes that each member normalises in its own way if it is not shared."""
    x, y = plain.random_data(SAMPLES, SIZES[0], SIZES[-1], dtype=dtype)
    y[y == 3] = 0  # a class that is predicted and does not occur, another that is frequent
    stored = (x * 40 + 128).clamp(0, 255).to(torch.uint8)
    rng = torch.Generator().manual_seed(2)
    ways = 1 if shared else MEMBERS
    scale = torch.rand(ways, SIZES[0], generator=rng, dtype=dtype) * 0.02
    shift = torch.randn(ways, SIZES[0], generator=rng, dtype=dtype)
    models = [Network.of(plain.random_module(SIZES, i, dtype)).params for i in range(ways)]
    neurons = torch.rand(MEMBERS, LAYOUT.neurons, generator=rng) < 0.6 if masked else None
    return torch.stack(models), neurons, training.Samples(stored, y, scale, shift)


@torch.no_grad()
def one_by_one(params, neurons, samples):
    """Labels, and each member's probabilities, float64."""
    members = len(params) if neurons is None else max(len(params), len(neurons))
    found = []
    for i in range(members):
        model = Network(LAYOUT, params[i % len(params)])
        model = model if neurons is None else fedsac.extract(model, neurons[i % len(neurons)])
        k = i % len(samples.scale)
        logits = model.logits(samples.x.to(params.dtype) * samples.scale[k] + samples.shift[k])
        found.append(logits.double().softmax(1).numpy())
    return samples.y.numpy(), found


@pytest.mark.parametrize("in_pieces", [False, True])
@pytest.mark.parametrize(("shared", "masked"), [(False, False), (False, True), (True, True), (True, False)])
@pytest.mark.parametrize("metric", ALL, ids=metrics.name_of)
def test_every_metric_is_that_of_the_plain_route(metric, shared, masked, in_pieces, monkeypatch):
    if in_pieces:  # 7 samples of 2 members at a time, probabilities of 3 members
        monkeypatch.setattr(evaluation, "CPU_CHUNK_SAMPLES", 7)
        monkeypatch.setattr(evaluation, "CPU_ACTIVATION_BYTES", 0)
        monkeypatch.setattr(tally, "PROBABILITY_BYTES", 3 * 8 * SAMPLES * SIZES[-1])
    given = stack(shared, masked)
    labels, probabilities = one_by_one(*given)
    scores, losses = evaluation.evaluate(LAYOUT, *given, metric=metric)
    assert scores.dtype == losses.dtype == torch.float64 and not scores.is_cuda
    assert scores.tolist() == pytest.approx([metric(labels, p) for p in probabilities], abs=1e-12)
    nll = [-np.log(p[np.arange(SAMPLES), labels]).mean() for p in probabilities]
    assert losses.tolist() == pytest.approx(nll, rel=1e-9)
    assert len(set(scores.tolist())) > 1 or len(scores) == 1  # there is something to mix up


@pytest.mark.parametrize("metric", ALL, ids=metrics.name_of)
@pytest.mark.parametrize("bytes_kept", [0, 8 * SAMPLES * SIZES[-1] * 2])
def test_one_mask_for_many_models_a_few_at_a_time(metric, bytes_kept, monkeypatch):
    params, neurons, samples = stack()
    labels, probabilities = one_by_one(params, neurons[:1], samples)
    monkeypatch.setattr(tally, "PROBABILITY_BYTES", bytes_kept)
    scores, _ = evaluation.evaluate(LAYOUT, params, neurons[:1], samples, metric=metric)
    assert scores.tolist() == pytest.approx([metric(labels, p) for p in probabilities], abs=1e-12)


def test_accuracy_is_the_default_and_counts_right_predictions():
    params, neurons, samples = stack(dtype=torch.float32)
    labels, probabilities = one_by_one(params, neurons, samples)
    expected = [int((p.argmax(1) == labels).sum()) / SAMPLES for p in probabilities]
    assert evaluation.evaluate(LAYOUT, params, neurons, samples)[0].tolist() == expected
    assert evaluation.evaluate(LAYOUT, params, neurons, samples, metric=metrics.accuracy)[0].tolist() == expected
    # A function that only does the same gets probabilities, and comes to the same numbers.
    same = evaluation.evaluate(LAYOUT, params, neurons, samples, metric=lambda y, p: metrics.accuracy(y, p))
    assert same[0].tolist() == expected


def test_scores_are_begun_together_and_then_waited_for():
    params, neurons, samples = stack()
    begun = [evaluation.PendingScores(LAYOUT, params, neurons, samples, metric=metric) for metric in ALL]
    for metric, scores in zip(ALL, begun, strict=True):
        expected = evaluation.evaluate(LAYOUT, params, neurons, samples, metric=metric)
        for _ in range(2):  # asking again changes nothing
            assert [part.tolist() for part in scores.wait()] == [part.tolist() for part in expected]


def constant(bias):
    """A network whose logits are `bias` for every sample."""
    params = torch.zeros(1, LAYOUT.parameters, dtype=torch.float64)
    LAYOUT.views(params)[-1][1][:] = torch.tensor(bias, dtype=torch.float64)
    return params


@pytest.mark.parametrize("bias", [[0, 0, 0, 0, 0], [-1, 0, 2, -3, 2]])
def test_the_first_of_equal_logits_is_predicted_whatever_the_metric(bias):
    samples = stack(shared=True)[2]
    winner = int(np.argmax(bias))
    share = float((samples.y == winner).double().mean())
    occurring = len(samples.y.unique())

    def score(metric):
        return float(evaluation.evaluate(LAYOUT, constant(bias), None, samples, metric=metric)[0])

    assert 0 < share < 1
    assert score(metrics.accuracy) == share
    assert score(metrics.balanced_accuracy) == pytest.approx(1 / occurring)
    assert score(metrics.macro_f1) == pytest.approx(2 * share / (share + 1) / occurring)
    assert score(metrics.auc) == 0.5


@pytest.mark.parametrize("spoilt", [float("nan"), float("inf")])
@pytest.mark.parametrize("metric", [metrics.balanced_accuracy, metrics.macro_f1, metrics.auc], ids=metrics.name_of)
def test_a_diverged_member_scores_nothing_and_leaves_the_others_alone(metric, spoilt):
    params, neurons, samples = stack()
    calm = evaluation.evaluate(LAYOUT, params, neurons, samples, metric=metric)[0]
    LAYOUT.views(params)[-1][1][2, 1] = spoilt  # a bias of the last layer: every sample's logits have it
    scores = evaluation.evaluate(LAYOUT, params, neurons, samples, metric=metric)[0]
    assert scores[2] == 0
    others = [0, 1, 3, 4]
    assert (scores[others] == calm[others]).all()


@pytest.mark.parametrize("metric", [metrics.balanced_accuracy, metrics.macro_f1, metrics.auc], ids=metrics.name_of)
def test_samples_whose_logits_overflow_are_predicted_as_no_class(metric):
    params, _, samples = stack(masked=False)
    samples.scale[:, 0], samples.shift[:, 0] = 1, 0
    layers = LAYOUT.views(params)
    layers[0][0][:, 0, 0] = np.finfo(np.float64).max / 128  # times a feature from 0 to 255
    layers[1][0][:, 0] = 0  # of no consequence, unless it is infinite
    labels, probabilities = one_by_one(params, None, samples)
    assert 0.2 < np.isnan(probabilities[0]).all(1).mean() < 0.8
    scores, _ = evaluation.evaluate(LAYOUT, params, None, samples, metric=metric)
    assert scores.tolist() == pytest.approx([metric(labels, p) for p in probabilities], abs=1e-12)


@pytest.mark.parametrize("returned", [float("nan"), float("inf"), None, [0.1, 0.2], "good"])
def test_a_metric_that_returns_no_number_is_named(returned):
    def odd_metric(labels, probabilities):
        return returned

    with pytest.raises(FedsacError, match="odd_metric") as told:
        evaluation.evaluate(LAYOUT, *stack(), metric=odd_metric)
    assert "\n" not in str(told.value)


def test_a_metric_of_ones_own_gets_probabilities_and_cannot_spoil_the_labels():
    params, neurons, samples = stack(dtype=torch.float32)
    before = samples.y.clone()
    seen = []

    def looks(labels, probabilities):
        seen.append((labels.dtype, probabilities.dtype, probabilities.shape))
        assert probabilities.sum(1) == pytest.approx(1, abs=1e-12)
        with pytest.raises(ValueError, match="read-only"):
            labels[0] = 1
        return np.float32(0.25)

    scores, _ = evaluation.evaluate(LAYOUT, params, neurons, samples, metric=looks)
    assert scores.tolist() == [0.25] * MEMBERS
    assert seen == [(np.dtype(np.int64), np.dtype(np.float64), (SAMPLES, SIZES[-1]))] * MEMBERS
    assert (samples.y == before).all()


@pytest.mark.parametrize(
    "members, samples, classes, at_once",
    [
        (10, 10_000, 10, 10),
        (1000, 10_000, 10, 83),  # 800,000 bytes each
        (3, 10_000_000, 2, 1),  # one alone is more
        (4, 0, 10, 4),
        (0, 100, 10, 1),
    ],
)
def test_members_whose_probabilities_are_kept_at_a_time(members, samples, classes, at_once):
    labels = torch.zeros(1, dtype=torch.int64).expand(samples)
    assert tally.make_tally(metrics.auc, members, classes, labels).members_at_once == at_once
    for counted in (metrics.accuracy, metrics.balanced_accuracy, metrics.macro_f1):
        assert tally.make_tally(counted, members, classes, labels).members_at_once == max(1, members)


@pytest.mark.parametrize("metric", ALL[1:-1], ids=metrics.name_of)
def test_nothing_to_evaluate(metric):
    params, neurons, samples = stack()
    without = training.Samples(samples.x[:0], samples.y[:0], samples.scale, samples.shift)
    scores, losses = evaluation.evaluate(LAYOUT, params, neurons, without, metric=metric)
    assert scores.tolist() == [metric(np.zeros(0, dtype=np.int64), np.zeros((0, SIZES[-1])))] * MEMBERS
    assert losses.isnan().all()
    nobody = training.Samples(samples.x, samples.y, samples.scale[:1], samples.shift[:1])
    assert evaluation.evaluate(LAYOUT, params[:0], None, nobody, metric=metric)[0].tolist() == []


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("metric", ALL, ids=metrics.name_of)
def test_cuda_agrees_with_the_cpu(metric, dtype, shared, monkeypatch):
    params, neurons, samples = stack(shared, dtype=dtype)
    expected, _ = evaluation.evaluate(LAYOUT, params, neurons, samples, metric=metric)
    there = training.Samples(*(t.cuda() for t in (samples.x, samples.y, samples.scale, samples.shift)))
    for kept in (tally.PROBABILITY_BYTES, 2 * 8 * SAMPLES * SIZES[-1]):
        monkeypatch.setattr(tally, "PROBABILITY_BYTES", kept)
        scores, _ = evaluation.evaluate(LAYOUT, params.cuda(), neurons.cuda(), there, metric=metric)
        assert not scores.is_cuda
        assert scores.tolist() == pytest.approx(expected.tolist(), abs=1e-9 if dtype == torch.float64 else 0.03)
