"""Labels of tensors while a network is traced: which slot of which parameter's axis an index of a tensor stands for.

A parameter's axis has slots, one for each index. What is computed from the parameter inherits them: the outputs of a
linear layer have the slots of its weight's first axis. An operation that needs two indices to go together (a product
summed over them, a sum of two tensors) unites their slots. A slot is pinned, with a reason, where it can never be cut:
its index is the network's input or output, or meets something that stays whole. In the end, slots that are united are
one unit.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

NONE = -1  # an index that belongs to no slot: it always stays


class Slots:
    """All slots of a network's tensors, which of them are united, and which are pinned and why."""

    def __init__(self) -> None:
        self.count = 0
        self._edges: list[tuple[np.ndarray, np.ndarray]] = []
        self._pins: list[tuple[np.ndarray, str]] = []
        self._read: list[np.ndarray] = []

    def new(self, n: int) -> np.ndarray:
        self.count += n
        return np.arange(self.count - n, self.count)

    def unite(self, a: np.ndarray, b: np.ndarray, reason: str) -> np.ndarray:
        """Unite the slots of two arrays, broadcast against each other; where one of them has none, the other's are
        pinned for this reason. Returns the slots."""
        a, b = np.broadcast_arrays(a, b)
        both = (a >= 0) & (b >= 0)
        self._edges.append((a[both], b[both]))
        self.pin(np.concatenate([a[(b < 0)], b[(a < 0)]]), reason)
        united: np.ndarray = np.where(a >= 0, a, b)
        return united

    def unite_along(self, ids: np.ndarray, axes: tuple[int, ...], reason: str) -> np.ndarray:
        """Unite the slots of an array along some of its axes: the array without them."""
        first = ids[tuple(slice(0, 1) if i in axes else slice(None) for i in range(ids.ndim))]
        if axes:
            self.unite(first, ids, reason)
        return np.squeeze(first, axes)

    def keep_along(self, field: "Field", dims: Iterable[int], reason: str) -> "Field | None":
        """Never cut along these dimensions: what stands along them is united, or pinned where the field has no other
        dimension. Returns the field along the others."""
        along = tuple(i for i, dim in enumerate(field.dims) if dim in set(dims))
        if len(along) == len(field.dims):
            self.pin(field.ids, reason)
            return None
        left = tuple(dim for i, dim in enumerate(field.dims) if i not in along)
        return Field(left, self.unite_along(field.ids, along, reason))

    def pin(self, ids: np.ndarray, reason: str) -> None:
        if (named := ids[ids >= 0]).size:
            self._pins.append((np.unique(named), reason))

    def read(self, ids: np.ndarray) -> None:
        """Note slots of a parameter that what is computed is multiplied with and summed over, as a linear layer's
        inputs: where these entries are 0, the rest of the network gets nothing of a unit."""
        self._read.append(np.unique(ids[ids >= 0]))

    def are_read(self) -> np.ndarray:
        """Which slots are such: boolean, of all slots."""
        reads = np.zeros(self.count, dtype=bool)
        reads[np.concatenate([np.empty(0, int), *self._read])] = True
        return reads

    def components(self) -> tuple[np.ndarray, dict[int, str]]:
        """The number of the component that each slot belongs to, and why the pinned ones of them are pinned."""
        from scipy.sparse import coo_array  # 20 MB, which a site of a plain perceptron does without
        from scipy.sparse.csgraph import connected_components

        a = np.concatenate([np.empty(0, int), *(one.ravel() for one, _ in self._edges)])
        b = np.concatenate([np.empty(0, int), *(two.ravel() for _, two in self._edges)])
        graph = coo_array((np.ones(len(a), dtype=np.int8), (a, b)), shape=(self.count, self.count))
        _, component = connected_components(graph, directed=False)
        reasons: dict[int, str] = {}
        for ids, reason in self._pins:
            for number in np.unique(component[ids]).tolist():
                reasons.setdefault(number, reason)
        return component, reasons


@dataclass(frozen=True)
class Field:
    """Slots that vary along some dimensions of a tensor: `ids` has one axis for each of `dims`, in ascending order."""

    dims: tuple[int, ...]
    ids: np.ndarray

    def over(self, dims: Sequence[int]) -> np.ndarray:
        """The ids as an array with an axis for each of these dimensions (ascending), of size 1 where it varies not."""
        at = dict(zip(self.dims, self.ids.shape, strict=True))
        return self.ids.reshape([at.get(dim, 1) for dim in dims])


@dataclass(frozen=True)
class Labelled:
    """A tensor while it is traced: its shape, and the slots that its indices stand for. An element is there when the
    units of all its fields are. `parameter`: it is a parameter, or one in another shape, not computed from inputs."""

    shape: tuple[int, ...]
    fields: tuple[Field, ...] = ()
    parameter: bool = False

    def along(self, dim: int) -> list[Field]:
        return [field for field in self.fields if dim in field.dims]

    def moved(self, shape: Sequence[int], place: dict[int, int]) -> "Labelled":
        """The same fields in a tensor of this shape, where dimension d has become `place[d]`."""
        return Labelled(tuple(shape), tuple(_moved(field, place) for field in self.fields), self.parameter)


def _moved(field: Field, place: dict[int, int]) -> Field:
    to = [place[dim] for dim in field.dims]
    order = np.argsort(to)
    return Field(tuple(to[i] for i in order), field.ids.transpose(order))


