"""The largest entries of an update, against plain loops over exact fractions: the way a CPU finds them and a GPU's."""

import math
from fractions import Fraction

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedsac.core.units import Layout
from fedsac.methods.shared import largest as module
from fedsac.methods.shared.largest import largest_entries, largest_of_all

LAYOUT = Layout((7, 5, 1, 3))
PIECES = (7 * 5, 5, 5 * 1, 1, 1 * 3, 3)  # weight and bias of each layer
FRACTIONS = st.fractions(Fraction(-1, 5), Fraction(6, 5), max_denominator=60)


def kept_of(piece: list[float], k: int) -> list[float]:
    """One piece with its k largest entries, and those as large as the k-th."""
    if k == 0:
        return [0.0] * len(piece)
    bound = sorted((abs(value) for value in piece), reverse=True)[k - 1]
    return [value if abs(value) >= bound else 0.0 for value in piece]


def number_kept(n: int, share: Fraction) -> int:
    """ceil(n share), from 0 to n - 1."""
    return min(max(math.ceil(n * share), 0), n - 1)


def plainly(update: list[float], share: Fraction) -> list[float]:
    kept, start = [], 0
    for n in PIECES:
        kept += kept_of(update[start : start + n], number_kept(n, share))
        start += n
    return kept


def some_update(seed: int, ties: bool) -> torch.Tensor:
    draw = np.random.default_rng(seed)
    values = draw.integers(-3, 4, sum(PIECES)) if ties else draw.normal(size=sum(PIECES))
    return torch.from_numpy(values * 10.0 ** draw.integers(-38, 30)).float()


@given(st.integers(0, 2**32 - 1), st.lists(FRACTIONS, min_size=1, max_size=6), st.booleans())
def test_the_largest_of_each_piece_stay(seed, shares, ties):
    update = some_update(seed, ties)
    expected = [plainly(update.tolist(), share) for share in shares]
    assert largest_entries(LAYOUT, update, torch.tensor([float(share) for share in shares])).tolist() == expected
    as_double = torch.tensor([float(share) for share in shares], dtype=torch.float64)
    assert largest_entries(LAYOUT, update.double(), as_double).tolist() == expected


@given(st.integers(0, 2**32 - 1), st.lists(FRACTIONS, min_size=1, max_size=6), st.booleans())
def test_a_gpus_way_keeps_the_same(seed, shares, ties):
    update = some_update(seed, ties)
    k = torch.tensor([[number_kept(n, share) for share in shares] for n in PIECES])
    found = module._largest_entries_cuda(LAYOUT, update, update.abs(), k)
    assert found.tolist() == [plainly(update.tolist(), share) for share in shares]


@given(st.integers(0, 2**32 - 1), st.lists(FRACTIONS, min_size=1, max_size=6), st.booleans())
def test_the_largest_of_all_stay(seed, shares, ties):
    """floor(n share) of all n entries, from none to all."""
    update = some_update(seed, ties)
    n = len(update)
    expected = [kept_of(update.tolist(), min(max(math.floor(n * share), 0), n)) for share in shares]
    as_double = torch.tensor([float(share) for share in shares], dtype=torch.float64)
    assert largest_of_all(update, as_double).tolist() == expected


def test_the_largest_of_all_by_hand():
    """Of five entries, less than a fifth keeps none, a fifth one; more than all, or less than none, is all or none."""
    update = torch.tensor([0.5, -0.1, 0.3, -0.7, 0.2], dtype=torch.float64)
    one, two = [0, 0, 0, -0.7, 0], [0.5, 0, 0, -0.7, 0]
    shares = torch.tensor([-0.5, 0.0, 0.19, 0.2, 0.39, 0.4, 1.0, 1.5], dtype=torch.float64)
    expected = [[0] * 5, [0] * 5, [0] * 5, one, one, two, update.tolist(), update.tolist()]
    assert largest_of_all(update, shares).tolist() == expected


def test_by_hand():
    """A weight of 2 x 2 and a bias of 2, of one layer. Half keeps 2 and 1 entries; all, 3 and 1; a little, 1 and 1."""
    update = torch.tensor([0.1, -0.4, 0.3, 0.2, 0.5, -0.6])
    found = largest_entries(Layout((2, 2)), update, torch.tensor([0.5, 1.0, 0.01, 0.0, -1.0], dtype=torch.float64))
    expected = [
        [0, -0.4, 0.3, 0, 0, -0.6],
        [0, -0.4, 0.3, 0.2, 0, -0.6],
        [0, -0.4, 0, 0, 0, -0.6],
        [0] * 6,
        [0] * 6,
    ]
    assert torch.equal(found, torch.tensor(expected))


def test_entries_as_large_as_the_last_one_stay_too():
    update = torch.tensor([0.5, -0.5, 0.5, 0.1, 0.2, 0.2])
    (found,) = largest_entries(Layout((2, 2)), update, torch.tensor([0.25], dtype=torch.float64))
    assert torch.equal(found, torch.tensor([0.5, -0.5, 0.5, 0, 0.2, 0.2]))


def test_the_pieces_are_the_layers_weights_and_biases():
    assert LAYOUT.tensor_sizes == PIECES
    shapes = [tuple(t.shape) for layer in LAYOUT.views(torch.zeros(LAYOUT.parameters)) for t in layer]
    assert shapes == [(7, 5), (5,), (5, 1), (1,), (1, 3), (3,)]
