"""Importance of neurons: the increase of the validation loss when a neuron's output is zeroed (Eq. 3), exact and fast.

The plain way is one evaluation of the network for each neuron. Here the validation set passes through it once. Zeroing
neuron j of a hidden layer changes the pre-activations of the next layer by the rank-1 term a_j * W[j, :], so only the
layers after it are computed again: for the last hidden layer, only the logits. A sample on which the neuron is inactive
(a_j = 0, about half of them) does not change at all and is skipped.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedsac.compute.cuda import precision
from fedsac.compute.evaluation import fold_normalisation
from fedsac.compute.samples import Samples
from fedsac.core import given
from fedsac.core.graphs import run_as_graph
from fedsac.core.units import Layout
from fedsac.errors import FedsacError
from fedsac.models.network import Network, as_network

ACTIVATION_BYTES = 256 << 20  # of the samples in one chunk
CPU_LOGIT_BYTES = 2 << 20  # of logits computed at a time on a CPU: what its cache has room for
GPU_DENSE_BYTES = 256 << 20  # of intermediate values at a time on a GPU, where they go through memory

Layers = list[tuple[Tensor, Tensor]]


@torch.no_grad()
def importance(model: Network | nn.Module, x: given.Values, y: given.Values) -> Tensor:
    """Increase of the mean cross-entropy on (x [n, features], y [n]) when a hidden neuron's output is zeroed (Eq. 3),
    for each of them: float64 [neurons]; negative where the loss is lower without the neuron.

    >>> model = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 2))
    >>> for p, value in zip(model.parameters(), ([[1.], [1.]], [0., 0.], [[1., 0.], [0., 0.]], [0., 0.])):
    ...     p.data = torch.tensor(value)
    >>> importance(model, torch.tensor([[1.0]]), torch.tensor([0])).round(decimals=4).tolist()
    [0.3799, 0.0]
    """
    network = as_network(model)
    inputs, labels = given.samples("importance", x, y)
    features, classes = network.layout.sizes[0], network.layout.sizes[-1]
    if inputs.ndim < 2 or inputs[0].numel() != features:
        raise FedsacError(f"importance: x must be samples of {features} features, not of shape {tuple(inputs.shape)}")
    whole = labels.ndim == 1 and not (labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool)
    if not whole or int(labels.min()) < 0 or int(labels.max()) >= classes:
        raise FedsacError(f"importance needs as many labels as samples, whole numbers, each in 0..{classes - 1}")
    at = network.params.device
    return exact_importance(network, inputs.flatten(1).to(network.params), labels.to(at, torch.int64))


@torch.no_grad()
def exact_importance(network: Network, x: Tensor, y: Tensor) -> Tensor:
    """`importance` without validating samples and labels; a chunk of samples at a time.

    With n samples, hidden layers of width w_1 ... w_H and w_(H+1) classes it takes about
    n sum_l w_l (w_(l+1) + sum_(m>l) w_m w_(m+1)) multiplications, half of them skipped on a CPU, and the memory of one
    chunk: see `ACTIVATION_BYTES`.
    """
    total = sum(_summed_loss_increases(network, *part) for part in _chunks(network, x, y))
    assert isinstance(total, Tensor)
    return total / len(y)


@torch.no_grad()
def stored_importance(layout: Layout, params: Tensor, samples: Samples) -> Tensor:
    """`exact_importance` of a model [parameters] on samples as they are stored, normalised by their scale and shift."""
    if params.is_cuda:
        from fedsac.compute.cuda.kernels.importance import supports_importance

        if supports_importance(layout, params):
            inputs = params, samples.x, samples.y, samples.scale, samples.shift
            return run_as_graph(_KernelImportance(layout), inputs, ("Eq. 3", layout, precision.current()))[0]
    folded = fold_normalisation(layout, params.unsqueeze(0), samples.scale, samples.shift)[0]
    return exact_importance(Network(layout, folded), samples.x.to(params.dtype), samples.y)


@dataclass(frozen=True)
class _KernelImportance:
    """`stored_importance` by this package's kernels alone, which read the samples as they are stored."""

    layout: Layout

    def __call__(self, params: Tensor, x: Tensor, y: Tensor, scale: Tensor, shift: Tensor) -> tuple[Tensor]:
        from fedsac.compute.cuda.kernels.training import Layer

        network = Network(self.layout, params)
        layers, every = _padded(network), torch.arange(len(y), device=params.device)
        total = params.new_zeros(self.layout.neurons, dtype=torch.float64)
        for rows, labels in _chunks(network, every.unsqueeze(1), y):
            first = Layer(x, *_stacked(layers[0]), normalisation=(scale, shift))
            activations, pre_activations = [first.output(rows.T)[0]], []
            own_rows = every[: len(labels)].unsqueeze(0)
            for i, layer in enumerate(layers[1:]):
                pre_activations.append(Layer(activations[i], *_stacked(layer), relu=False).output(own_rows)[0])
                activations.append(torch.relu(pre_activations[-1]))
            total += _summed(activations[:-1], pre_activations, layers, labels)
        return (total / len(y),)


