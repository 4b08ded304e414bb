"""Rules for operations that work element by element, or put the same elements in another order."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from fedsac.models.finding.labels import Field, Labelled, Slots, joined, reshaped
from fedsac.models.finding.rules.registry import mixed, rule


@rule("view", "reshape", "_unsafe_view", "flatten", "unflatten", "squeeze", "unsqueeze", "view_as", "reshape_as")
def _reshape(slots: Slots, shape: Any, x: Labelled, *args: Any, **kwargs: Any) -> Labelled:
    return reshaped(x, shape)


@rule("clone", "contiguous", "alias", "detach", "to", "_to_copy", "dropout", "lift_fresh_copy",
      "feature_dropout", "alpha_dropout", "type_as")  # fmt: skip
def _same(slots: Slots, shape: Any, x: Labelled, *args: Any, **kwargs: Any) -> Labelled:
    return x


@rule("hardswish", "log_sigmoid", "multiply", "divide", "subtract", "rsub", "floor_divide", "special_expit", "where",
      "masked_fill", "copy")  # fmt: skip
def _element_by_element(slots: Slots, shape: Any, *args: Any, **kwargs: Any) -> Labelled:
    """Operations that work element by element although torch does not say so, or not of all their kinds."""
    operands = [arg for arg in args if isinstance(arg, Labelled)]
    return joined(slots, operands, shape, "meets something that is never cut")


@rule("prelu", "_prelu_kernel")
def _prelu(slots: Slots, shape: Any, x: Labelled, weight: Labelled) -> Labelled:
    if len(weight.shape) == 1 and len(x.shape) > 1:  # a slope for each channel
        weight = weight.moved((weight.shape[0], *(1 for _ in x.shape[2:])), {0: 0})
    return joined(slots, [x, weight], shape, "meets something that is never cut (prelu)")


@rule("permute")
def _permute(slots: Slots, shape: Any, x: Labelled, dims: Sequence[int]) -> Labelled:
    return rearranged(slots, x, shape, {dim % len(dims): i for i, dim in enumerate(dims)})


@rule("transpose", "swapaxes", "t", "numpy_T", "mT")
def _transpose(slots: Slots, shape: Any, x: Labelled, one: int = -2, two: int = -1) -> Labelled:
    n = len(shape)
    if n < 2:
        return x
    return rearranged(slots, x, shape, {i: i for i in range(n)} | {one % n: two % n, two % n: one % n})


def rearranged(slots: Slots, x: Labelled, shape: Sequence[int], place: dict[int, int]) -> Labelled:
    """The tensor with its dimensions in another order. Slots that vary along two dimensions that change places, as when
    channels are shuffled, stay in order only if a whole row of them is cut: they are united along the shorter one."""
    for field in x.fields:
        for i, j in combinations(range(len(field.dims)), 2):
            if place[field.dims[i]] > place[field.dims[j]]:
                shorter = i if field.ids.shape[i] <= field.ids.shape[j] else j
                slots.unite_along(field.ids, (shorter,), "put in another order")
    return x.moved(shape, place)


@rule("expand", "expand_as")
def _expand(slots: Slots, shape: Any, x: Labelled, *args: Any, **kwargs: Any) -> Labelled:
    start = len(shape) - len(x.shape)
    return x.moved(shape, {dim: dim + start for dim in range(len(x.shape))})


@rule("repeat_interleave")
def _repeat_interleave(slots: Slots, shape: Any, x: Labelled, times: Any, dim: int | None = None, **kwargs: Any) -> Any:
    if dim is None or not isinstance(times, int):
        return mixed(slots, x, range(len(x.shape)), "repeated, each as often as a tensor says")
    return repeated(x, dim % len(x.shape), times)


def repeated(x: Labelled, dim: int, times: int) -> Labelled:
    """The tensor with each of its slices along a dimension so many times."""
    fields = [Field(f.dims, f.ids.repeat(times, f.dims.index(dim))) if dim in f.dims else f for f in x.fields]
    return Labelled((*x.shape[:dim], x.shape[dim] * times, *x.shape[dim + 1 :]), tuple(fields))


@rule("repeat", "tile")
def _repeat(slots: Slots, shape: Any, x: Labelled, times: Sequence[int]) -> Labelled:
    start = len(shape) - len(x.shape)
    copies = [size // (x.shape[i - start] if i >= start else 1) for i, size in enumerate(shape)]
    fields = [
        Field(tuple(dim + start for dim in f.dims), np.tile(f.ids, [copies[dim + start] for dim in f.dims]))
        for f in x.fields
    ]
    return Labelled(tuple(shape), tuple(fields))


@rule("roll", "flip")
def _roll(slots: Slots, shape: Any, x: Labelled, *args: Any) -> Labelled:
    dims = args[-1] if args and args[-1] else range(len(x.shape))
    return mixed(slots, x, dims, "put in another order (roll, flip)")
