"""Nested submodels scored one from the other, against each computed by itself."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from fedsac.compute import evaluation, nested, tally
from fedsac.compute.confusion import confusions
from fedsac.compute.samples import Samples
from fedsac.core.metrics import accuracy, auc
from fedsac.core.units import Layout


def submodels(layout, lengths, seed):
    """Prefixes of so many neurons of a random order, boolean [S, neurons]."""
    rank = torch.randperm(layout.neurons, generator=torch.Generator().manual_seed(seed))
    return rank < torch.tensor(lengths).unsqueeze(1)


def one_by_one(layout, params, neurons, samples):
    """Accuracy and loss of each submodel: plain torch, masks on activations."""
    scores, losses = [], []
    for own in neurons:
        a = samples.x.double() * samples.scale + samples.shift
        for (w, b), mask in zip(layout.views(params[0])[:-1], layout.by_layer(own), strict=True):
            a = (a @ w + b).relu() * mask
        w, b = layout.views(params[0])[-1]
        logits = a @ w + b
        scores.append((logits.argmax(1) == samples.y).double().mean())
        losses.append(functional.cross_entropy(logits, samples.y))
    return torch.stack(scores), torch.stack(losses)


def made(sizes, samples, seed):
    draw = torch.Generator().manual_seed(seed)
    layout = Layout(sizes)
    params = torch.randn(1, layout.parameters, generator=draw, dtype=torch.float64)
    x = torch.randint(0, 17, (samples, sizes[0]), generator=draw, dtype=torch.uint8)
    y = torch.randint(0, sizes[-1], (samples,), generator=draw)
    one = torch.ones(1, sizes[0], dtype=torch.float64)
    return layout, params, Samples(x, y, one / 8, -one)


@settings(max_examples=60, deadline=None)
@given(
    hidden=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    lengths=st.lists(st.integers(0, 30), min_size=nested.MIN_MEMBERS, max_size=9),
    samples=st.integers(1, 40),
    logit_bytes=st.sampled_from([1, nested.LOGIT_BYTES]),  # too few for any: each is computed by itself
    chunk=st.sampled_from([7, evaluation.CPU_CHUNK_SAMPLES]),
    seed=st.integers(0, 99),
)
def test_they_score_as_one_by_one(hidden, lengths, samples, logit_bytes, chunk, seed):
    layout, params, data = made((5, *hidden, 3), samples, seed)
    neurons = submodels(layout, lengths, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nested, "LOGIT_BYTES", logit_bytes)
        patch.setattr(evaluation, "CPU_CHUNK_SAMPLES", chunk)
        scores, losses = evaluation.evaluate(layout, params, neurons, data)
    expected_scores, expected_losses = one_by_one(layout, params, neurons, data)
    torch.testing.assert_close(scores, expected_scores, rtol=0, atol=1e-12)
    torch.testing.assert_close(losses, expected_losses, rtol=1e-12, atol=1e-12)


def test_a_metric_that_needs_all_samples_of_a_few_members_at_a_time(monkeypatch):
    layout, params, data = made((5, 6, 4, 3), 50, 1)
    neurons = submodels(layout, [10, 3, 0, 7, 7, 5, 1], 1)
    together = evaluation.evaluate(layout, params, neurons, data, metric=auc)[0]
    monkeypatch.setattr(tally, "PROBABILITY_BYTES", 3 * 50 * 3 * 8)
    torch.testing.assert_close(evaluation.evaluate(layout, params, neurons, data, metric=auc)[0], together)
    alone = [evaluation.evaluate(layout, params, own.unsqueeze(0), data, metric=auc)[0] for own in neurons]
    torch.testing.assert_close(together, torch.cat(alone))


def test_members_are_scored_in_their_own_order():
    """Who counts what each member says, as confusion tables do, goes by the order of the calls."""
    layout, params, data = made((5, 12, 8, 3), 50, 1)
    neurons = submodels(layout, [20, 3, 0, 14, 17, 9, 6], 1)
    together = confusions(layout, params, neurons, data)
    alone = [confusions(layout, params, own.unsqueeze(0), data)[0] for own in neurons]
    assert together.tolist() == np.stack(alone).tolist() and len({table.tobytes() for table in alone}) > 2


def test_only_nested_submodels_have_an_order():
    layout = Layout((5, 6, 4, 3))
    neurons = submodels(layout, [10, 3, 0, 7], 2)
    order = nested.ascending(neurons)
    assert order is not None and order.tolist() == [2, 1, 3, 0]
    neurons[1] = ~neurons[3]
    assert nested.ascending(neurons) is None
    layout, params, data = made((5, 6, 4, 3), 30, 2)
    scores, losses = evaluation.evaluate(layout, params, neurons, data, metric=accuracy)
    for ours, expected in zip((scores, losses), one_by_one(layout, params, neurons, data), strict=True):
        torch.testing.assert_close(ours, expected)


def test_what_a_submodel_does_not_hold_cannot_spoil_it():
    """A neuron that overflowed is no part of the prefixes before it."""
    layout, params, data = made((5, 6, 4, 3), 30, 3)
    neurons = submodels(layout, [4, 6, 8, 10], 3)
    last = int((neurons[3] & ~neurons[2]).nonzero()[0])
    layer = 0 if last < 6 else 1
    layout.views(params[0])[layer][1][last - 6 * layer] = float("nan")
    _, losses = evaluation.evaluate(layout, params, neurons, data)
    assert losses[:3].isfinite().all() and losses[3].isnan()
