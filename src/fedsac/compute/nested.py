"""Logits of nested submodels of one model, each computed from the next smaller one: on a CPU, several times as fast as
one after the other.

Submodels that are prefixes of one order of neurons, as FedSAC's are, differ by a few neurons. A neuron that a larger
one adds to the first hidden layer changes the pre-activations of the second by a product of rank one, and only the
small last layer is computed again. (A GPU is fast with large products, not with many small ones in a row.)
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

Layers = list[tuple[Tensor, Tensor]]

LOGIT_BYTES = 8 << 20  # of the logits of some submodels, computed before any is used: what a cache has room for
MIN_MEMBERS = 4  # fewer are as fast one after the other


def ascending(neurons: Tensor) -> Tensor | None:
    """The order [S] in which each of these submodels, boolean [S, neurons], holds what the one before it holds; None
    where they are not nested."""
    order = neurons.sum(1).argsort(stable=True)
    grown = neurons[order]
    return order if bool((grown[:-1] <= grown[1:]).all()) else None


class NestedSubmodels:
    """Submodels in ascending order, of a network with one or two hidden layers. `layers` are the weights [in, out] and
    biases of all layers but the first, `masks` [S, width] (boolean) the neurons held of each hidden layer."""

    def __init__(self, layers: Layers, masks: Sequence[Tensor]) -> None:
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
    def supports(layers: Layers) -> bool:
        """Can submodels of a network with these layers behind the first one be computed?"""
        return len(layers) in (1, 2)

    def logits(self, a: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Which submodels, and their logits [k, n, classes], from the first hidden layer's activations [n, width] of
        the whole model; all submodels in turn. The logits are overwritten when the next ones are asked for."""
        a = a[:, self._first]
        members, samples = len(self._counts[0]), len(a)
        classes = (self._last or (None, self._bias))[1].shape[0]
        at_once = max(1, LOGIT_BYTES // (a.element_size() * max(1, samples) * classes))
        out = a.new_empty(min(members, at_once), samples, classes)
        z, held = self._bias.repeat(samples, 1), 0
        active = torch.empty_like(z)
        for start in range(0, members, at_once):
            group = slice(start, min(start + at_once, members))
            for i in range(group.start, group.stop):
                own = self._counts[0][i]
                if own > held:
                    z.addmm_(a[:, held:own], self._weight[held:own])
                    held = own
                if self._last is None:
                    out[i - start].copy_(z)
                    continue
                next_own, (weight, bias) = self._counts[1][i], self._last
                torch.clamp_min(z[:, :next_own], 0, out=active[:, :next_own])
                torch.addmm(bias, active[:, :next_own], weight[:next_own], out=out[i - start])
            yield group, out[: group.stop - start]
