"""Build the submodel of any module: a copy with smaller tensors, and with the sizes that its layers keep of them."""

import copy
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd

from fedsac.core import given
from fedsac.core.given import Values
from fedsac.core.unit_table import UnitGroup, UnitTable
from fedsac.models.finding.rules.convolutions import cut_by_group

# Layers whose sizes are known from their tensors.
FITTED = (nn.Linear, _ConvNd, _NormBase, nn.GroupNorm, nn.Embedding, nn.PReLU, nn.RNNBase)


def smaller(module: nn.Module, table: UnitTable, units: Values) -> nn.Module:
    """The submodel with these `units`, a boolean mask [units]: a module of the same class, which needs nothing of this
    package."""
    given.module("smaller", module)
    tensors = {name: value for name, value in module.state_dict().items() if isinstance(value, Tensor)}
    held = table.check(units)
    state = table.extract(tensors, held)
    # What deepcopy finds in its memo, it takes instead of a copy. Tensors that are tied stay tied.
    made: dict[int, Tensor] = {}
    for name, parameter in module.named_parameters():
        made[id(parameter)] = nn.Parameter(state[name], parameter.requires_grad)
    for name, buffer in module.named_buffers():
        if name in state:
            made[id(buffer)] = state[name]
    small = copied(module, made)
    for layer in small.modules():
        if "weight" not in vars(layer):  # else it is no parameter, but made from others before every call
            _fit(layer)
    for group in table.groups:
        _fit_sizes(module, small, group, table, held)
    return small


def copied(module: nn.Module, instead: Mapping[int, Tensor] | None = None) -> nn.Module:
    """A deep copy without the results of its last call that a module keeps as attributes: torch refuses to copy them,
    and they tell of units that are cut. `instead`: what to take for tensors, by their identity."""
    values = (value for layer in module.modules() for value in vars(layer).values())
    results = {id(value): value.new_empty(0) for value in values if isinstance(value, Tensor) and not value.is_leaf}
    return copy.deepcopy(module, {**results, **(instead or {})})


def _fit(layer: Any) -> None:
    """Set what a layer of torch knows of its sizes from its tensors."""
    if isinstance(layer, nn.Linear):
        layer.out_features, layer.in_features = layer.weight.shape
    elif isinstance(layer, _ConvNd) and layer.transposed:
        layer.in_channels, layer.out_channels = len(layer.weight), layer.weight.shape[1] * layer.groups
    elif isinstance(layer, _ConvNd):
        per_group = layer.out_channels // layer.groups
        if cut_by_group(layer.groups, layer.in_channels // layer.groups):
            layer.groups = len(layer.weight) // per_group
        layer.out_channels, layer.in_channels = len(layer.weight), layer.weight.shape[1] * layer.groups
    elif isinstance(layer, _NormBase):
        sized = layer.weight if layer.weight is not None else layer.running_mean
        layer.num_features = layer.num_features if sized is None else len(sized)
    elif isinstance(layer, nn.GroupNorm) and layer.weight is not None:
        layer.num_groups = len(layer.weight) * layer.num_groups // layer.num_channels
        layer.num_channels = len(layer.weight)
    elif isinstance(layer, nn.RNNBase):
        (_, layer.input_size), (_, layer.hidden_size) = (weight.shape for weight in layer.all_weights[0][:2])
    elif isinstance(layer, nn.PReLU):
        layer.num_parameters = len(layer.weight)
    elif _is_conv1d(layer):
        layer.nx, layer.nf = layer.weight.shape
    elif isinstance(layer, nn.Embedding):
        layer.num_embeddings, layer.embedding_dim = layer.weight.shape


def _is_conv1d(layer: Any) -> bool:
    """Hugging Face's `Conv1D`, a linear layer whose weight is transposed."""
    return type(layer).__name__ == "Conv1D" and hasattr(layer, "nf")


def _fit_sizes(module: nn.Module, small: nn.Module, group: UnitGroup, table: UnitTable, units: Tensor) -> None:
    """Set numbers that modules of other authors keep beside their tensors, as `num_heads`, to those of the kept units.
    A guess, which is why every network is proved (see `proof`)."""
    kept = int(units[group.units].sum())
    if kept == group.count:
        return
    modules = dict(small.named_modules())
    for path, per_unit in sizes(dict(module.named_modules()), group).items():
        name, _, key = path.rpartition(".")
        if path not in table.constants:
            setattr(modules[name], key, per_unit * kept)


def sizes(modules: Mapping[str, nn.Module], group: UnitGroup) -> dict[str, int]:
    """Attributes of modules around a group's tensors that look like sizes of it: integers that are the number of its
    units, or of their slots along an axis. For each, how much of it is a unit's."""
    per_unit = {n * group.count: n for _, _, n in reversed(group.where)} | {group.count: 1}
    return {
        f"{name}.{key}".lstrip("."): per_unit[value]
        for name in _around([tensor for tensor, _, _ in group.where])
        if name in modules and not isinstance(modules[name], FITTED) and not _is_conv1d(modules[name])
        for key, value in vars(modules[name]).items()
        if type(value) is int and value in per_unit and not key.startswith("_")
    }


def _around(tensors: list[str]) -> list[str]:
    """The names of the modules that contain some of these tensors, up to the smallest one that contains all."""
    paths = [tensor.split(".")[:-1] for tensor in tensors]
    common = 0
    while all(len(path) > common for path in paths) and len({path[common] for path in paths}) == 1:
        common += 1
    return list(dict.fromkeys(".".join(path[:n]) for path in paths for n in range(common, len(path) + 1)))
