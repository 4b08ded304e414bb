"""How much the loss on the validation set rises when a neuron is taken out (Eq. 3 and 4), exactly and fast.

The plain way is one evaluation for each neuron. Here the validation set goes through the network once. Taking out
neuron j of a hidden layer changes the next layer's input by the rank-1 term a_j * W[j, :], so only what lies downstream
is computed again: for the last hidden layer that is the logits alone. A sample on which the neuron is silent
(a_j = 0, about half of them) does not change at all and is skipped.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedsac.errors import FedsacError
from fedsac.models.network import Network, as_network

CHUNK_BYTES = 256 << 20  # of activations, for the samples measured at a time
BLOCK_BYTES = 2 << 20  # of logits at a time, on a CPU: what its cache holds
DENSE_BYTES = 256 << 20  # of a chunk's intermediate values on a GPU


@torch.no_grad()
def importance(model: Network | nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Rise of the mean cross-entropy on (x [n, features], y [n]) when each hidden neuron's output is zeroed
    (Eq. 3), as float64 [neurons]; negative where the model is better off without the neuron.

    >>> model = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 2))
    >>> for p, value in zip(model.parameters(), ([[1.], [1.]], [0., 0.], [[1., 0.], [0., 0.]], [0., 0.])):
    ...     p.data = torch.tensor(value)
    >>> importance(model, torch.tensor([[1.0]]), torch.tensor([0])).round(decimals=4).tolist()
    [0.3799, 0.0]
    """
    network = as_network(model)
    x, classes = x.flatten(1), network.layout.sizes[-1]
    if not len(y) or len(x) != len(y) or int(y.min()) < 0 or int(y.max()) >= classes:
        raise FedsacError(f"importance needs as many labels as samples, at least one, each in 0..{classes - 1}")
    return rises(network, x, y)


@torch.no_grad()
def rises(network: Network, x: Tensor, y: Tensor) -> Tensor:
    """`importance` of data that has been looked at, a chunk of samples at a time.

    With n samples and layers of width w_1 ... w_H and c classes it takes about n sum_l w_l (w_(l+1) + sum_(m>l) w_m
    w_(m+1)) multiplications, half of them skipped on a CPU, and the memory of one chunk: see `CHUNK_BYTES`.
    """
    total = sum(_summed(network, *part) for part in _chunks(network, x, y))
    assert isinstance(total, Tensor)
    return total / len(y)


def _summed(network: Network, x: Tensor, y: Tensor) -> Tensor:
    layers = _padded(network)
    activations, inputs = [], [torch.addmm(layers[0][1], x, layers[0][0])]
    for weight, bias in layers[1:]:
        activations.append(torch.relu(inputs[-1]))
        inputs.append(torch.addmm(bias, activations[-1], weight))
    before = _loss(inputs[-1], y)

    # A GPU wants few large products, a CPU small ones that stay in its cache.
    rise = _rises_cuda if x.is_cuda else _rises
    found = [
        rise(activation, layers[i + 1][0], inputs[i + 1], layers[i + 2 :], y, before)
        for i, activation in enumerate(activations)
    ]
    return torch.cat(found)


@torch.no_grad()
def first_order(network: Network, x: Tensor, y: Tensor) -> Tensor:
    """What `importance` is to first order (Taylor): -mean of a_j dL/da_j, float64 [neurons]. One pass forth and one
    back, whatever the number of neurons; how well it ranks them is measured in docs/results/speed.md."""
    total = sum(_first_order(network, *part) for part in _chunks(network, x, y))
    assert isinstance(total, Tensor)
    return total / len(y)


def _first_order(network: Network, x: Tensor, y: Tensor) -> Tensor:
    layers = network.layout.views(network.params)
    inputs = [torch.addmm(layers[0][1], x, layers[0][0])]
    for weight, bias in layers[1:]:
        inputs.append(torch.addmm(bias, torch.relu(inputs[-1]), weight))
    delta = inputs[-1].softmax(1)
    delta.scatter_add_(1, y.unsqueeze(1), delta.new_full((len(y), 1), -1))
    found = []
    for z, (weight, _) in zip(inputs[-2::-1], layers[:0:-1], strict=True):
        delta = delta @ weight.T
        delta *= z > 0
        found.append(-(z * delta).sum(0).double())  # where z > 0, it is the activation
    return torch.cat(found[::-1])