def reshaped(tensor: Labelled, shape: Sequence[int]) -> Labelled:
    """The tensor with another shape of as many elements: a dimension that is split or merged takes its slots along."""
    fields = []
    blocks = _blocks(tensor.shape, tuple(shape))
    for field in tensor.fields:
        touched = [(old, new) for old, new in blocks if set(old) & set(field.dims)]
        old_dims = [dim for old, _ in touched for dim in old]
        new_dims = [dim for _, new in touched for dim in new]
        full = np.broadcast_to(field.over(old_dims), [tensor.shape[dim] for dim in old_dims])
        fields.append(_varying(new_dims, full.reshape([shape[dim] for dim in new_dims])))
    return Labelled(tuple(shape), tuple(fields), tensor.parameter)


def _blocks(old: tuple[int, ...], new: tuple[int, ...]) -> list[tuple[list[int], list[int]]]:
    """Dimensions of two shapes in blocks, from left to right, that have equally many elements."""
    blocks, i, j = [], 0, 0
    while i < len(old) or j < len(new):
        a, b = [i] if i < len(old) else [], [j] if j < len(new) else []
        i, j = i + len(a), j + len(b)
        while (left := prod(old[d] for d in a)) != (right := prod(new[d] for d in b)):
            if left < right:
                a.append(i)
                i += 1
            else:
                b.append(j)
                j += 1
        blocks.append((a, b))
    return blocks


def _varying(dims: Sequence[int], ids: np.ndarray) -> Field:
    """A field without the dimensions along which its ids are all the same, but for one at least."""
    kept = [i for i in range(ids.ndim) if (ids != ids.take([0], i)).any()]
    kept = kept or [int(np.argmax(ids.shape))]
    at = tuple(slice(None) if i in kept else 0 for i in range(ids.ndim))
    return Field(tuple(dims[i] for i in kept), ids[at])


def joined(slots: Slots, operands: Sequence[Labelled], shape: Sequence[int], reason: str) -> Labelled:
    """The result, of this shape, of an operation that combines tensors element by element, with broadcasting."""
    fields: list[Field] = []
    for operand in operands:
        start = len(shape) - len(operand.shape)
        for field in operand.fields:
            new = Field(tuple(dim + start for dim in field.dims), field.ids)
            for other in [f for f in fields if set(f.dims) & set(new.dims)]:
                dims = sorted({*other.dims, *new.dims})
                new = Field(tuple(dims), slots.unite(other.over(dims), new.over(dims), reason))
                fields.remove(other)
            fields.append(new)
    kept = []
    for field in fields:
        if all(_meet(slots, field, operand, len(shape) - len(operand.shape), reason) for operand in operands):
            kept.append(field)
    return Labelled(tuple(shape), tuple(kept))


def _meet(slots: Slots, field: Field, operand: Labelled, start: int, reason: str) -> bool:
    """What a field's slots are bound to by an operand that is whole along some of its dimensions: along these, they can
    only be cut together; and not at all if it varies along no other. Returns whether they can be cut."""
    labelled = {dim + start for own in operand.fields for dim in own.dims}
    whole = [
        i for i, dim in enumerate(field.dims) if dim >= start and operand.shape[dim - start] > 1 and dim not in labelled
    ]
    if len(whole) == len(field.dims):
        slots.pin(field.ids, reason)
        return False
    slots.unite_along(field.ids, tuple(whole), reason)
    return True


def contracted(
    slots: Slots, a: Labelled, b: Labelled, over: tuple[int, int], batch: Iterable[tuple[int, int]], reason: str
) -> tuple[list[Field], list[Field]]:
    """The fields that are left of two tensors whose product is summed `over` a dimension of each; `batch` pairs their
    dimensions that stand for the same thing. In the dimensions of their own tensors."""
    pairs = list(batch)
    summed_a, left_a = _summed(slots, a, over[0], [p for p, _ in pairs], reason)
    summed_b, left_b = _summed(slots, b, over[1], [p for _, p in pairs], reason)
    names_a = {over[0]: 0} | {p: i + 1 for i, (p, _) in enumerate(pairs)}
    names_b = {over[1]: 0} | {p: i + 1 for i, (_, p) in enumerate(pairs)}
    size = a.shape[over[0]]
    for field in summed_a:
        if not summed_b and size > 1:
            slots.keep_along(field, [over[0]], reason)
        for other in summed_b:
            one, two = _moved(field, names_a), _moved(other, names_b)
            dims = sorted({*one.dims, *two.dims})
            slots.unite(one.over(dims), two.over(dims), reason)
    if not summed_a and size > 1:
        for field in summed_b:
            slots.keep_along(field, [over[1]], reason)
    return left_a, left_b


def _summed(
    slots: Slots, tensor: Labelled, over: int, batch: list[int], reason: str
) -> tuple[list[Field], list[Field]]:
    """The fields along the dimension that is summed over, reduced to it and to batch dimensions; and those that are
    left after the sum: of one along the sum and others, the slots are united along the sum."""
    summed, left = [], []
    for field in tensor.fields:
        if over not in field.dims:
            left.append(field)
            continue
        others = tuple(i for i, dim in enumerate(field.dims) if dim != over and dim not in batch)
        reduced = Field(
            tuple(dim for i, dim in enumerate(field.dims) if i not in others),
            slots.unite_along(field.ids, others, reason),
        )
        summed.append(reduced)
        if tensor.parameter:
            slots.read(field.ids)
        if len(field.dims) > 1:
            at = field.dims.index(over)
            rest = slots.unite_along(field.ids, (at,), reason)
            left.append(Field(tuple(dim for dim in field.dims if dim != over), rest))
    return summed, left
