"""Networks that are no plain perceptrons, in a federation: what the parties agree on, and who builds them.

Coordinator and sites build the network themselves, each from code that it has: no code is ever sent. The terms of
joining carry a hash of the network's structure, and a site whose own network has another one declines. A submodel needs
no indices here either: how many units of each group it has says what it looks like, whichever they are, so a site
trains it as the one with the first units of each group.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedsac.config import Config
from fedsac.core.module_layout import AnyLayout, ModuleLayout
from fedsac.doors import NETWORKS
from fedsac.errors import FedsacError
from fedsac.federation.declining import DeclinedError
from fedsac.federation.folder import SiteSettings
from fedsac.federation.limits import CLASS_WEIGHTS, MODULE_SETTINGS, SCHEDULE_SETTINGS, SETTINGS
from fedsac.federation.wire import network_of
from fedsac.models.files import AnyNetwork
from fedsac.models.module_network import ModuleNetwork, perceptron_of
from fedsac.models.network import PERCEPTRON

UNITS = "units"  # in an order's facts: how many units of each group its submodel has


def training_settings(config: Config, layout: AnyLayout) -> dict[str, Any]:
    """The settings that sites train by. What plain SGD at a constant rate does not need is not among them."""
    names: list[str] = [*SETTINGS, *(MODULE_SETTINGS if isinstance(layout, ModuleLayout) else ())]
    if config.lr_schedule != "constant":
        names += SCHEDULE_SETTINGS
    if config.class_weights != "none":
        names.append(CLASS_WEIGHTS)
    settings = {name: getattr(config, name) for name in names}
    return settings | ({"hidden": list(config.hidden)} if "hidden" in settings else {})


def structure(layout: ModuleLayout) -> str:
    """A hash of what both sides must have alike: names, shapes and kinds of tensors, the units they belong to, the
    kinds of layers, what goes in and how many classes come out. Weights do not count, nor what it is called."""
    tensors = {
        name: [list(shape), learned, [None if slots is None else slots.tolist() for slots in layout.table.axes[name]]]
        if name in layout.table.axes
        else [list(shape), learned, []]
        for name, shape, learned in zip(layout.names, layout.shapes, layout.trainable, strict=True)
    }
    others = {name: [list(tensor.shape), str(tensor.dtype)] for name, tensor in layout.outside.items()}
    taken = layout.input
    said = [
        [list(taken.shape), taken.channels_last, taken.tokens, layout.classes],
        [tensors, others, layout.tied],
        list(layout.hidden),
        [[name, type(layer).__name__] for name, layer in layout.template.named_modules()],
    ]
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def network_terms(layout: ModuleLayout) -> dict[str, Any]:
    """What the terms of joining say of the network."""
    return {
        "named": layout.named,
        "shape": list(layout.input.shape),
        "classes": layout.classes,
        "structure": structure(layout),
    }


def built_here(site: SiteSettings, terms: Mapping[str, Any]) -> str:
    """The name of the network that a site builds for these terms: `model` in its site.toml, or a built-in one. What the
    coordinator names is imported only if it is part of this package."""
    if site.model:
        return site.model
    named = str(terms["named"])
    if named.partition(":")[0] in NETWORKS.entries:
        return named
    raise DeclinedError(
        "network",
        f"the federation's network is {named}, which this site has not allowed; if it has that code and trusts it, "
        f'write model = "{named}" in {site.path / "site.toml"}',
    )


def check_structure(layout: AnyLayout, terms: Mapping[str, Any]) -> ModuleLayout:
    """The layout of a site's own network, if it is the one that was agreed on."""
    if not isinstance(layout, ModuleLayout):
        raise DeclinedError("network", f"this site builds a perceptron, and the federation has {terms['named']}")
    own, theirs = structure(layout), str(terms["structure"])
    if own != theirs:
        raise DeclinedError(
            "network", f"networks differ: {layout.named} here has the hash {own}, {terms['named']} there {theirs}", own
        )
    return layout


def check_supported(layout: AnyLayout) -> None:
    """Raise if a federation cannot train such a network."""
    if isinstance(layout, ModuleLayout) and layout.recipe.augment and _is_perceptron(layout):
        raise FedsacError(f"augment is not for a perceptron ({layout.named}) in a federation; leave it out")


def _is_perceptron(layout: ModuleLayout) -> bool:
    template = layout.template
    return isinstance(template, nn.Sequential) and all(type(part) in PERCEPTRON for part in template)


def unit_counts(layout: AnyLayout, neurons: Tensor) -> dict[str, list[int]]:
    """What an order says of a submodel with these units beside its tensors: nothing for perceptrons."""
    if not isinstance(layout, ModuleLayout):
        return {}
    return {UNITS: [int(neurons[group.units].sum()) for group in layout.table.groups]}


def counts_of(network: AnyNetwork, layout: AnyLayout) -> dict[str, list[int]]:
    """`unit_counts` of a network that was read from a file, in a federation with this layout."""
    if isinstance(network, ModuleNetwork):
        return unit_counts(network.layout, network.units)
    return {UNITS: list(network.layout.hidden)} if isinstance(layout, ModuleLayout) else {}


def first_units(layout: ModuleLayout, counts: Sequence[int]) -> Tensor:
    """The mask [units] with so many units of each group, the first ones."""
    groups = layout.table.groups
    if len(counts) != len(groups) or any(
        not 1 <= int(k) <= group.count for k, group in zip(counts, groups, strict=True)
    ):
        raise DeclinedError("model", f"{list(counts)} units came, and {list(layout.hidden)} were agreed on")
    return torch.cat([torch.arange(group.count) < int(k) for k, group in zip(counts, groups, strict=True)])


def received_vector(layout: ModuleLayout, units: Tensor, arrays: Mapping[str, np.ndarray], like: Tensor) -> Tensor:
    """The vector [parameters] with these arrays in the place of these units, and 0 elsewhere; raises unless they are a
    submodel's, by names, shapes and types."""
    kept = {name: shape for name, shape, _ in layout.smaller(units).tensors if name in layout.names}
    dtype = str(like.dtype).removeprefix("torch.")
    came = {name: (array.shape, str(array.dtype)) for name, array in arrays.items()}
    if came != {name: (shape, dtype) for name, shape in kept.items()}:
        raise DeclinedError("model", "the tensors that came are no submodel of the network that was agreed on")
    params = torch.zeros(layout.parameters, dtype=like.dtype)
    params[layout.held(units)] = torch.from_numpy(np.concatenate([arrays[name].ravel() for name in layout.names]))
    return params.to(like.device)


def file_network(layout: AnyLayout, facts: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> AnyNetwork:
    """The network of arrays that were sent, with an order's facts, as it is written to a file: with its whole state
    dict. A perceptron that was trained with momentum, say, is one all the same."""
    if not isinstance(layout, ModuleLayout):
        return network_of(arrays)
    tensors = {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
    tensors |= {name: tensors[first] for name, first in layout.tied.items()}
    whole = {name: tensors[name] if name in tensors else layout.outside[name] for name, _, _ in layout.shape.tensors}
    network = ModuleNetwork(layout, first_units(layout, facts[UNITS]), whole)
    return perceptron_of(network) or network
