"""Runs in parts that a device holds side by side."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedsac.clients import memory
from fedsac.clients.population import Clients
from fedsac.compute.samples import Samples
from fedsac.core.units import Layout

LAYOUT = Layout((8, 4, 3))


def clients(n):
    pool = Samples(torch.zeros(1, 8), torch.zeros(1), torch.ones(1, 8), torch.zeros(1, 8))
    rows = tuple(np.zeros(1, dtype=int) for _ in range(n))
    return Clients(LAYOUT, tuple(map(str, range(n))), rows, pool, 0.1, 16, 1, 0)


def needed(n):
    """Bytes of one run, counted by hand: six models of 51 numbers and three batches of 16 x 15 for each client."""
    return n * (6 * 51 + 3 * 16 * 15) * 4


@given(st.lists(st.integers(2, 30), min_size=1, max_size=40), st.integers(1, 9))
def test_every_run_is_in_one_part_in_order_and_parts_are_alike(sizes, wanted):
    total = sum(map(needed, sizes))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "_total_memory_bytes", lambda device: total / wanted / memory.MEMORY_SHARE)
        for device, least in (("cpu", 1), ("cuda", 2)):
            parts = memory.groups_that_fit([clients(n) for n in sizes], 4, torch.device(device))
            assert [i for part in parts for i in part] == list(range(len(sizes)))
            assert len(parts) >= min(least, len(sizes))
            # No part is larger than the share of memory, but for single runs that are.
            assert all(len(part) == 1 or sum(needed(sizes[i]) for i in part) <= total / wanted + 1 for part in parts)


def test_an_odd_number_of_runs_makes_two_parts_on_a_gpu():
    parts = memory.groups_that_fit([clients(10)] * 165, 4, torch.device("cpu"))
    assert [len(part) for part in parts] == [165]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "_total_memory_bytes", lambda device: 1 << 40)
        parts = memory.groups_that_fit([clients(10)] * 165, 4, torch.device("cuda"))
    assert sorted(map(len, parts)) == [82, 83]
