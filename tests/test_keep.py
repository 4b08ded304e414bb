"""The largest entries of an update: the way a GPU finds them against the way a CPU does."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedsac.core.units import Layout
from fedsac.methods.shared import largest as module
from fedsac.methods.shared.largest import largest_entries

LAYOUT = Layout((7, 5, 1, 3))


@given(st.integers(0, 2**32 - 1), st.lists(st.floats(-0.2, 1.2), min_size=1, max_size=6), st.booleans())
def test_all_pieces_at_once_are_as_one_after_the_other(seed, shares, ties):
    draw = np.random.default_rng(seed)
    values = draw.integers(-3, 4, LAYOUT.parameters) if ties else draw.normal(size=LAYOUT.parameters)
    update = torch.from_numpy(values * 10.0 ** draw.integers(-38, 30)).float()
    n = torch.tensor(LAYOUT.tensor_sizes, dtype=torch.float64).unsqueeze(1)
    share = torch.tensor(shares, dtype=torch.float64)
    k = torch.ceil(n * share - 1e-6).clamp_min(0).minimum(n - 1).long()
    found = module._largest_entries_cuda(LAYOUT, update, update.abs(), k)
    assert torch.equal(found, largest_entries(LAYOUT, update, share))


def test_the_pieces_are_the_layers_weights_and_biases():
    params = torch.arange(LAYOUT.parameters)
    pieces = [t.flatten().tolist() for layer in LAYOUT.views(params) for t in layer]
    assert [piece.tolist() for piece in params.split(LAYOUT.tensor_sizes)] == pieces
