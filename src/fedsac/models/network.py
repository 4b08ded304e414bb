"""A multilayer perceptron as a layout and a parameter vector, converted from and to torch modules."""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from fedsac.core.given import Values, tensor
from fedsac.core.units import Layout
from fedsac.errors import FedsacError

PERCEPTRON = (nn.Flatten, nn.Linear, nn.ReLU)  # what a perceptron's nn.Sequential may have


@dataclass(frozen=True)
class Network:
    """A multilayer perceptron with ReLU between its layers: `params` [parameters], stored as `layout` says."""

    layout: Layout
    params: Tensor

    @classmethod
    def of(cls, module: nn.Module) -> "Network":
        """Read an `nn.Sequential` of Linear and ReLU (and Flatten in front).

        >>> Network.of(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))).layout
        Layout(sizes=(4, 3, 2))
        """
        parts = list(module) if isinstance(module, nn.Sequential) else []
        if parts and isinstance(parts[0], nn.Flatten):
            parts = parts[1:]
        linear, between = parts[::2], parts[1::2]
        if (
            len(parts) < 3
            or len(parts) % 2 == 0
            or not all(isinstance(part, nn.Linear) and part.bias is not None for part in linear)
            or not all(isinstance(part, nn.ReLU) for part in between)
        ):
            raise FedsacError(
                "a network must be nn.Sequential(Linear, ReLU, ..., Linear) with biases and at least one hidden "
                f"layer (nn.Flatten in front is fine), not {type(module).__name__} with {len(parts)} such parts"
            )
        layers = [part for part in linear if isinstance(part, nn.Linear)]
        if any(one.out_features != two.in_features for one, two in pairwise(layers)):
            raise FedsacError("the network's layers do not fit together: one's outputs are not the next one's inputs")
        layout = Layout((layers[0].in_features, *(layer.out_features for layer in layers)))
        pieces = [piece for layer in layers for piece in (layer.weight.detach().T.flatten(), layer.bias.detach())]
        return cls(layout, torch.cat(pieces))

    @property
    def dtype(self) -> torch.dtype:
        return self.params.dtype

    def state(self) -> dict[str, Tensor]:
        """Its state dict as `nn.Sequential(Linear, ReLU, Linear, ...)`: torch loads it without this package."""
        named = {}
        for i, (weight, bias) in enumerate(self.layout.views(self.params)):
            named[f"{2 * i}.weight"] = weight.T.contiguous()
            named[f"{2 * i}.bias"] = bias.clone()
        return named

    @classmethod
    def from_state(cls, named: dict[str, Tensor]) -> "Network":
        """The inverse of `state`."""
        weights = [named[f"{2 * i}.weight"] for i in range(len(named) // 2)]
        biases = [named[f"{2 * i}.bias"] for i in range(len(named) // 2)]
        layout = Layout((weights[0].shape[1], *(weight.shape[0] for weight in weights)))
        pieces = [piece for pair in zip(weights, biases, strict=True) for piece in (pair[0].T.flatten(), pair[1])]
        return cls(layout, torch.cat(pieces))

    def module(self) -> nn.Sequential:
        """The network as an `nn.Sequential` of torch's own layers."""
        parts: list[nn.Module] = []
        for weight, bias in self.layout.views(self.params):
            layer = nn.Linear(1, 1)  # its weights are replaced; a layer without neurons could not be initialised
            layer.in_features, layer.out_features = weight.shape
            layer.weight = nn.Parameter(weight.T.contiguous())
            layer.bias = nn.Parameter(bias.clone())
            parts += [layer, nn.ReLU()]
        return nn.Sequential(*parts[:-1])

    def __call__(self, x: Values) -> Tensor:
        """Class scores [n, classes] of inputs [n, ...] with as many entries as there are features."""
        inputs = tensor("x", x).to(self.params)
        if inputs.ndim < 2 or inputs[0].numel() != self.layout.sizes[0]:
            raise FedsacError(
                f"x must be samples of {self.layout.sizes[0]} features each, not of shape {tuple(inputs.shape)}"
            )
        return self.logits(inputs.flatten(1))

    def logits(self, x: Tensor) -> Tensor:
        """Class scores [n, classes] of inputs [n, features]."""
        *hidden, (weight, bias) = self.layout.views(self.params)
        for w, b in hidden:
            x = torch.relu(torch.addmm(b, x, w))
        return torch.addmm(bias, x, weight)


def as_network(model: "Network | nn.Module") -> Network:
    """What the public functions take: a `Network`, or a torch module that `Network.of` can read."""
    if not isinstance(model, Network):
        return Network.of(model)
    if tuple(model.params.shape) != (model.layout.parameters,):
        raise FedsacError(
            f"a network of sizes {model.layout.sizes} has {model.layout.parameters} parameters, not params of shape "
            f"{tuple(model.params.shape)}"
        )
    return model
