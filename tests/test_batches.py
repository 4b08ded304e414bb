"""Batches: every sample once an epoch, whole batches only."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedsac.compute.batches import client_batches, stacked_batches
from fedsac.rng import stream


@given(st.integers(1, 90), st.integers(1, 30), st.integers(1, 16))
def test_an_epoch_takes_no_sample_twice(samples, steps, batch):
    drawn = client_batches(samples, steps, batch, stream(0, "x"))
    if samples <= batch:
        assert (drawn == np.arange(samples)).all() and len(drawn) == steps
        return
    assert drawn.shape == (steps, batch)
    per_epoch = samples // batch
    for start in range(0, steps, per_epoch):
        epoch = drawn[start : start + per_epoch].ravel()
        assert len(set(epoch.tolist())) == len(epoch)
        assert epoch.max() < samples


def test_each_epoch_is_shuffled_anew():
    drawn = client_batches(64, 4, 32, stream(0, "x"))
    assert sorted(drawn[:2].ravel()) == sorted(drawn[2:].ravel()) == list(range(64))
    assert drawn[:2].ravel().tolist() != drawn[2:].ravel().tolist()


def test_weights_make_means():
    rows = [np.arange(100), np.arange(100, 103)]
    picked, weight = stacked_batches(rows, [4, 2], 8, [stream(0, 0), stream(0, 1)])
    assert picked.shape == weight.shape == (4, 2, 8)
    assert np.allclose(weight.sum(2), [[1, 1], [1, 1], [1, 0], [1, 0]])
    assert set(picked[:2, 1][weight[:2, 1] > 0]) == {100, 101, 102}


def test_no_wider_than_anybodys_batch():
    """A thousand clients with a sample each do not pay for batches of 32."""
    picked, weight = stacked_batches([np.arange(3), np.array([7])], [2, 2], 32, [stream(0, 0), stream(0, 1)])
    assert picked.shape == (2, 2, 3)
    assert np.allclose(weight.sum(2), 1) and picked[0].tolist() == [[0, 1, 2], [7, 7, 7]]
