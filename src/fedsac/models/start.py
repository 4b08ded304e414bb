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


def initial_network(named: str, wanted: NetworkSpec) -> Network:
    """The network of this name with its initial weights: a built-in one, or what `module:factory` makes."""
    make = NETWORKS.resolve(named)
    network: Network = make(wanted) if named in NETWORKS.entries else _from_factory(named, make, wanted)
    sizes = network.layout.sizes
    if (sizes[0], sizes[-1]) != (wanted.features, wanted.classes):
        raise FedsacError(
            f"network {named}: it takes {sizes[0]} features and knows {sizes[-1]} classes; the data has "
            f"{wanted.features} and {wanted.classes}"
        )
    return network


def _from_factory(named: str, make: Callable[..., nn.Module], wanted: NetworkSpec) -> Network:
    """A factory of one's own takes the numbers of features and classes, or nothing, and gives a torch module."""
    given = (wanted.features, wanted.classes)
    arguments = next((some for some in (given, ()) if _takes(make, some)), None)
    if arguments is None:
        raise FedsacError(
            f"network {named} must take features and classes, or nothing; it takes {inspect.signature(make)}"
        )
    # torch draws starting weights from its global generator: seeded for this, and left as it was.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(stream(wanted.seed, "initial weights").integers(2**63)))
        module = make(*arguments)
    try:
        network = Network.of(module)
    except FedsacError as error:
        raise FedsacError(f"network {named}: {error}") from None
    return Network(network.layout, network.params.to(wanted.dtype))


def _takes(make: Callable[..., nn.Module], arguments: tuple[int, ...]) -> bool:
    try:
        inspect.signature(make).bind(*arguments)
    except TypeError:
        return False
    return True
