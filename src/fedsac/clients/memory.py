"""How many runs train side by side: as many as a device's memory holds."""

import math
import os
from collections.abc import Sequence

import numpy as np
import torch

from fedsac.clients.population import Clients

MEMORY_SHARE = 0.25  # of a device, for runs that train side by side: two such parts, data, and others' states


def fitting(runs: Sequence[Clients], itemsize: int, device: torch.device) -> list[list[int]]:
    """The runs, by number, in parts that a device's memory holds side by side while they train.

    By what the device has in all, not by what is free just now: a resumed job must cut as the first one did.
    """
    if len(runs) < 2:
        return [[0]] if runs else []
    needed = []
    for clients in runs:
        layout = clients.layout
        # Received, in work, trained, and what a method makes of it; activations and batches of a step.
        numbers = 6 * layout.parameters + 3 * clients.batch * sum(layout.sizes)
        needed.append(float(len(clients.names) * numbers * itemsize))
    budget = _memory(device) * MEMORY_SHARE
    # On a GPU two parts at least, so that one trains while the server's step of the other is taken.
    count = max(math.ceil(sum(needed) / budget), 2 if device.type == "cuda" else 1)
    while True:
        # As equal as they can be: a run belongs to the part in which its middle lies.
        middles = np.cumsum(needed) - np.array(needed) / 2
        places = (middles * count / sum(needed)).astype(int)
        parts = [part for place in range(count) if (part := np.flatnonzero(places == place).tolist())]
        if all(len(part) == 1 or sum(needed[i] for i in part) <= budget for part in parts):
            return parts
        count += 1


def _memory(device: torch.device) -> int:
    """Bytes of memory a device has."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 4 << 30
