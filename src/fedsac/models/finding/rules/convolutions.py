"""Rules for convolutions."""

from typing import Any

from fedsac.models.finding.labels import Field, Labelled, Slots, contracted, joined
from fedsac.models.finding.rules.registry import KERNEL, rule


@rule("conv1d", "conv2d", "conv3d")
def _conv(
    slots: Slots, shape: Any, x: Labelled, weight: Labelled, bias: Labelled | None = None, *args: Any, **kwargs: Any
) -> Labelled:
    groups = kwargs.get("groups", args[3] if len(args) > 3 else 1)
    return _convolved(slots, shape, x, weight, bias, groups)


@rule("convolution")
def _convolution(
    slots: Slots, shape: Any, x: Labelled, weight: Labelled, bias: Labelled | None, stride: Any, padding: Any,
    dilation: Any, transposed: bool, output_padding: Any, groups: int,
) -> Labelled:  # fmt: skip
    if transposed:
        result: Labelled = _conv_transposed(slots, shape, x, weight, bias, groups=groups)
        return result
    return _convolved(slots, shape, x, weight, bias, groups)


@rule("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def _conv_transposed(
    slots: Slots, shape: Any, x: Labelled, weight: Labelled, bias: Labelled | None = None, *args: Any, **kwargs: Any
) -> Labelled:
    """A weight has its inputs first."""
    if kwargs.get("groups", args[3] if len(args) > 3 else 1) > 1:
        for field in (*x.fields, *weight.fields):
            slots.pin(field.ids, "goes through a transposed convolution in groups, for which there is no rule")
        return Labelled(tuple(shape))
    swapped = weight.moved(weight.shape, {i: {0: 1, 1: 0}.get(i, i) for i in range(len(weight.shape))})
    return _convolved(slots, shape, x, swapped, bias, 1)


def _convolved(slots: Slots, shape: Any, x: Labelled, weight: Labelled, bias: Labelled | None, groups: int) -> Labelled:
    channel = len(x.shape) - len(weight.shape) + 1
    for dim in range(2, len(weight.shape)):
        for field in weight.along(dim):
            slots.pin(field.ids, KERNEL)
    if groups > 1:
        x, weight = _grouped(slots, x, weight, channel, groups)
    else:
        contracted(slots, x, weight, (channel, 1), [], "inputs that are never cut")
    aside = [field for field in x.fields if channel not in field.dims]
    for field in aside:
        if max(field.dims) > channel:
            slots.pin(field.ids, "the sizes of an image")
    outputs = [Field((channel,), field.ids) for field in weight.along(0)]
    product = Labelled(tuple(shape), (*aside, *outputs))
    if bias is None:
        return product
    in_place = bias.moved((bias.shape[0], *(1 for _ in range(len(shape) - channel - 1))), {0: 0})
    return joined(slots, [product, in_place], shape, "a bias that is never cut")


def cut_by_group(groups: int, inputs: int) -> bool:
    """Whether a convolution in so many groups, of so many inputs each, is cut by whole groups, as a depthwise one is.
    Otherwise the k-th channels of all groups are cut together, since all must have equally many. Whichever are more."""
    return groups > 1 and groups >= inputs


def _grouped(slots: Slots, x: Labelled, weight: Labelled, channel: int, groups: int) -> tuple[Labelled, Labelled]:
    """Slots of a convolution in groups: a group's inputs and outputs go together, or the k-th ones of all groups do."""
    reason = "inputs that are never cut"
    inputs = [f.ids.reshape(groups, -1) for f in x.fields if f.dims == (channel,)]
    outputs = [f.ids.reshape(groups, -1) for f in weight.along(0)]
    inside = [f.ids for f in weight.along(1)]
    if cut_by_group(groups, weight.shape[1]):
        rows = [slots.unite_along(ids, (1,), reason) for ids in (*inputs, *outputs)]
        for ids in rows[1:]:
            slots.unite(rows[0], ids, reason)
        for ids in rows if not inputs else ():
            slots.pin(ids, reason)
        for ids in inside:
            slots.pin(ids, KERNEL)
        return x, weight
    for ids in outputs:
        slots.unite_along(ids, (0,), reason)
    for ids in inside:
        slots.read(ids)
        for own in inputs:
            slots.unite(own, ids, reason)
        if not inputs:
            slots.pin(ids, reason)
    return x, weight
