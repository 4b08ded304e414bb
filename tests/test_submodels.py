"""Extracting really smaller networks, and putting them back."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import fedsac
from fedsac import Layout, Network
from tests import plain

masks = st.lists(st.booleans(), min_size=9, max_size=9).map(torch.tensor)
SIZES = (4, 5, 4, 3)


@given(masks)
def test_an_extracted_network_computes_what_the_masked_one_does(neurons):
    module = plain.random_module(SIZES)
    x, _ = plain.random_data(20, 4, 3)
    first, second = neurons[:5].double(), neurons[5:].double()
    masked = module[4](module[3](module[2](module[1](module[0](x)) * first)) * second)
    small = fedsac.extract(module, neurons)
    assert torch.allclose(small.logits(x), masked, atol=1e-12)
    assert torch.allclose(small.module()(x), masked, atol=1e-12)
    assert small.layout.sizes == (4, int(first.sum()), int(second.sum()), 3)


@given(masks)
def test_merging_puts_back_exactly_what_is_held(neurons):
    network = Network.of(plain.random_module(SIZES))
    held = network.layout.held(neurons)
    changed = Network(network.layout.smaller(neurons), fedsac.extract(network, neurons).params + 1)
    merged = fedsac.merge(network, neurons, changed)
    assert (merged.params[held] == network.params[held] + 1).all()
    assert (merged.params[~held] == network.params[~held]).all()


@given(masks)
def test_a_submodel_has_no_trace_of_what_was_left_out(neurons):
    layout = Layout(SIZES)
    marked = Network(layout, torch.arange(layout.parameters, dtype=torch.float64))
    sent = set(fedsac.extract(marked, neurons).params.tolist())
    unearned = torch.arange(layout.parameters, dtype=torch.float64)[~layout.held(neurons)]
    assert not sent & set(unearned.tolist())


def test_modules_and_states_round_trip():
    module = plain.random_module(SIZES)
    network = Network.of(nn.Sequential(nn.Flatten(), *module))
    assert (Network.of(network.module()).params == network.params).all()
    assert (Network.from_state(network.state()).params == network.params).all()
    module.load_state_dict(network.state())  # torch takes it as it is


def test_a_submodel_that_does_not_fit_is_refused():
    module = plain.random_module(SIZES)
    neurons = torch.ones(9, dtype=torch.bool)
    with pytest.raises(fedsac.FedsacError, match="does not fit"):
        fedsac.merge(module, neurons, plain.random_module((4, 4, 4, 3)))
    with pytest.raises(fedsac.FedsacError, match="boolean mask of length 9"):
        fedsac.extract(module, neurons[:4])
