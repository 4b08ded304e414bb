"""Extract a submodel from a network as a smaller dense network, and merge it back."""

import torch
from torch import Tensor, nn

from fedsac.errors import FedsacError
from fedsac.models.network import Network, as_network


def extract(model: Network | nn.Module, neurons: Tensor) -> Network:
    """The submodel theta_i with these `neurons` (Eq. 7), a boolean mask [neurons] over the hidden neurons: a smaller
    dense network that contains nothing of the other neurons.

    >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> extract(model, torch.tensor([True, False, True])).layout.sizes
    (4, 2, 2)
    """
    network = as_network(model)
    neurons = _checked_mask(network, neurons)
    return Network(network.layout.smaller(neurons), network.params[network.layout.held(neurons)])


def merge(model: Network | nn.Module, neurons: Tensor, submodel: Network | nn.Module) -> Network:
    """`model` with the parameters of these `neurons` replaced by the submodel's (the mask of Eq. 8).

    >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> held = torch.tensor([True, False, True])
    >>> bool((merge(model, held, extract(model, held)).params == Network.of(model).params).all())
    True
    """
    network, small = as_network(model), as_network(submodel)
    neurons = _checked_mask(network, neurons)
    if small.layout != network.layout.smaller(neurons):
        raise FedsacError(
            f"a submodel of sizes {small.layout.sizes} does not fit: these neurons of the model make "
            f"{network.layout.smaller(neurons).sizes}"
        )
    params = network.params.clone()
    params[network.layout.held(neurons)] = small.params.to(params)
    return Network(network.layout, params)


def _checked_mask(network: Network, neurons: Tensor) -> Tensor:
    if neurons.dtype != torch.bool or tuple(neurons.shape) != (network.layout.neurons,):
        raise FedsacError(
            f"neurons must be a boolean mask of length {network.layout.neurons}, one entry for each hidden neuron, "
            f"not {neurons.dtype} of shape {tuple(neurons.shape)}"
        )
    return neurons
