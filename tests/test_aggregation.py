"""Aggregation by holders."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fedsac
from fedsac.core.aggregation import aggregate_submodels
from fedsac.core.units import Layout


def test_by_hand():
    """A 2-2-1 network, three clients: everything, neuron 0, neuron 1. Weights lie as [in, out]."""
    layout = Layout((2, 2, 1))  # w00 w01 | w10 w11 | b0 b1 | v0 v1 | c
    neurons = torch.tensor([[True, True], [True, False], [False, True]])
    models = torch.tensor(
        [
            [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0],
            [3.0, -99, 5.0, -99, 7.0, -99, 9.0, -99, 12.0],
            [-99, 6.0, -99, 8.0, -99, 10.0, -99, 12.0, 15.0],
        ]
    )
    merged = fedsac.aggregate(models, layout.held(neurons), torch.zeros(9))
    assert merged.tolist() == [2.0, 4.0, 4.0, 6.0, 6.0, 8.0, 8.0, 10.0, 12.0]


def test_a_parameter_nobody_holds_is_unchanged():
    layout = Layout((3, 4, 4, 2))
    neurons = torch.zeros(2, 8, dtype=torch.bool)
    neurons[0, 0] = neurons[1, 5] = True
    held = layout.held(neurons)
    previous = torch.randn(layout.parameters)
    merged = fedsac.aggregate(torch.randn(2, layout.parameters), held, previous)
    nobody = ~held.any(0)
    assert nobody.any()
    assert (merged[nobody] == previous[nobody]).all()
    assert (merged[~nobody] != previous[~nobody]).all()


@given(st.integers(1, 6), st.integers(0, 10_000))
def test_values_outside_what_was_held_do_not_matter(clients, seed):
    generator = torch.Generator().manual_seed(seed)
    layout = Layout((3, 4, 2))
    held = layout.held(torch.rand(clients, 4, generator=generator) < 0.5)
    models = torch.randn(clients, layout.parameters, generator=generator, dtype=torch.float64)
    poisoned = torch.where(held, models, torch.nan)
    previous = torch.zeros(layout.parameters, dtype=torch.float64)
    assert (fedsac.aggregate(poisoned, held, previous) == fedsac.aggregate(models, held, previous)).all()


@given(st.integers(1, 6), st.integers(0, 10_000))
def test_each_parameter_is_the_mean_over_its_holders(clients, seed):
    generator = torch.Generator().manual_seed(seed)
    held = torch.rand(clients, 12, generator=generator) < 0.5
    models = torch.randn(clients, 12, generator=generator, dtype=torch.float64)
    merged = fedsac.aggregate(models, held, torch.full((12,), 7.0, dtype=torch.float64))
    for p in range(12):
        own = [float(models[i, p]) for i in range(clients) if held[i, p]]
        expected = sum(own) / len(own) if own else 7.0
        assert abs(float(merged[p]) - expected) < 1e-12


@settings(deadline=None)
@given(st.lists(st.integers(1, 5), min_size=2, max_size=4), st.integers(1, 6), st.integers(0, 10_000))
def test_layer_by_layer_is_the_same(sizes, clients, seed):
    """Whatever clients hold, nothing included; and what they do not hold may be NaN."""
    layout, draw = Layout((*sizes, 2)), torch.Generator().manual_seed(seed)
    neurons = torch.rand(clients, layout.neurons, generator=draw) < 0.5
    models = torch.randn(clients, layout.parameters, dtype=torch.float64, generator=draw)
    models[~layout.held(neurons)] = torch.nan
    previous = torch.randn(layout.parameters, dtype=torch.float64, generator=draw)
    merged = aggregate_submodels(layout, models, neurons, previous)
    torch.testing.assert_close(merged, fedsac.aggregate(models, layout.held(neurons), previous), rtol=0, atol=1e-14)
