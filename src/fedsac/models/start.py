"""The initial network of a run, by the name in its config."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from fedsac.doors import NETWORKS
from fedsac.errors import FedsacError
from fedsac.models.network import Network
from fedsac.rng import stream


@dataclass(frozen=True)
class NetworkSpec:
    """What a run needs of its network: shape (number of features, of classes, of neurons in each hidden layer), the
    seed of its initial weights, and their type."""

    features: int
    classes: int
    hidden: tuple[int, ...]
    seed: int
    dtype: torch.dtype


def initial_network(named: str, spec: NetworkSpec) -> Network:
    """The network of this name with its initial weights: a built-in one, or what `module:factory` makes."""
    make = NETWORKS.resolve(named)
    network: Network = make(spec) if named in NETWORKS.entries else _from_factory(named, make, spec)
    sizes = network.layout.sizes
    if (sizes[0], sizes[-1]) != (spec.features, spec.classes):
        raise FedsacError(
            f"network {named}: it takes {sizes[0]} features and knows {sizes[-1]} classes; the data has "
            f"{spec.features} and {spec.classes}"
        )
    return network


def _from_factory(named: str, make: Callable[..., nn.Module], spec: NetworkSpec) -> Network:
    """Call a user's factory: it takes the numbers of features and classes, or nothing, and returns a torch module."""
    takes = len(inspect.signature(make).parameters)
    if takes not in (0, 2):
        raise FedsacError(f"network {named} must take features and classes, or nothing; it takes {takes} arguments")
    # torch draws initial weights from its global generator: seeded here, and restored afterwards.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(stream(spec.seed, "initial weights").integers(2**63)))
        module = make(spec.features, spec.classes) if takes else make()
    network = Network.of(module)
    return Network(network.layout, network.params.to(spec.dtype))
