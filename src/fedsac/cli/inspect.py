"""`fedsac inspect`: the units of a network, what each is made of, and what is never cut and why."""

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from fedsac.doors import MODELS, NETWORKS
from fedsac.errors import FedsacError

if TYPE_CHECKING:
    from torch import nn

    from fedsac.core.unit_table import UnitTable

MAX_NAMES = 4  # of layers, in a line of what is never cut
EXAMPLES = 2  # inputs that a network is traced and proved on


def add(commands: Any) -> None:
    command = commands.add_parser(
        "inspect",
        help="show the units of any network: what can be given or withheld, and what is never cut",
        description="Find the units of a torch module (neurons, channels, attention heads, LoRA ranks), prove that a "
        "network without some of them computes what the whole one does without them, and show what was found. MODEL is "
        "one of ours, or module:factory, found on PYTHONPATH: a function that returns a torch module, called with the "
        "input's shape and the number of classes if it takes two arguments. It may return (module, inputs), a tuple of "
        "inputs, where one tensor of numbers does not do.",
        allow_abbrev=False,
    )
    command.add_argument("model", metavar="MODEL", help=f"{MODELS.names()}, or module:factory")
    command.add_argument("--input", default="3,32,32", metavar="SHAPE", help="of one sample, as 3,32,32 [3,32,32]")
    command.add_argument("--classes", type=int, default=10, metavar="N", help="number of classes [10]")
    command.add_argument(
        "--tokens", type=int, metavar="N", help="inputs are tokens 0 to N-1, SHAPE of them, not numbers"
    )
    command.add_argument("--json", action="store_true", help="as JSON on standard output")
    command.set_defaults(do=do)


def do(chosen: argparse.Namespace) -> None:
    from fedsac.models.finding.finder import find_units

    module, inputs = _made(chosen)
    table = find_units(module, *inputs)
    found = facts(module, table)
    if chosen.json:
        json.dump(found, sys.stdout, indent=2)
        print()
        return
    _show(type(module).__name__, found)


def _made(chosen: argparse.Namespace) -> tuple["nn.Module", tuple[Any, ...]]:
    """The module that is named, and inputs for it."""
    import torch
    from torch import nn

    from fedsac.models.start import called

    shape = _shape(chosen.input)
    if chosen.classes < 1 or (chosen.tokens is not None and chosen.tokens < 1):
        raise FedsacError("--classes and --tokens must be at least 1")
    make = NETWORKS.resolve(chosen.model)
    if NETWORKS.parse(chosen.model)[0] == "mlp":
        raise FedsacError("mlp is what --hidden says; name another model")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = called(make, chosen.model, shape, chosen.classes)
        if chosen.tokens is None:
            inputs: tuple[Any, ...] = (torch.randn(EXAMPLES, *shape),)
        else:
            inputs = (torch.randint(chosen.tokens, (EXAMPLES, *shape)),)
    if isinstance(made, tuple) and len(made) == 2 and isinstance(made[1], tuple):
        made, inputs = made
    if not isinstance(made, nn.Module):
        raise FedsacError(f"{chosen.model} must return a torch module, or (module, inputs); it returns {type(made)}")
    return made, inputs


def _shape(text: str) -> tuple[int, ...]:
    try:
        shape = tuple(int(part) for part in text.split(","))
    except ValueError:
        shape = ()
    if not shape or min(shape) < 1:
        raise FedsacError(f"--input {text!r}: name the sizes of one sample, as in 3,32,32")
    return shape


def facts(module: "nn.Module", table: "UnitTable") -> dict[str, Any]:
    """What is shown of a network: its groups of units with the parameters that go with all but one of them, and what
    is never cut."""
    import torch

    shapes = {name: tensor.shape for name, tensor in module.named_parameters()}
    everything = torch.ones(table.units, dtype=torch.bool)
    total = table.parameters(shapes, everything)
    groups, fewest = [], everything.clone()
    for group in table.groups:
        units = everything.clone()
        units[group.units] = False
        units[group.first] = fewest[group.first] = True
        fewest[group.first + 1 : group.first + group.count] = False
        groups.append(
            {
                "name": group.name,
                "units": group.count,
                "tensors": len(group.where),
                "parameters": total - table.parameters(shapes, units),
            }
        )
    return {
        "parameters": total,
        "smallest": table.parameters(shapes, fewest),
        "units": table.units,
        "groups": groups,
        "whole": [{"name": one.name, "slots": one.slots, "reason": one.reason} for one in table.whole],
    }


def _show(name: str, found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, markup=False, emoji=False)
    title = f"{name}: {found['units']:,} units, {found['parameters']:,} parameters; with one unit of each group "
    groups = Table(title=f"{title}{found['smallest']:,}")
    groups.add_column("units of", overflow="fold")
    for head in ("units", "tensors", "parameters"):
        groups.add_column(head, justify="right")
    for group in found["groups"]:
        groups.add_row(group["name"], *(f"{group[key]:,}" for key in ("units", "tensors", "parameters")))
    console.print(groups)
    whole = Table(title="never cut")
    for head in ("why", "where"):
        whole.add_column(head, overflow="fold")
    whole.add_column("slots", justify="right")
    by_reason: dict[str, list[dict[str, Any]]] = {}
    for one in found["whole"]:
        by_reason.setdefault(one["reason"], []).append(one)
    for reason, those in by_reason.items():
        names = list(dict.fromkeys(one["name"] for one in those))
        more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
        whole.add_row(reason, ", ".join(names[:MAX_NAMES]) + more, f"{sum(one['slots'] for one in those):,}")
    console.print(whole)
    print(
        "parameters: those that go when all but one unit of the group do. The proof held: with units cut, the smaller "
        "network computes what the whole one does without them."
    )
