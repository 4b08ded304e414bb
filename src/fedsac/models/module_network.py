"""A network of any kind as a layout and tensors: what `Network` is for perceptrons."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedsac.core.module_layout import ModuleLayout
from fedsac.models.batch_norm import has_statistics, with_statistics_of
from fedsac.models.finding.shrinking import smaller
from fedsac.models.network import PERCEPTRON, Network


@dataclass(frozen=True)
class ModuleNetwork:
    """The submodel with these `units` of the module that `layout` is of: its own, smaller tensors by name."""

    layout: ModuleLayout
    units: Tensor
    tensors: Mapping[str, Tensor]

    @classmethod
    def of_vector(cls, layout: ModuleLayout, params: Tensor, units: Tensor | None = None) -> "ModuleNetwork":
        """From the vector [parameters] of the whole module: with batch norm's statistics measured again on the
        layout's samples, where it has some."""
        units = torch.ones(layout.neurons, dtype=torch.bool) if units is None else units.cpu()
        own = cls(layout, units, layout.table.extract(layout.state(params.cpu()), units))
        if layout.statistics is None or not has_statistics(layout.template):
            return own
        measured = with_statistics_of(own.module(), layout.statistics.cpu()).state_dict()
        return cls(layout, units, {name: measured[name] for name in own.tensors})

    @property
    def dtype(self) -> torch.dtype:
        return self.tensors[self.layout.names[0]].dtype

    def state(self) -> dict[str, Tensor]:
        """Its state dict, which torch loads without this package: tensors of its own, none shared."""
        return {name: tensor.clone() for name, tensor in self.tensors.items()}

    def module(self) -> nn.Module:
        """The network as a module of its own class, in evaluation mode."""
        small = smaller(self.layout.template, self.layout.table, self.units).cpu()
        small.load_state_dict(self.state())
        return small.eval()

    @torch.no_grad()
    def logits(self, rows: Tensor) -> Tensor:
        """Class scores [n, classes] of normalised rows [n, features]."""
        module, inputs = self.module(), self.layout.input.inputs(rows)
        return torch.cat([module(part) for part in inputs.split(256)])


def perceptron_of(network: ModuleNetwork) -> Network | None:
    """The network as a perceptron that takes rows as they are stored, if it is one."""
    template = network.layout.template
    if not isinstance(template, nn.Sequential) or any(type(part) not in PERCEPTRON for part in template):
        return None
    found = Network.of(network.module())
    # Row i of the first weight is for the i-th number of an input, as the module took it.
    at = network.layout.input.inputs(torch.arange(found.layout.sizes[0])).flatten()
    weight, _ = found.layout.views(found.params)[0]
    weight[at] = weight.clone()
    return found
