"""Find the units of one network and print what was found, as one line of JSON."""

import importlib.metadata
import json
import sys
import time
import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from benchmarks.zoo.environment import THEIRS
from benchmarks.zoo.networks import NETWORKS
from fedsac.core.unit_table import UnitTable
from fedsac.models.finding.finder import find_units
from fedsac.models.finding.shrinking import smaller
from fedsac.models.finding.trial import Trial


def measured(name: str) -> dict[str, Any]:
    torch.manual_seed(0)
    module, inputs = NETWORKS[name]()
    start = time.perf_counter()
    table = find_units(module, *inputs)
    seconds = time.perf_counter() - start
    shapes = {key: parameter.shape for key, parameter in module.named_parameters()}
    every, half = torch.ones(table.units, dtype=torch.bool), _half(table)
    total = table.parameters(shapes, every)

    def owned(units: slice) -> int:
        """How many parameters belong to these units, and perhaps to others."""
        left = every.clone()
        left[units] = False
        return total - table.parameters(shapes, left)

    return {
        "network": name,
        "parameters": total,
        "units": table.units,
        "in_units": owned(slice(None)),
        "with_half_of_the_units": table.parameters(shapes, half),
        **_cut(module, table, half, inputs),
        "seconds": round(seconds, 1),
        "groups": [{"name": g.name, "units": g.count, "parameters": owned(g.units)} for g in table.groups],
        "whole": [{"name": w.name, "slots": w.slots, "reason": w.reason} for w in table.whole],
        "constants": sorted(table.constants),
        "versions": {package: importlib.metadata.version(package) for package in ("torch", *THEIRS)},
    }


def _half(table: UnitTable) -> Tensor:
    """A random half of each group's units."""
    units, rng = torch.zeros(table.units, dtype=torch.bool), torch.Generator().manual_seed(2)
    for group in table.groups:
        units[group.first + torch.randperm(group.count, generator=rng)[: max(1, group.count // 2)]] = True
    return units


def _cut(module: nn.Module, table: UnitTable, units: Tensor, inputs: tuple[Any, ...]) -> dict[str, float]:
    """How much the outputs change when the other units are cut; and the difference between a submodel without them and
    the whole network with their parameters set to 0. In float64, as shares of the largest output."""
    trial = Trial(module, inputs)
    with torch.no_grad():
        whole = _first(trial.module(*trial.inputs))
        masked = table.masked(trial.module.state_dict(), units)
        expected = _first(functional_call(trial.module, masked, trial.inputs, tie_weights=False))
        found = _first(smaller(trial.module, table, units)(*trial.inputs))
    return {
        "change": float((whole - expected).abs().max() / whole.abs().max()),
        "difference": float((expected - found).abs().max() / expected.abs().max()),
    }


def _first(output: Any) -> Tensor:
    """The logits, or the last hidden state."""
    tensor: Tensor = output if isinstance(output, Tensor) else output[0]
    return tensor


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print(json.dumps(measured(sys.argv[1])))