def _chunks(network: Network, x: Tensor, y: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Samples at a time, so that their activations take `CHUNK_BYTES`."""
    sizes = network.layout.sizes
    chunk = max(1, CHUNK_BYTES // (x.element_size() * (sum(sizes) + 2 * max(sizes[1:]))))
    return zip(x.split(chunk), y.split(chunk), strict=True)


Layers = list[tuple[Tensor, Tensor]]


def _rises(a: Tensor, weight: Tensor, below: Tensor, tail: Layers, y: Tensor, before: Tensor) -> Tensor:
    """Sum of the rises over the samples, for each neuron of one layer with activations `a` [n, width]: one neuron at a
    time, silent samples left out. In float64, because thousands of small differences are added."""
    neurons = a.T.contiguous()
    if not tail:
        return _rises_last(neurons, weight, below, y, before)
    # Sums go where they stay: small tensors kept from every turn would hold on to the memory of the large ones between.
    after = a.new_zeros(len(neurons), dtype=torch.float64)
    for total, active, w_out in zip(after, neurons, weight, strict=True):
        rows = active.nonzero().squeeze(1)
        z = below.index_select(0, rows)
        torch.addcmul(z, active.index_select(0, rows).unsqueeze(1), w_out, value=-1, out=z)
        for w, b in tail:
            z = torch.addmm(b, z.relu_(), w)
        total.copy_(_loss(z, y.index_select(0, rows)).sum(dtype=torch.float64))
    return after - (neurons > 0).double() @ before.double()


def _rises_last(neurons: Tensor, weight: Tensor, below: Tensor, y: Tensor, before: Tensor) -> Tensor:
    """The same for the last hidden layer, activations [width, n]: only logits change, and several neurons are taken at
    once, silent samples and all."""
    width, n = neurons.shape
    at_once = max(1, BLOCK_BYTES // (below.element_size() * n * below.shape[1]))
    labels, after = y.repeat(min(at_once, width)), neurons.new_zeros(width, dtype=torch.float64)
    logits = below.new_empty(min(at_once, width), *below.shape)
    for total, active, out in zip(*(t.split(at_once) for t in (after, neurons, weight)), strict=True):
        z = torch.addcmul(below, active.unsqueeze(2), out.unsqueeze(1), value=-1, out=logits[: len(active)])
        torch.sum(_loss(z.flatten(0, 1), labels[: len(active) * n]).view(-1, n), 1, dtype=torch.float64, out=total)
    return after - before.sum(dtype=torch.float64)


def _rises_cuda(a: Tensor, weight: Tensor, below: Tensor, tail: Layers, y: Tensor, before: Tensor) -> Tensor:
    """The same, on a GPU: in registers where the shapes permit, else through memory."""
    from fedsac.compute.cuda import kernels

    rise = kernels.rises if kernels.fits(below, tail) else _rises_dense
    return rise(a, weight, below, tail, y, before)


def _rises_dense(a: Tensor, weight: Tensor, below: Tensor, tail: Layers, y: Tensor, before: Tensor) -> Tensor:
    """The same for all neurons at once, a chunk of samples at a time."""
    width = a.shape[1]
    widest = max([weight.shape[1], *(w.shape[1] for w, _ in tail)])
    chunk = max(1, DENSE_BYTES // (a.element_size() * max(1, width) * widest))
    total = a.new_zeros(width, dtype=torch.float64)
    pieces = (t.split(chunk) for t in (a, below, y, before))
    for part, z_part, y_part, before_part in zip(*pieces, strict=True):
        z = torch.addcmul(z_part.unsqueeze(1), part.unsqueeze(2), weight, value=-1).flatten(0, 1)
        for w, b in tail:
            z = torch.addmm(b, z.relu_(), w)
        losses = _loss(z, y_part.repeat_interleave(width)).view(-1, width)
        total += (losses - before_part.unsqueeze(1)).sum(0, dtype=torch.float64)
    return total


def _padded(network: Network) -> list[tuple[Tensor, Tensor]]:
    """The layers, the last one widened to a multiple of 16 classes that never win.

    The logits of every neuron's removal are one narrow matrix product each; at 10 columns it runs at a third of the
    speed it has at 16.
    """
    layers = network.layout.views(network.params)
    weight, bias = layers[-1]
    extra = -len(bias) % 16
    weight = torch.cat([weight, weight.new_zeros(len(weight), extra)], 1)
    bias = torch.cat([bias, bias.new_full((extra,), -torch.inf)])
    return [*layers[:-1], (weight, bias)]


def _loss(logits: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy of each row: torch's own takes a quarter of the time of logsumexp less the label's logit."""
    return functional.cross_entropy(logits, y, reduction="none")
