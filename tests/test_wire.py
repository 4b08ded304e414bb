"""What crosses the network: the submodel, the whole submodel, and nothing but the submodel."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedsac.core.units import Layout
from fedsac.federation.guard import Raw
from fedsac.federation.wire import arrays_of, digest, merged, network_of, shapes, submodel
from fedsac.models.network import Network

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
