"""How rules are registered and applied. An operation without a rule pins the slots of whatever goes into it: it may do
anything with them."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from fedsac.models.finding.labels import Labelled, Slots, joined

Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}
KERNEL = "the size of a kernel"
UNFORESEEN = (TypeError, ValueError, LookupError)  # what a rule raises for arguments that it was not written for


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for operations of ATen. It is called with the slots, the shape of the result (or a list of
    shapes), and the operation's arguments, tensors as `Labelled`."""

    def register(function: Rule) -> Rule:
        for name in names:
            RULES[name] = function
        return function

    return register


def apply(slots: Slots, operation: Any, shape: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The result of an operation on labelled tensors."""
    if shape is None:  # an assertion
        return None
    name, why = _name(operation), "for which there is no rule"
    tensors = [arg for arg in _flat([*args, *kwargs.values()]) if isinstance(arg, Labelled)]
    if name in RULES:
        try:
            return RULES[name](slots, shape, *args, **kwargs)
        except UNFORESEEN as error:
            why = f"whose rule does not know this use of it ({type(error).__name__})"
    elif _pointwise(name, operation):
        return joined(slots, tensors, shape, f"meets something that is never cut ({name})")
    for field in (field for tensor in tensors for field in tensor.fields):
        slots.pin(field.ids, f"goes through {name}, {why}")
    return unlabelled(shape)


def _name(operation: Any) -> str:
    """What an operation is called, in place or not."""
    name: str = operation._schema.name.removeprefix("aten::") if hasattr(operation, "_schema") else str(operation)
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


def _pointwise(name: str, operation: Any) -> bool:
    """Whether torch says of an operation that it works element by element. Of one in place, it says so nowhere."""
    kind = getattr(getattr(torch.ops.aten, name, None), getattr(operation, "_overloadname", ""), operation)
    return torch.Tag.pointwise in getattr(kind, "tags", ())


def unlabelled(shape: Any) -> Any:
    """Tensors of these shapes that have no slots."""
    if shape is None:
        return None
    return [unlabelled(one) for one in shape] if isinstance(shape, list) else Labelled(tuple(shape))


def _flat(values: Sequence[Any]) -> list[Any]:
    return [leaf for value in values for leaf in (_flat(value) if isinstance(value, list | tuple) else [value])]


def mixed(
    slots: Slots, x: Labelled, dims: Sequence[int], reason: str = "a mean, a softmax or the like is taken over them"
) -> Labelled:
    """The tensor after something that mixes what stands along these dimensions: it can only be cut along others."""
    along = {dim % len(x.shape) for dim in dims}
    kept = [slots.keep_along(f, along, reason) if along & set(f.dims) else f for f in x.fields]
    return Labelled(x.shape, tuple(field for field in kept if field is not None))
