"""Trace a network and follow the slots of its tensors from the inputs to the outputs."""

import logging
import os
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from fedsac.errors import FedsacError
from fedsac.models.finding.labels import Field, Labelled, Slots
from fedsac.models.finding.rules import apply, unlabelled
from fedsac.models.finding.shrinking import copied


class Traced:
    """The slots of a network's parameters and buffers, by name and axis, and what was found out about them."""

    def __init__(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        self.slots = Slots()
        self.axes: dict[str, list[Any]] = {}  # by tensor: the slots of each axis; None where it has one index
        module = copied(module).eval()  # tracing leaves its marks on what the module keeps of a call
        program = exported(module, inputs)
        signature = program.graph_signature
        named = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
        self._state = module.state_dict(keep_vars=True)
        self._names: dict[int, str] = {}  # by tensor: under which of its names, if it is tied, its slots are
        values: dict[str, Any] = {}
        for node in program.graph.find_nodes(op="placeholder"):
            name = named.get(node.name)
            values[node.name] = self._labelled(name) if name in self._state else _whole(node)
        for result in _tensors(self._walked(program.graph_module, values)):
            for field in result.fields:
                self.slots.pin(field.ids, "the network's output")
        self._pin_attention(module)

    @property
    def tied(self) -> dict[str, str]:
        """Other names of tensors whose slots are under the first."""
        firsts = {name: self._names.get(id(tensor), name) for name, tensor in self._state.items()}
        return {name: first for name, first in firsts.items() if first != name}

    def _walked(self, module: torch.fx.GraphModule, values: dict[str, Any]) -> Any:
        """What a graph returns, from the `values` of its placeholders."""
        for node in module.graph.nodes:
            if node.op == "get_attr":
                values[node.name] = getattr(module, node.target, None)
            elif node.op == "call_function":
                values[node.name] = self._called(node, values)
            elif node.op == "output":
                return _looked_up(node.args[0], values)
        raise AssertionError("a graph ends with its output")

    def _pin_attention(self, module: nn.Module) -> None:
        """torch's own attention takes the width of a head from its input's: with fewer heads, they would be wider."""
        for name, layer in module.named_modules():
            if isinstance(layer, nn.MultiheadAttention):
                prefix = f"{name}." if name else ""
                for key in (f"{prefix}{own}" for own, _ in layer.named_parameters()):
                    for ids in (ids for ids in self.axes.get(key, ()) if ids is not None):
                        self.slots.pin(ids, "nn.MultiheadAttention needs all of its heads: their width is its input's")

    def _labelled(self, name: str) -> Labelled:
        """A parameter or buffer: every axis with more than one index has slots of its own."""
        tensor = self._state[name]
        first = self._names.setdefault(id(tensor), name)
        if first not in self.axes:
            counted = tensor.is_floating_point()
            self.axes[first] = [self.slots.new(n) if counted and n > 1 else None for n in tensor.shape]
        fields = [Field((i,), ids) for i, ids in enumerate(self.axes[first]) if ids is not None]
        return Labelled(tuple(tensor.shape), tuple(fields), parameter=True)

    def _called(self, node: Any, values: dict[str, Any]) -> Any:
        args, kwargs = _looked_up(node.args, values), _looked_up(node.kwargs, values)
        if getattr(node.target, "__name__", "") == "getitem":
            return args[0][args[1]]
        if getattr(node.target, "__name__", "").startswith("wrap_with"):  # a part under no_grad or autocast
            at = next(i for i, arg in enumerate(args) if isinstance(arg, torch.fx.GraphModule))
            inner = [each.name for each in args[at].graph.find_nodes(op="placeholder")]
            return self._walked(args[at], dict(zip(inner, args[at + 1 :], strict=True)))
        shape = _shape(node.meta.get("val"))
        if not any(tensor.fields for tensor in _tensors([args, list(kwargs.values())])):
            return unlabelled(shape)
        return apply(self.slots, node.target, shape, args, kwargs)


def exported(module: nn.Module, inputs: tuple[Any, ...]) -> ExportedProgram:
    """The network's operations on these inputs, as torch.export sees them."""
    try:
        # Without gradients, torch's own attention takes a path of one opaque operation. What torch warns of concerns
        # those who keep the program.
        with torch.enable_grad(), warnings.catch_warnings(action="ignore"), _without_dumps():
            return torch.export.export(module, inputs, strict=False)
    except Exception as error:
        raise FedsacError(
            f"{type(module).__name__} cannot be traced{_reason(error)}; a run needs a network of tensor operations "
            "alone (torch.where in place of if). In a training loop of your own, fedsac.units_by_hand takes units as "
            "you write them down (docs/any-network.md, Units by hand)"
        ) from error


@contextmanager
def _without_dumps() -> Iterator[None]:
    """Where torch.export fails, it logs, and prints the whole graph so far before it raises: what a user can use of it
    is in the error's own line."""
    log = logging.getLogger("torch.fx.experimental.symbolic_shapes")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        with redirect_stderr(StringIO()):
            yield
    finally:
        log.setLevel(level)


def _reason(error: Exception) -> str:
    """Where in the network's own code the tracing ended, and why, in a few words."""
    others = tuple(f"{package}{os.sep}" for package in (Path(torch.__file__).parent, Path(__file__).parents[2]))
    frames = traceback.extract_tb(error.__traceback__)
    own = [one for one in frames if Path(one.filename).is_file() and not one.filename.startswith(others)]
    where = f" at {own[-1].filename}, line {own[-1].lineno} ({(own[-1].line or '')[:80]})" if own else ""
    if "DataDependent" in type(error).__name__:  # torch's words for it are about its own symbols
        return f"{where}: what it does there depends on the numbers in its input"
    first = (str(error).strip().splitlines() or [""])[0].rstrip(".")
    return f"{where}: {type(error).__name__}: {first[:160]}"


def _whole(node: Any) -> Any:
    """An input of the network, or a constant: it has no slots."""
    return unlabelled(_shape(node.meta.get("val")))


def _shape(value: Any) -> Any:
    if isinstance(value, Tensor):
        return tuple(int(n) for n in value.shape)
    return [_shape(each) for each in value] if isinstance(value, list | tuple) else None


def _looked_up(value: Any, values: dict[str, Any]) -> Any:
    if isinstance(value, torch.fx.Node):
        return values[value.name]
    if isinstance(value, list | tuple):
        return [_looked_up(each, values) for each in value]
    return {k: _looked_up(v, values) for k, v in value.items()} if isinstance(value, dict) else value


def _tensors(value: Any) -> list[Labelled]:
    if isinstance(value, Labelled):
        return [value]
    return [tensor for each in value for tensor in _tensors(each)] if isinstance(value, list | tuple) else []
