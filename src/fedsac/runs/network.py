"""The network of a run: made for the data, checked against it, and put where the data is."""

import numpy as np
import torch
from torch import nn

from fedsac.compute.modules.inputs import inputs
from fedsac.compute.samples import Samples
from fedsac.config import Config
from fedsac.core.module_layout import ModuleLayout
from fedsac.data.dataset import DataSet
from fedsac.data.split import Split
from fedsac.errors import FedsacError
from fedsac.models.batch_norm import has_statistics
from fedsac.models.start import NetworkSpec, Start, initial_network, with_statistics

STATISTICS_SAMPLES = 1024  # of V, at the most, on which batch norm's statistics are measured


def started(config: Config, dealt: Split) -> Start:
    """The network that a config names, for this data."""
    data = dealt.data
    spec = NetworkSpec(
        features=data.x.shape[1],
        classes=len(data.classes),
        hidden=config.hidden,
        seed=config.seed,
        dtype=getattr(torch, config.dtype),
        image=data.image,
        channels_last=data.channels_last,
        recipe=config.recipe,
    )
    start = initial_network(config.network, spec)
    if config.noise is not None and isinstance(start.layout, ModuleLayout):
        _check_private(config, start.layout.template)
    if isinstance(start.layout, ModuleLayout) and start.layout.input.tokens:
        _check_tokens(config, data, start.layout.template)
    return start


def _check_private(config: Config, module: nn.Module) -> None:
    if any(isinstance(layer, nn.modules.batchnorm._BatchNorm) for layer in module.modules()):
        raise FedsacError(
            f"noise: network {config.network} has batch norm, by which a sample changes the gradients of others: no "
            "epsilon holds; take a network with another norm, as resnet18-gn:WIDTH"
        )


def _check_tokens(config: Config, data: DataSet, module: nn.Module) -> None:
    known = max((layer.num_embeddings for layer in module.modules() if isinstance(layer, nn.Embedding)), default=None)
    for x in (data.x, data.x_test):
        if x is not None and ((x < 0).any() or (x != np.floor(x)).any()):
            raise FedsacError(f"network {config.network} takes tokens: whole numbers from 0 up; {data.name} has others")
        if x is not None and known is not None and x.max() >= known:
            raise FedsacError(f"network {config.network} knows tokens 0 to {known - 1}; {data.name} has {int(x.max())}")


def on_device(layout: ModuleLayout, validation: Samples, dtype: torch.dtype) -> ModuleLayout:
    """The layout with its template on the device of the data, and with inputs for batch norm's statistics."""
    layout.template.to(validation.x.device)
    if layout.recipe.batch_norm != "validation" or not has_statistics(layout.template):
        return layout
    if not len(validation.y):
        return layout  # a site of a federation has none
    # Evenly from all of V, which lies in the order of the data set.
    few = torch.linspace(0, len(validation.y) - 1, min(len(validation.y), STATISTICS_SAMPLES)).long()
    return with_statistics(layout, inputs(layout, validation, few.to(validation.x.device), 0, dtype))
