"""Which runs train at the same time: as many as fit in a device's memory."""

import math
import os
from collections.abc import Sequence

import numpy as np
import torch

from fedsac.clients.population import Clients
from fedsac.compute.modules.working import activations

MEMORY_SHARE = 0.25  # of a device's memory, for one group: there may be two, and data and the other runs' states
processes = 1  # that share the device; `runs.worker` says how many there are


def groups_that_fit(runs: Sequence[Clients], itemsize: int, device: torch.device) -> list[list[int]]:
    """The indices of the runs in groups, such that the runs of a group fit in a device's memory while they train at the
    same time. `itemsize` is the size of a parameter in bytes.

    Computed from the device's total memory, not from what is free: a resumed job must form the same groups.
    """
    if len(runs) < 2:
        return [[0]] if runs else []
    needed_bytes = []
    for clients in runs:
        layout = clients.layout
        # Models as received, while trained, after it, and what a method computes of them; activations and batches.
        numbers = 6 * layout.parameters + 3 * clients.batch * activations(layout)
        needed_bytes.append(float(len(clients.names) * numbers * itemsize))
    budget_bytes = total_memory_bytes(device) * MEMORY_SHARE / processes
    # On a GPU at least two groups, so that one trains while the server computes its step for the other.
    count = max(math.ceil(sum(needed_bytes) / budget_bytes), 2 if device.type == "cuda" else 1)
    while True:
        # Groups of about equal size: with all runs' bytes in a row, a run belongs to the group at its middle byte.
        middles = np.cumsum(needed_bytes) - np.array(needed_bytes) / 2
        group_of_run = (middles * count / sum(needed_bytes)).astype(int)
        groups = [group for g in range(count) if (group := np.flatnonzero(group_of_run == g).tolist())]
        if all(len(group) == 1 or sum(needed_bytes[i] for i in group) <= budget_bytes for group in groups):
            return groups
        count += 1


def total_memory_bytes(device: torch.device) -> int:
    """The total memory of a device."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 4 << 30