def _stacked(layer: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """A layer as that of a stack of one."""
    weight, bias = layer
    return weight.unsqueeze(0), bias.unsqueeze(0)


def _summed_loss_increases(network: Network, x: Tensor, y: Tensor) -> Tensor:
    """Increases of the loss [neurons], summed over the samples of one chunk."""
    layers = _padded(network)
    activations, pre_activations = [torch.addmm(layers[0][1], x, layers[0][0]).relu_()], []
    for weight, bias in layers[1:]:
        pre_activations.append(torch.addmm(bias, activations[-1], weight))
        activations.append(torch.relu(pre_activations[-1]))
    return _summed(activations[:-1], pre_activations, layers, y)


def _summed(activations: list[Tensor], pre_activations: list[Tensor], layers: Layers, y: Tensor) -> Tensor:
    """Increases of the loss [neurons], summed over the samples, from the activations of the hidden layers and the
    pre-activations of all layers but the first."""
    loss = _loss(pre_activations[-1], y)
    # A GPU is fast with few large products, a CPU with small ones that stay in its cache.
    increases_of = _loss_increases_cuda if loss.is_cuda else _loss_increases
    increases = [
        increases_of(activation, layers[i + 1][0], pre_activations[i], layers[i + 2 :], y, loss)
        for i, activation in enumerate(activations)
    ]
    return torch.cat(increases)


@torch.no_grad()
def first_order_importance(network: Network, x: Tensor, y: Tensor) -> Tensor:
    """First-order (Taylor) approximation of `exact_importance`: -mean of a_j dL/da_j, float64 [neurons].

    One forward and one backward pass, whatever the number of neurons; how well it ranks them is measured in
    docs/results/speed.md.
    """
    total = sum(_summed_first_order(network, *part) for part in _chunks(network, x, y))
    assert isinstance(total, Tensor)
    return total / len(y)


def _summed_first_order(network: Network, x: Tensor, y: Tensor) -> Tensor:
    """-a_j dL/da_j [neurons], summed over the samples of one chunk."""
    layers = network.layout.views(network.params)
    pre_activations = [torch.addmm(layers[0][1], x, layers[0][0])]
    for weight, bias in layers[1:]:
        pre_activations.append(torch.addmm(bias, torch.relu(pre_activations[-1]), weight))
    delta = pre_activations[-1].softmax(1)
    delta.scatter_add_(1, y.unsqueeze(1), delta.new_full((len(y), 1), -1))
    increases = []
    for z, (weight, _) in zip(pre_activations[-2::-1], layers[:0:-1], strict=True):
        delta = delta @ weight.T
        delta *= z > 0
        increases.append(-(z * delta).sum(0).double())  # where z > 0, it is the activation
    return torch.cat(increases[::-1])


def _chunks(network: Network, x: Tensor, y: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Inputs and labels in chunks of samples whose activations take `ACTIVATION_BYTES`."""
    sizes, itemsize = network.layout.sizes, network.params.element_size()
    chunk = max(1, ACTIVATION_BYTES // (itemsize * (sum(sizes) + 2 * max(sizes[1:]))))
    return zip(x.split(chunk), y.split(chunk), strict=True)


def _loss_increases(a: Tensor, weight: Tensor, next_z: Tensor, later: Layers, y: Tensor, loss: Tensor) -> Tensor:
    """Increase of the loss when a neuron of one hidden layer is zeroed, summed over the samples: float64 [width], since
    thousands of small differences are added. On a CPU: one neuron at a time, without samples on which it is inactive.

    `a` [n, width] are the layer's activations, `weight` [width, next width] and `next_z` [n, next width] the weights
    and pre-activations of the next layer, `later` the layers after that one; `loss` [n] is the loss of the whole
    network on each sample.
    """
    neurons = a.T.contiguous()
    if not later:
        return _loss_increases_last_layer(neurons, weight, next_z, y, loss)
    # Written into one tensor: small tensors kept from every iteration would fragment the memory of the large ones.
    after = a.new_zeros(len(neurons), dtype=torch.float64)
    for total, active, w_out in zip(after, neurons, weight, strict=True):
        rows = active.nonzero().squeeze(1)
        z = next_z.index_select(0, rows)
        torch.addcmul(z, active.index_select(0, rows).unsqueeze(1), w_out, value=-1, out=z)
        for w, b in later:
            z = torch.addmm(b, z.relu_(), w)
        total.copy_(_loss(z, y.index_select(0, rows)).sum(dtype=torch.float64))
    return after - (neurons > 0).double() @ loss.double()


def _loss_increases_last_layer(neurons: Tensor, weight: Tensor, next_z: Tensor, y: Tensor, loss: Tensor) -> Tensor:
    """`_loss_increases` for the last hidden layer, from its transposed activations `neurons` [width, n]. Only logits
    change, so several neurons are computed at once, with all samples."""
    width, n = neurons.shape
    at_once = max(1, CPU_LOGIT_BYTES // (next_z.element_size() * n * next_z.shape[1]))
    labels, after = y.repeat(min(at_once, width)), neurons.new_zeros(width, dtype=torch.float64)
    logits = next_z.new_empty(min(at_once, width), *next_z.shape)
    for total, active, out in zip(*(t.split(at_once) for t in (after, neurons, weight)), strict=True):
        z = torch.addcmul(next_z, active.unsqueeze(2), out.unsqueeze(1), value=-1, out=logits[: len(active)])
        torch.sum(_loss(z.flatten(0, 1), labels[: len(active) * n]).view(-1, n), 1, dtype=torch.float64, out=total)
    return after - loss.sum(dtype=torch.float64)


def _loss_increases_cuda(a: Tensor, weight: Tensor, next_z: Tensor, later: Layers, y: Tensor, loss: Tensor) -> Tensor:
    """`_loss_increases` on a GPU: by a kernel that keeps intermediate values in registers where it supports the shapes,
    else by `_loss_increases_dense`."""
    from fedsac.compute.cuda.kernels import importance as kernels

    increases_of = kernels.loss_increases if kernels.supports_loss_increases(next_z, later) else _loss_increases_dense
    return increases_of(a, weight, next_z, later, y, loss)


def _loss_increases_dense(a: Tensor, weight: Tensor, next_z: Tensor, later: Layers, y: Tensor, loss: Tensor) -> Tensor:
    """`_loss_increases` with all neurons at once, a chunk of samples at a time."""
    width = a.shape[1]
    widest = max([weight.shape[1], *(w.shape[1] for w, _ in later)])
    chunk = max(1, GPU_DENSE_BYTES // (a.element_size() * max(1, width) * widest))
    total = a.new_zeros(width, dtype=torch.float64)
    pieces = (t.split(chunk) for t in (a, next_z, y, loss))
    for part, z_part, y_part, loss_part in zip(*pieces, strict=True):
        z = torch.addcmul(z_part.unsqueeze(1), part.unsqueeze(2), weight, value=-1).flatten(0, 1)
        for w, b in later:
            z = torch.addmm(b, z.relu_(), w)
        losses = _loss(z, y_part.repeat_interleave(width)).view(-1, width)
        total += (losses - loss_part.unsqueeze(1)).sum(0, dtype=torch.float64)
    return total


def _padded(network: Network) -> list[tuple[Tensor, Tensor]]:
    """The network's weights and biases by layer, the last one padded to a multiple of 16 classes, the added ones with
    probability 0.

    The logits without a neuron are one narrow matrix product for each neuron; with 10 columns it runs at a third of the
    speed that it has with 16.
    """
    layers = network.layout.views(network.params)
    weight, bias = layers[-1]
    extra = -len(bias) % 16
    weight = torch.cat([weight, weight.new_zeros(len(weight), extra)], 1)
    bias = torch.cat([bias, bias.new_full((extra,), -torch.inf)])
    return [*layers[:-1], (weight, bias)]


def _loss(logits: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy [n] of each sample. torch's own takes a quarter of the time of logsumexp less the label's logit."""
    return functional.cross_entropy(logits, y, reduction="none")
