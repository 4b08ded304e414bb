"""Batch norm's statistics of a submodel."""

import copy

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

CHUNK_SAMPLES = 256  # at a time


def with_statistics_of(module: nn.Module, x: Tensor) -> nn.Module:
    """A copy of a module whose batch norms have the statistics of these samples [n, ...], each sample counted once.

    A submodel has the running means and variances of the whole network, but what reaches its layers is something else:
    the units that are gone no longer add to it. So a server computes them again on validation data before it measures
    a submodel or gives it away.

    >>> module = nn.Sequential(nn.Identity(), nn.BatchNorm1d(1))
    >>> with_statistics_of(module, torch.tensor([[0.0], [2.0]]))[1].running_mean.tolist()
    [1.0]
    """
    measured = copy.deepcopy(module).eval()
    norms = [layer for layer in measured.modules() if isinstance(layer, _BatchNorm) and layer.track_running_stats]
    before = [(layer.momentum, copy.deepcopy(layer.num_batches_tracked)) for layer in norms]
    for layer in norms:
        layer.reset_running_stats()
        layer.momentum = None  # the mean of all chunks, not a running one
        layer.train()
    with torch.no_grad():
        # Chunks of equal size, or the last one would weigh too much.
        for part in x.chunk(max(1, round(len(x) / CHUNK_SAMPLES))):
            measured(part)
    for layer, (momentum, batches) in zip(norms, before, strict=True):
        layer.momentum, layer.num_batches_tracked = momentum, batches
    return measured.train(module.training)
