"""Extract a submodel from a network as a smaller dense network, and merge it back."""

import copy
from typing import overload

from torch import Tensor, nn

from fedsac.core import given
from fedsac.errors import FedsacError
from fedsac.models.network import Network, as_network


def extract(model: Network | nn.Module, neurons: given.Values) -> Network:
    """The submodel theta_i with these `neurons` (Eq. 7), a boolean mask [neurons] over the hidden neurons: a smaller
    dense network that contains nothing of the other neurons. It can be called; `.module()` is an `nn.Sequential`.

    >>> import torch
    >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> extract(model, torch.tensor([True, False, True])).layout.sizes
    (4, 2, 2)
    """
    network = as_network(model)
    neurons = _checked_mask(network, neurons)
    return Network(network.layout.smaller(neurons), network.params[network.layout.held(neurons)])


@overload
def merge(model: Network, neurons: given.Values, submodel: Network | nn.Module) -> Network: ...


@overload
def merge(model: nn.Module, neurons: given.Values, submodel: Network | nn.Module) -> nn.Sequential: ...


def merge(model: Network | nn.Module, neurons: given.Values, submodel: Network | nn.Module) -> Network | nn.Sequential:
    """`model` with the parameters of these `neurons` replaced by the submodel's (the mask of Eq. 8): of a torch module
    a torch module like it, of a `Network` a `Network`.

    >>> import torch
    >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> held = torch.tensor([True, False, True])
    >>> merge(model, held, extract(model, held))(torch.ones(1, 4)).equal(model(torch.ones(1, 4)))
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
    merged = Network(network.layout, params)
    return merged if isinstance(model, Network) else _like(model, merged)


def _like(model: nn.Module, network: Network) -> nn.Sequential:
    """The network as a module with the layers of `model`, Flatten in front and training mode included."""
    made, named = copy.deepcopy(model), network.state()
    assert isinstance(made, nn.Sequential)  # `Network.of` reads no other
    layers = [layer for layer in made if isinstance(layer, nn.Linear)]
    for i, layer in enumerate(layers):
        layer.load_state_dict({"weight": named[f"{2 * i}.weight"], "bias": named[f"{2 * i}.bias"]})
    return made


def _checked_mask(network: Network, neurons: given.Values) -> Tensor:
    return given.mask("neurons", neurons, network.layout.neurons, "hidden neuron").to(network.params.device)
