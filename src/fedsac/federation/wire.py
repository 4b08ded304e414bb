"""What crosses the network: small dense arrays, and a JSON text that says what they are for.

A site is sent the submodel it holds as a network of its own, layer by layer; no mask, no index and no padding, so that
what it has not earned occurs in no byte. It needs no indices: it trains a smaller network, and the coordinator, who cut
it out, knows where it belongs.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsac.core.units import Layout
from fedsac.models.network import Network
from fedsac.models.submodels import extract, merge

LOCAL_LOSS, BATCH_LOSSES = "local_loss", "batch_losses"  # what some methods ask for beside the model


@dataclass(frozen=True)
class Order:
    """A message to a site: what to do (`kind`: join, alone, round or reward), for which round, with what."""

    kind: str
    round: int
    token: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)


def arrays_of(network: Network) -> dict[str, np.ndarray]:
    """A network as arrays: names and shapes of `nn.Sequential(Linear, ReLU, ..., Linear)`."""
    return {name: tensor.detach().cpu().numpy() for name, tensor in network.state().items()}


def network_of(arrays: Mapping[str, np.ndarray]) -> Network:
    """The inverse."""
    return Network.from_state({name: torch.from_numpy(np.array(array)) for name, array in arrays.items()})


def submodel(layout: Layout, params: Tensor, neurons: Tensor) -> dict[str, np.ndarray]:
    """What a site that holds `neurons` of a model [parameters] is sent."""
    return arrays_of(extract(Network(layout, params), neurons))


def merged(layout: Layout, params: Tensor, neurons: Tensor, arrays: Mapping[str, np.ndarray]) -> Tensor:
    """The model [parameters] with what a site sent back in the places of its neurons."""
    return merge(Network(layout, params), neurons, network_of(arrays)).params


def shapes(arrays: Mapping[str, np.ndarray]) -> dict[str, tuple[tuple[int, ...], str]]:
    """The shapes and types that the answer to these arrays must have."""
    return {name: (array.shape, str(array.dtype)) for name, array in arrays.items()}


def digest(arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 over names, types, shapes and numbers: what the ledger keeps of what was sent."""
    found = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        found.update(f"{name} {array.dtype} {array.shape}\n".encode())
        found.update(array.tobytes())
    return found.hexdigest()


def described(arrays: Mapping[str, np.ndarray], bytes: int) -> dict[str, Any]:
    """What the ledger says of a message: its arrays' names and sizes, their hash, and the bytes of the whole."""
    return {
        "arrays": {name: list(array.shape) for name, array in sorted(arrays.items())},
        "payload": sum(array.nbytes for array in arrays.values()),
        "bytes": bytes,
        "sha256": digest(arrays),
    }
