"""Logits of nested submodels of one model, each computed from the next smaller one: on a CPU, several times as fast as
one after the other.

Submodels that are prefixes of one order of neurons, as FedSAC's are, differ by a few neurons. A neuron that a larger
one adds to the first hidden layer changes the pre-activations of the second by a product of rank one, and only the
small last layer is computed again. (A GPU is fast with large products, not with many small ones in a row.)
"""

from collections.abc import Sequence

import torch
from torch import Tensor

Layers = list[tuple[Tensor, Tensor]]

LOGIT_BYTES = 128 << 20  # of all submodels on the samples evaluated at a time, at the most
MIN_MEMBERS = 4  # fewer are as fast one after the other


def ascending(neurons: Tensor) -> Tensor | None:
    """The order [S] in which each of these submodels, boolean [S, neurons], holds what the one before it holds; None
    where they are not nested."""
    order = neurons.sum(1).argsort(stable=True)
    grown = neurons[order]
    return order if bool((grown[:-1] <= grown[1:]).all()) else None


class NestedSubmodels:
    """Submodels of a network with one or two hidden layers. `layers` are the weights [in, out] and biases of all layers
    but the first, `masks` [S, width] (boolean) the neurons held of each hidden layer, `order` as `ascending` has it."""

    def __init__(self, layers: Layers, masks: Sequence[Tensor], order: Tensor) -> None:
        self._order: list[int] = order.tolist()
        # Neurons in the order in which they join: what a submodel holds of a layer are its first neurons.
        joined = [mask.sum(0).argsort(descending=True, stable=True) for mask in masks]
        self._counts = [mask.sum(1).tolist() for mask in masks]
        self._first = joined[0]
        (weight, self._bias), *last = layers
        self._weight = weight[joined[0]]
        self._last: tuple[Tensor, Tensor] | None = None
        if last:
            self._weight, self._bias = self._weight[:, joined[1]].contiguous(), self._bias[joined[1]]
            last_weight, last_bias = last[0]
            self._last = last_weight[joined[1]], last_bias

    @staticmethod
    def supports(layers: Layers, members: int, samples: int) -> bool:
        """Can so many submodels of a network with these layers behind the first one be computed on so many samples at a
        time, and is it worth it?"""
        bias = layers[-1][1] if layers else None
        if bias is None or bias.is_cuda or len(layers) > 2 or members < MIN_MEMBERS:
            return False
        return members * samples * bias.shape[-1] * bias.element_size() <= LOGIT_BYTES

    def logits(self, a: Tensor) -> Tensor:
        """The logits [S, n, classes], from the first hidden layer's activations [n, width] of the whole model."""
        a = a[:, self._first]
        z, held = self._bias.repeat(len(a), 1), 0
        active = torch.empty_like(z)
        out = a.new_empty(len(self._order), len(a), len((self._last or (None, self._bias))[1]))
        for i in self._order:
            own = self._counts[0][i]
            if own > held:
                z.addmm_(a[:, held:own], self._weight[held:own])
                held = own
            if self._last is None:
                out[i].copy_(z)
                continue
            next_own, (weight, bias) = self._counts[1][i], self._last
            torch.clamp_min(z[:, :next_own], 0, out=active[:, :next_own])
            torch.addmm(bias, active[:, :next_own], weight[:next_own], out=out[i])
        return out
