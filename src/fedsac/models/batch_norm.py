"""Batch norm's statistics of a submodel."""

import copy

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedsac.core.given import Values, finite_tensor, placed
from fedsac.core.given import module as check_module
from fedsac.errors import FedsacError

CHUNK_SAMPLES = 256  # at a time


def has_statistics(module: nn.Module) -> bool:
    """Whether a module has batch norms that keep running statistics."""
    return bool(norms_of(module))


def norms_of(module: nn.Module) -> list[_BatchNorm]:
    """The batch norms of a module that keep running statistics."""
    return [layer for layer in module.modules() if isinstance(layer, _BatchNorm) and layer.track_running_stats]


def with_statistics_of(module: nn.Module, x: Values) -> nn.Module:
    """A copy of a module whose batch norms have the statistics of these samples [n, ...], each sample counted once.

    A submodel has the running means and variances of the whole network, but what reaches its layers is something else:
    the units that are gone no longer add to it. So a server computes them again on validation data before it measures
    a submodel or gives it away.

    >>> module = nn.Sequential(nn.Identity(), nn.BatchNorm1d(1))
    >>> with_statistics_of(module, torch.tensor([[0.0], [2.0]]))[1].running_mean.tolist()
    [1.0]
    """
    check_module("with_statistics_of", module)
    given = finite_tensor("x", x)
    if not given.ndim or not len(given):
        raise FedsacError(f"statistics need samples [n, ...], at least one, not x of shape {tuple(given.shape)}")
    measured = copy.deepcopy(module).eval()
    inputs = placed(measured, x, given)
    norms = norms_of(measured)
    before = [(layer.momentum, copy.deepcopy(layer.num_batches_tracked)) for layer in norms]
    for layer in norms:
        layer.reset_running_stats()
        layer.momentum = None  # the mean of all chunks, not a running one
        layer.train()
    with torch.no_grad():
        # Chunks of equal size, or the last one would weigh too much.
        for part in inputs.chunk(max(1, round(len(inputs) / CHUNK_SAMPLES))):
            measured(part)
    for layer, (momentum, batches) in zip(norms, before, strict=True):
        layer.momentum, layer.num_batches_tracked = momentum, batches
    return measured.train(module.training)
