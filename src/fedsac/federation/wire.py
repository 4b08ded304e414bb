"""The messages between coordinator and sites: dense arrays, and a JSON text that says what they are for.

A site is sent the submodel it holds as a smaller network, layer by layer, without mask, index or padding, so that no
message holds a parameter that it has not earned. It needs no indices: it trains a smaller network, and the coordinator,
which extracted it, knows where to merge it.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsac.core.module_layout import AnyLayout, ModuleLayout
from fedsac.models.module_network import ModuleNetwork
from fedsac.models.network import Network
from fedsac.models.submodels import extract, merge
from fedsac.version import __version__

WIRE_FORMAT = 1  # of orders and replies: one more where a fedsac of before cannot read, or misreads, what is sent
LOCAL_LOSS, BATCH_LOSSES = "local_loss", "batch_losses"  # arrays that some methods ask for beside the model


@dataclass(frozen=True)
class Order:
    """A message to a site. `kind` says what to do: `join`, train `alone`, train a `round`, or keep its `reward`;
    `token` must be repeated in the reply; `facts` are further values, `arrays` a model. `ledger` says how far the
    ledger is (`history.py`), `contribution` what the site's was measured to be (None: not yet); the coordinator signs
    all that. `wire` and `fedsac` are the format and version that the coordinator has: a site of another format reads
    nothing else, and declines."""

    kind: str
    round: int
    token: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    ledger: Mapping[str, Any] = field(default_factory=dict)
    contribution: float | None = None
    signature: str = ""
    wire: int = WIRE_FORMAT
    fedsac: str = __version__


def arrays_of(network: Network | ModuleNetwork) -> dict[str, np.ndarray]:
    """A network as arrays: names and shapes of `nn.Sequential(Linear, ReLU, ..., Linear)`, or those of its state dict,
    where tensors that are tied are sent once, and counters not at all."""
    state = network.state()
    names = network.layout.names if isinstance(network, ModuleNetwork) else tuple(state)
    return {name: state[name].detach().cpu().numpy() for name in names}


def network_of(arrays: Mapping[str, np.ndarray]) -> Network:
    """The network of these arrays: the inverse of `arrays_of`."""
    return Network.from_state({name: torch.from_numpy(np.array(array)) for name, array in arrays.items()})


def submodel(layout: AnyLayout, params: Tensor, neurons: Tensor) -> dict[str, np.ndarray]:
    """The submodel that a site with these `neurons` of a model [parameters] is sent to train."""
    if isinstance(layout, ModuleLayout):
        small = layout.table.extract(layout.views(params.detach().cpu()), neurons.cpu())
        return {name: tensor.contiguous().numpy() for name, tensor in small.items()}
    return arrays_of(extract(Network(layout, params), neurons))


def reward(layout: AnyLayout, params: Tensor, neurons: Tensor) -> dict[str, np.ndarray]:
    """The submodel that a site with these `neurons` keeps: batch norm has the statistics that it is scored with."""
    if isinstance(layout, ModuleLayout):
        return arrays_of(ModuleNetwork.of_vector(layout, params, neurons))
    return submodel(layout, params, neurons)


def merged(layout: AnyLayout, params: Tensor, neurons: Tensor, arrays: Mapping[str, np.ndarray]) -> Tensor:
    """The model [parameters] with the parameters of a site's neurons replaced by those the site sent back."""
    if isinstance(layout, ModuleLayout):
        own = np.concatenate([arrays[name].ravel() for name in layout.names])
        whole = params.clone()
        whole[layout.held(neurons)] = torch.from_numpy(own).to(params)
        return whole
    return merge(Network(layout, params), neurons, network_of(arrays)).params


def shapes(arrays: Mapping[str, np.ndarray]) -> dict[str, tuple[tuple[int, ...], str]]:
    """The shape and type of each array, which the arrays in the reply must have, too."""
    return {name: (array.shape, str(array.dtype)) for name, array in arrays.items()}


def digest(arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 over names, types, shapes and numbers; the ledger keeps it of every model that was sent."""
    sha256 = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        sha256.update(f"{name} {array.dtype} {array.shape}\n".encode())
        sha256.update(array.tobytes())
    return sha256.hexdigest()


def described(arrays: Mapping[str, np.ndarray], bytes: int) -> dict[str, Any]:
    """What the ledger keeps of a message: names and shapes of its arrays, their bytes and hash, and the bytes of the
    whole message."""
    return {
        "arrays": {name: list(array.shape) for name, array in sorted(arrays.items())},
        "payload": sum(array.nbytes for array in arrays.values()),
        "bytes": bytes,
        "sha256": digest(arrays),
    }
