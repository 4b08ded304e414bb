"""Runs in parts that a device holds side by side, worked out by hand: a part may take a quarter of its memory."""

import os
from types import SimpleNamespace

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
# Bytes of a client in work, in float32: the network has 8 * 4 + 4 + 4 * 3 + 3 = 51 parameters, six times, and a batch
# of 16 has 8 + 4 + 3 = 15 numbers a sample, three times: 4 * (306 + 720).
CLIENT = 4104
CPU, GPU = torch.device("cpu"), torch.device("cuda")


def clients(n):
    pool = Samples(torch.zeros(1, 8), torch.zeros(1), torch.ones(1, 8), torch.zeros(1, 8))
    rows = tuple(np.zeros(1, dtype=int) for _ in range(n))
    return Clients(LAYOUT, tuple(map(str, range(n))), rows, pool, 0.1, 16, 1, 0)


def parts(sizes, total, device=CPU, itemsize=4):
    """Of runs with so many clients each, on a device with so many bytes."""
    pages = {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": total}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "sysconf", pages.__getitem__)
        patch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=total))
        return memory.groups_that_fit([clients(n) for n in sizes], itemsize, device)


@pytest.mark.parametrize(
    ("room", "expected"),
    [
        (7 * CLIENT, [[0, 1, 2, 3, 4, 5, 6]]),
        (7 * CLIENT - 1, [[0, 1, 2], [3, 4, 5, 6]]),
        (3 * CLIENT, [[0, 1], [2, 3, 4], [5, 6]]),
        (3 * CLIENT - 1, [[0, 1], [2], [3, 4], [5, 6]]),
        (CLIENT, [[0], [1], [2], [3], [4], [5], [6]]),
        (1, [[0], [1], [2], [3], [4], [5], [6]]),
    ],
)
def test_seven_equal_runs(room, expected):
    """A run's middle, of 7 equal lengths, decides which of the equal parts it belongs to."""
    assert parts([1] * 7, 4 * room) == expected


def test_a_large_run_stands_alone():
    assert parts([1, 1, 1, 9], 4 * 10 * CLIENT) == [[0, 1, 2], [3]]
    assert parts([1, 1, 1, 90], 4 * 10 * CLIENT) == [[0, 1, 2], [3]]
    assert parts([90], 4) == [[0]]
    assert parts([], 4) == []


def test_numbers_of_eight_bytes_need_twice_the_room():
    assert len(parts([1] * 6, 4 * 6 * CLIENT, itemsize=8)) == 2
    assert len(parts([1] * 6, 4 * 12 * CLIENT, itemsize=8)) == 1


def test_two_parts_at_least_on_a_gpu():
    assert parts([10] * 165, 1 << 40, CPU) == [list(range(165))]
    assert sorted(map(len, parts([10] * 165, 1 << 40, GPU))) == [82, 83]
    assert parts([10], 1 << 40, GPU) == [[0]]
    assert len(parts([1] * 6, 4 * 2 * CLIENT, GPU)) == 3


@given(st.lists(st.integers(1, 30), min_size=1, max_size=40), st.integers(1, 200), st.sampled_from([CPU, GPU]))
def test_every_run_is_in_one_part_in_order_and_no_part_is_too_large(sizes, room, device):
    """`room` is in clients, all of which need the same."""
    found = parts(sizes, 4 * room * CLIENT, device)
    assert [i for part in found for i in part] == list(range(len(sizes)))
    for part in found:
        assert part and (len(part) == 1 or sum(sizes[i] for i in part) <= room)
    if sum(sizes) <= room:
        assert len(found) == (2 if device == GPU and len(sizes) > 1 else 1)


@given(st.integers(2, 60), st.integers(1, 20))
def test_parts_of_equal_runs_are_alike(runs, room):
    lengths = [len(part) for part in parts([1] * runs, 4 * room * CLIENT)]
    assert max(lengths) - min(lengths) <= 1 and max(lengths) <= room
