"""Rules for parts of tensors, and for tensors that are put together."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedsac.models.finding.labels import NONE, Field, Labelled, Slots, joined, reshaped
from fedsac.models.finding.rules.registry import mixed, rule


@rule("select")
def _select(slots: Slots, shape: Any, x: Labelled, dim: int, index: int) -> Labelled:
    dim %= len(x.shape)
    place = {d: d - (d > dim) for d in range(len(x.shape))}
    fields = []
    for field in x.fields:
        if field.dims == (dim,):
            slots.pin(field.ids, "one of them is picked by its index")
            continue
        if dim in field.dims:
            at = field.dims.index(dim)
            field = Field(tuple(d for d in field.dims if d != dim), field.ids.take(index, at))
        fields.append(field)
    return Labelled(x.shape, tuple(fields)).moved(shape, place)


@rule("slice")
def _slice(
    slots: Slots, shape: Any, x: Labelled, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Labelled:
    return _part(x, shape, dim, slice(start, end, step))


@rule("narrow")
def _narrow(slots: Slots, shape: Any, x: Labelled, dim: int, start: int, length: int) -> Labelled:
    return _part(x, shape, dim, slice(start, start + length))


def _part(x: Labelled, shape: Any, dim: int, part: slice) -> Labelled:
    dim %= len(x.shape)
    fields = [
        Field(f.dims, f.ids[tuple(part if d == dim else slice(None) for d in f.dims)]) if dim in f.dims else f
        for f in x.fields
    ]
    return Labelled(tuple(shape), tuple(fields))


@rule("split", "split_with_sizes", "chunk", "tensor_split", "unsafe_chunk", "unsafe_split")
def _split(slots: Slots, shape: Any, x: Labelled, sections: Any, dim: int = 0) -> list[Labelled]:
    parts, start = [], 0
    for each in shape:
        length = each[dim]
        parts.append(_part(x, each, dim, slice(start, start + length)))
        start += length
    if len({each[dim] for each in shape}) == 1:  # equal parts, which must stay equal
        for part in parts[1:]:
            for one, other in zip(parts[0].along(dim % len(x.shape)), part.along(dim % len(x.shape)), strict=True):
                slots.unite(one.ids, other.ids, "one of several equal parts")
    return parts


@rule("glu")
def _glu(slots: Slots, shape: Any, x: Labelled, dim: int = -1) -> Labelled:
    halves = _split(slots, [shape, shape], x, 2, dim % len(shape))
    return joined(slots, halves, shape, "meets something that is never cut (glu)")


@rule("index")
def _index(slots: Slots, shape: Any, x: Labelled, indices: Sequence[Labelled | None]) -> Labelled:
    """Entries picked by tensors of indices, whose dimensions stand where the first of them did; or first of all, if
    there are others between them."""
    picked = [dim for dim, index in enumerate(indices) if index is not None]
    new = len(shape) - len(x.shape) + len(picked)
    first = picked[0] if picked == list(range(picked[0], picked[-1] + 1)) else 0
    others = [dim for dim in range(len(x.shape)) if dim not in picked]
    place = {dim: i + (new if i >= first else 0) for i, dim in enumerate(others)}
    return mixed(slots, x, picked, "entries that are picked by their index").moved(shape, place)


@rule("index_select")
def _index_select(slots: Slots, shape: Any, x: Labelled, dim: int, index: Labelled) -> Labelled:
    return Labelled(tuple(shape), mixed(slots, x, [dim], "entries that are picked by their index").fields)


@rule("unbind")
def _unbind(slots: Slots, shape: Any, x: Labelled, dim: int = 0) -> list[Labelled]:
    return [_select(slots, each, x, dim, i) for i, each in enumerate(shape)]


@rule("cat", "concat", "concatenate")
def _cat(slots: Slots, shape: Any, tensors: Sequence[Labelled], dim: int = 0) -> Labelled:
    dim %= len(shape)
    along = _side_by_side(slots, tensors, dim)
    aside = [
        Labelled((*t.shape[:dim], 1, *t.shape[dim + 1 :]), tuple(f for f in t.fields if dim not in f.dims))
        for t in tensors
    ]
    others = joined(slots, aside, (*shape[:dim], 1, *shape[dim + 1 :]), "put together with something that is never cut")
    return Labelled(tuple(shape), (*others.fields, *([] if along is None else [along])))


@rule("stack")
def _stack(slots: Slots, shape: Any, tensors: Sequence[Labelled], dim: int = 0) -> Labelled:
    dim %= len(shape)
    result: Labelled = _cat(
        slots, shape, [reshaped(each, (*each.shape[:dim], 1, *each.shape[dim:])) for each in tensors], dim
    )
    return result


def _side_by_side(slots: Slots, tensors: Sequence[Labelled], dim: int) -> Field | None:
    """The slots along the dimension in which tensors are put side by side. Of those that vary along others, too, as
    those of a head's two halves, all tensors must have some."""
    own = [tensor.along(dim) for tensor in tensors]
    dims = sorted({d for fields in own for field in fields for d in field.dims})
    if not dims:
        return None
    if any(len(fields) > 1 or (not fields and len(dims) > 1) for fields in own):
        for field in (field for fields in own for field in fields):
            slots.pin(field.ids, "put together with others")
        return None
    parts = []
    for tensor, fields in zip(tensors, own, strict=True):
        ids = fields[0].over(dims) if fields else np.full(1, NONE)
        sizes = [tensor.shape[d] for d in dims]
        parts.append(np.broadcast_to(ids, sizes))
    return Field(tuple(dims), np.concatenate(parts, dims.index(dim)))


@rule("constant_pad_nd", "pad", "reflection_pad2d", "replication_pad2d")
def _pad(slots: Slots, shape: Any, x: Labelled, pad: Sequence[int], *args: Any, **kwargs: Any) -> Labelled:
    fields = []
    for field in x.fields:
        ids = field.ids
        for axis, dim in enumerate(field.dims):
            k = len(x.shape) - 1 - dim
            width = (pad[2 * k], pad[2 * k + 1]) if 2 * k < len(pad) else (0, 0)
            ids = np.pad(ids, [width if i == axis else (0, 0) for i in range(ids.ndim)], constant_values=NONE)
        fields.append(Field(field.dims, ids))
    return Labelled(tuple(shape), tuple(fields))
