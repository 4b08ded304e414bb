"""What crosses the network: the submodel, the whole submodel, and nothing but the submodel."""

from functools import cache

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsac.core.units import Layout
from fedsac.federation.guard import Asked, Raw, Reply, admit
from fedsac.federation.networks import first_units, received_vector, unit_counts
from fedsac.federation.wire import arrays_of, digest, merged, network_of, shapes, submodel
from fedsac.models.module_network import ModuleNetwork
from fedsac.models.network import Network
from fedsac.models.start import NetworkSpec, initial_network

LAYOUT = Layout((5, 4, 3, 2))
masks = st.lists(st.booleans(), min_size=7, max_size=7).map(torch.tensor)


def canaries(layout=LAYOUT):
    """A model in which every parameter has a value of its own, that no two bytes-for-bytes share."""
    return torch.arange(1, layout.parameters + 1, dtype=torch.float64) * np.pi


@given(masks)
def test_there_and_back(neurons):
    params = canaries()
    small = submodel(LAYOUT, params, neurons)
    assert sum(array.size for array in small.values()) == LAYOUT.smaller(neurons).parameters
    back = merged(LAYOUT, torch.zeros_like(params), neurons, small)
    held = LAYOUT.held(neurons)
    assert torch.equal(back[held], params[held])
    assert not back[~held].any()
    assert torch.equal(network_of(small).params, params[held])


@given(masks)
def test_no_byte_holds_what_was_not_earned(neurons):
    params = canaries()
    sent = b"".join(Raw.of(array).data for array in submodel(LAYOUT, params, neurons).values())
    held = LAYOUT.held(neurons)
    for value, earned in zip(params.tolist(), held.tolist(), strict=True):
        assert (np.float64(value).tobytes() in sent) == earned


def test_the_digest_depends_on_every_part():
    arrays = arrays_of(Network(LAYOUT, canaries()))
    found = {digest(arrays)}
    found.add(digest({name: array.astype(np.float32) for name, array in arrays.items()}))
    found.add(digest({name + "x": array for name, array in arrays.items()}))
    found.add(digest({name: array + (name == "0.bias") for name, array in arrays.items()}))
    assert len(found) == 4
    assert shapes(arrays)["0.weight"] == ((4, 5), "float64")


# -- of any network


@cache
def module_layout(named, features, image):
    spec = NetworkSpec(features, 2, (), 0, torch.float64, image=image)
    return initial_network(f"tests.networks:{named}", spec).layout


layouts = st.sampled_from([("tiny", 64, (1, 8, 8)), ("small_text", 6, None), ("small_lora", 6, None)])


@settings(max_examples=20, deadline=None)
@given(layouts, st.randoms(use_true_random=False))
def test_any_network_there_and_back(which, random):
    """The site knows how many units of each group there are, and not which: it trains the first ones."""
    layout = module_layout(*which)
    params, units = canaries(layout), some_units(layout, random)
    held = layout.held(units)
    sent = submodel(layout, params, units)
    # At the site, and back from there.
    own = first_units(layout, unit_counts(layout, units)["units"])
    received = received_vector(layout, own, sent, params)
    assert torch.equal(received[layout.held(own)], params[held])
    back = merged(layout, torch.zeros_like(params), units, submodel(layout, received, own))
    assert torch.equal(back[held], params[held]) and not back[~held].any()
    # The two submodels are one network.
    small = (ModuleNetwork.of_vector(layout, params / 1e4, units), ModuleNetwork.of_vector(layout, received / 1e4, own))
    x = torch.arange(12).reshape(2, 6) if layout.input.tokens else torch.ones(2, 64, dtype=torch.float64)
    assert torch.equal(small[0].logits(x), small[1].logits(x))


@settings(max_examples=20, deadline=None)
@given(layouts, st.randoms(use_true_random=False))
def test_no_byte_holds_what_was_not_earned_of_any_network(which, random):
    layout = module_layout(*which)
    params, units = canaries(layout), some_units(layout, random)
    sent = b"".join(Raw.of(array).data for array in submodel(layout, params, units).values())
    found = {sent[at : at + 8] for at in range(len(sent) - 7)}
    for value, earned in zip(params.tolist(), layout.held(units).tolist(), strict=True):
        assert (np.float64(value).tobytes() in found) == earned


def some_units(layout, random):
    """A mask with one unit of each group at least."""
    units = torch.tensor([random.random() < 0.5 for _ in range(layout.neurons)])
    for group in layout.table.groups:
        units[group.first + random.randrange(group.count)] = True
    return units


def test_a_number_alone_crosses_as_it_is():
    """A parameter without axes, as a learned temperature."""
    raw = Raw.of(np.array(2.5))
    asked = Asked("a", "round", 0, "t", {"scale": ((), "float64")}, {"scale": np.array(2.0)})
    assert admit(asked, Reply("a", "round", 0, "t", arrays={"scale": raw}))["scale"] == 2.5
