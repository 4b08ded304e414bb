"""What each operation of a traced network does to slots (see `labels`). An operation without a rule pins the slots of
whatever goes into it: it may do anything with them."""

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import torch

from fedsac.models.finding.labels import NONE, Field, Labelled, Slots, contracted, joined, reshaped

Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}
KERNEL = "the size of a kernel"


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
    name = _name(operation)
    if name in RULES:
        return RULES[name](slots, shape, *args, **kwargs)
    if shape is None:  # an assertion
        return None
    tensors = [arg for arg in _flat([*args, *kwargs.values()]) if isinstance(arg, Labelled)]
    if _pointwise(name):
        return joined(slots, tensors, shape, f"meets something that is never cut ({name})")
    for field in (field for tensor in tensors for field in tensor.fields):
        slots.pin(field.ids, f"goes through {name}, for which there is no rule")
    return unlabelled(shape)


def _name(operation: Any) -> str:
    """What an operation is called, in place or not."""
    name: str = operation._schema.name.removeprefix("aten::") if hasattr(operation, "_schema") else str(operation)
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


def _pointwise(name: str) -> bool:
    """Whether an operation works element by element: as torch says of one of its kinds at least."""
    packet = getattr(torch.ops.aten, name, None)
    kinds = [getattr(packet, kind) for kind in packet.overloads()] if packet is not None else []
    return any(torch.Tag.pointwise in kind.tags for kind in kinds)


def unlabelled(shape: Any) -> Any:
    """Tensors of these shapes that have no slots."""
    if shape is None:
        return None
    return [unlabelled(one) for one in shape] if isinstance(shape, list) else Labelled(tuple(shape))


def _flat(values: Sequence[Any]) -> list[Any]:
    return [leaf for value in values for leaf in (_flat(value) if isinstance(value, list | tuple) else [value])]


# -- the same elements in another order


@rule("view", "reshape", "_unsafe_view", "flatten", "unflatten", "squeeze", "unsqueeze", "view_as", "reshape_as")
def _reshape(slots: Slots, shape: Any, x: Labelled, *args: Any, **kwargs: Any) -> Labelled:
    return reshaped(x, shape)


@rule("clone", "contiguous", "alias", "detach", "to", "_to_copy", "dropout", "lift_fresh_copy",
      "feature_dropout", "alpha_dropout", "type_as")  # fmt: skip
def _same(slots: Slots, shape: Any, x: Labelled, *args: Any, **kwargs: Any) -> Labelled:
    return x


@rule("hardswish", "log_sigmoid", "multiply", "divide", "subtract", "special_expit", "floor_divide", "copy")
def _element_by_element(slots: Slots, shape: Any, *args: Any, **kwargs: Any) -> Labelled:
    """Operations that torch does not say of that they are pointwise."""
    operands = [arg for arg in args if isinstance(arg, Labelled)]
    return joined(slots, operands, shape, "meets something that is never cut")


@rule("prelu", "_prelu_kernel")
def _prelu(slots: Slots, shape: Any, x: Labelled, weight: Labelled) -> Labelled:
    if len(weight.shape) == 1 and len(x.shape) > 1:  # a slope for each channel
        weight = weight.moved((weight.shape[0], *(1 for _ in x.shape[2:])), {0: 0})
    return joined(slots, [x, weight], shape, "meets something that is never cut (prelu)")


@rule("permute")
def _permute(slots: Slots, shape: Any, x: Labelled, dims: Sequence[int]) -> Labelled:
    return _rearranged(slots, x, shape, {dim % len(dims): i for i, dim in enumerate(dims)})


@rule("transpose", "swapaxes", "t", "numpy_T", "mT")
def _transpose(slots: Slots, shape: Any, x: Labelled, one: int = -2, two: int = -1) -> Labelled:
    n = len(shape)
    if n < 2:
        return x
    return _rearranged(slots, x, shape, {i: i for i in range(n)} | {one % n: two % n, two % n: one % n})


def _rearranged(slots: Slots, x: Labelled, shape: Sequence[int], place: dict[int, int]) -> Labelled:
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
        return _mixed(slots, x, range(len(x.shape)), "repeated, each as often as a tensor says")
    return _repeated(x, dim % len(x.shape), times)


def _repeated(x: Labelled, dim: int, times: int) -> Labelled:
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
    return _mixed(slots, x, dims, "put in another order (roll, flip)")


# -- parts, and parts put together


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
    return _mixed(slots, x, picked, "entries that are picked by their index").moved(shape, place)


@rule("index_select")
def _index_select(slots: Slots, shape: Any, x: Labelled, dim: int, index: Labelled) -> Labelled:
    return Labelled(tuple(shape), _mixed(slots, x, [dim], "entries that are picked by their index").fields)


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


# -- sums of products


@rule("linear")
def _linear(slots: Slots, shape: Any, x: Labelled, weight: Labelled, bias: Labelled | None = None) -> Labelled:
    last = len(x.shape) - 1
    own, _ = contracted(slots, x, weight, (last, 1), [], "inputs that are never cut")
    outputs = [Field((last,), field.ids) for field in weight.along(0)]
    product = Labelled(tuple(shape), (*own, *outputs))
    return product if bias is None else joined(slots, [product, bias], shape, "a bias that is never cut")


@rule("addmm")
def _addmm(slots: Slots, shape: Any, bias: Labelled, x: Labelled, weight: Labelled, **kwargs: Any) -> Labelled:
    return joined(slots, [_matmul(slots, shape, x, weight), bias], shape, "a bias that is never cut")


@rule("baddbmm")
def _baddbmm(slots: Slots, shape: Any, added: Labelled, a: Labelled, b: Labelled, **kwargs: Any) -> Labelled:
    return joined(slots, [_matmul(slots, shape, a, b), added], shape, "added to something that is never cut")


@rule("matmul", "mm", "bmm")
def _matmul(slots: Slots, shape: Any, a: Labelled, b: Labelled) -> Labelled:
    if len(a.shape) < 2 or len(b.shape) < 2:
        for field in (*a.fields, *b.fields):
            slots.pin(field.ids, "goes through a product with a vector, for which there is no rule")
        return Labelled(tuple(shape))
    n, rows, columns = len(shape), len(a.shape) - 2, len(b.shape) - 1
    place_a = {dim: dim + n - len(a.shape) for dim in range(len(a.shape) - 1)}
    place_b = {dim: dim + n - len(b.shape) for dim in range(len(b.shape)) if dim != columns - 1}
    batch = [
        (one, two)
        for one, at in place_a.items()
        for two, also in place_b.items()
        if at == also and one < rows and a.shape[one] == b.shape[two]
    ]
    own, other = contracted(slots, a, b, (rows + 1, columns - 1), batch, "multiplied with what is never cut")
    left = Labelled(_without(a.shape, rows + 1), tuple(own)).moved(_ones(shape, a.shape, place_a), place_a)
    right = Labelled(_without(b.shape, columns - 1), tuple(other)).moved(_ones(shape, b.shape, place_b), place_b)
    return joined(slots, [left, right], shape, "multiplied with what is never cut")


@rule("einsum")
def _einsum(slots: Slots, shape: Any, equation: str, tensors: Sequence[Labelled], **kwargs: Any) -> Labelled:
    """A product of tensors with a dimension for each letter, summed over those that are not in the result."""
    inputs, _, output = equation.replace(" ", "").partition("->")
    operands, letters = inputs.split(","), [*output, *sorted(set(inputs) - set(output) - {","})]
    if "." in equation or not output or any(len(set(each)) < len(each) for each in (*operands, output)):
        for field in (field for tensor in tensors for field in tensor.fields):
            slots.pin(field.ids, f"goes through einsum({equation}), for which there is no rule")
        return Labelled(tuple(shape))
    reason, aligned = "multiplied with what is never cut", []
    for tensor, names in zip(tensors, operands, strict=True):
        place = {i: letters.index(letter) for i, letter in enumerate(names)}
        aligned.append(_rearranged(slots, tensor, _ones(letters, tensor.shape, place), place))
    full = [max(sizes) for sizes in zip(*(each.shape for each in aligned), strict=True)]
    fields = []
    for field in joined(slots, aligned, full, reason).fields:
        kept = tuple(dim for dim in field.dims if dim < len(output))
        summed = tuple(i for i, dim in enumerate(field.dims) if dim >= len(output))
        if kept:
            fields.append(Field(kept, slots.unite_along(field.ids, summed, reason)))
    return Labelled(tuple(shape), tuple(fields))


def _without(shape: tuple[int, ...], dim: int) -> tuple[int, ...]:
    return shape[:dim] + shape[dim + 1 :]


def _ones(result: Sequence[Any], shape: tuple[int, ...], place: dict[int, int]) -> tuple[int, ...]:
    """The shape of an operand among the result's dimensions: 1 where it has none of them."""
    sizes = {to: shape[dim] for dim, to in place.items()}
    return tuple(sizes.get(i, 1) for i in range(len(result)))


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


def _grouped(slots: Slots, x: Labelled, weight: Labelled, channel: int, groups: int) -> tuple[Labelled, Labelled]:
    """Slots of a convolution in groups. In a depthwise one, a group and its one input channel go together; in others,
    the k-th channels of all groups, since all groups must have equally many."""
    reason = "inputs that are never cut"
    inputs = [f.ids for f in x.fields if f.dims == (channel,)]
    outputs = [f.ids.reshape(groups, -1) for f in weight.along(0)]
    depthwise = weight.shape[1] == 1
    for ids in outputs:
        slots.unite_along(ids, (1,) if depthwise else (0,), reason)
    for ids in (ids.reshape(groups, -1) for ids in inputs):
        if depthwise:
            for out in outputs:
                slots.unite(ids, out[:, :1], reason)
        else:
            own = slots.unite_along(ids, (0,), reason)
            for field in weight.along(1):
                slots.unite(own, field.ids, reason)
                slots.read(field.ids)
    if not inputs:
        for ids in (*(outputs if depthwise else ()), *(f.ids for f in weight.along(1))):
            slots.pin(ids, reason)
    return x, weight


@rule("scaled_dot_product_attention")
def _attention(
    slots: Slots, shape: Any, q: Labelled, k: Labelled, v: Labelled, mask: Labelled | None = None, *args: Any,
    enable_gqa: bool = False, **kwargs: Any,
) -> Labelled:  # fmt: skip
    last, reason = len(q.shape) - 1, "the width of an attention head"
    if enable_gqa:  # several heads of queries share one of keys and values
        k, v = (_repeated(each, last - 2, q.shape[last - 2] // each.shape[last - 2]) for each in (k, v))
    positions = "positions of a sequence, over which attention is a mean"
    k, v = _mixed(slots, k, [last - 1], positions), _mixed(slots, v, [last - 1], positions)
    batch = [(i, i) for i in range(last - 1) if q.shape[i] == k.shape[i]]
    own, other = contracted(slots, q, k, (last, last), batch, reason)
    weights = [Labelled((*q.shape[:-1], 1), tuple(own)), Labelled((*k.shape[:-2], 1, 1), tuple(other))]
    if mask is not None:
        n = len(mask.shape)
        weights.append(Labelled((*mask.shape[:-2], 1, 1), _mixed(slots, mask, [n - 2, n - 1], positions).fields))
    return joined(slots, [Labelled((*v.shape[:-2], 1, v.shape[-1]), v.fields), *weights], shape, reason)


@rule("embedding")
def _embedding(slots: Slots, shape: Any, weight: Labelled, *args: Any, **kwargs: Any) -> Labelled:
    for field in weight.along(0):
        slots.pin(field.ids, "entries of an embedding")
    return Labelled(tuple(shape), tuple(Field((len(shape) - 1,), field.ids) for field in weight.along(1)))


# -- normalisation, pooling, reductions


@rule("batch_norm", "_native_batch_norm_legit_no_training", "instance_norm")
def _batch_norm(slots: Slots, shape: Any, x: Labelled, *args: Any, **kwargs: Any) -> Labelled:
    result = x
    for own in (arg for arg in args[:4] if isinstance(arg, Labelled)):
        in_place = own.moved((own.shape[0], *(1 for _ in x.shape[2:])), {0: 0})
        result = joined(slots, [result, in_place], x.shape, "normalised by what is never cut")
    return result


@rule("layer_norm", "rms_norm", "native_layer_norm")
def _layer_norm(
    slots: Slots, shape: Any, x: Labelled, normalised: Sequence[int], *args: Any, **kwargs: Any
) -> Labelled:
    first = len(x.shape) - len(normalised)
    reason = "normalised together (LayerNorm): without some of them, the others would change"
    result = joined(slots, [x, *(arg for arg in args if isinstance(arg, Labelled))], x.shape, reason)
    for field in (f for f in result.fields if max(f.dims) >= first):
        slots.pin(field.ids, reason)
    return result


@rule("group_norm")
def _group_norm(
    slots: Slots, shape: Any, x: Labelled, groups: int, weight: Labelled | None = None, bias: Labelled | None = None,
    *args: Any, **kwargs: Any,
) -> Labelled:  # fmt: skip
    result: Labelled = _batch_norm(slots, shape, x, weight, bias)
    for field in result.fields:
        if field.dims != (1,):
            slots.pin(field.ids, "normalised together (GroupNorm)")
        elif groups == 1:
            slots.pin(field.ids, "normalised together (GroupNorm with one group)")
        else:
            slots.unite_along(field.ids.reshape(groups, -1), (1,), "normalised together with what is never cut")
    return result


@rule("softmax", "log_softmax", "_softmax", "_log_softmax", "cumsum", "sort", "topk", "argsort")
def _along(slots: Slots, shape: Any, x: Labelled, *args: Any, **kwargs: Any) -> Any:
    dim = next((arg for arg in (*args, *kwargs.values()) if isinstance(arg, int) and not isinstance(arg, bool)), -1)
    return _mixed(slots, x, [dim])


def _mixed(
    slots: Slots, x: Labelled, dims: Sequence[int], reason: str = "a mean, a softmax or the like is taken over them"
) -> Labelled:
    """The tensor after something that mixes what stands along these dimensions."""
    mixed = {dim % len(x.shape) for dim in dims}
    for field in x.fields:
        if mixed & set(field.dims):
            slots.pin(field.ids, reason)
    return Labelled(x.shape, tuple(f for f in x.fields if not mixed & set(f.dims)))


@rule("mean", "sum", "amax", "amin", "var", "std", "norm", "linalg_vector_norm", "prod", "any", "all", "logsumexp")
def _reduced(slots: Slots, shape: Any, x: Labelled, *args: Any, **kwargs: Any) -> Labelled:
    dims = kwargs.get("dim", next((arg for arg in args if isinstance(arg, list | tuple)), None))
    dims = [arg for arg in args if isinstance(arg, int) and not isinstance(arg, bool)][:1] if dims is None else dims
    gone = {dim % len(x.shape) for dim in (dims or range(len(x.shape)))}
    left = _mixed(slots, x, list(gone))
    if len(shape) == len(x.shape):
        return Labelled(tuple(shape), left.fields)
    place = {dim: dim - sum(d < dim for d in gone) for dim in range(len(x.shape)) if dim not in gone}
    return left.moved(shape, place)


@rule("max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d", "adaptive_avg_pool1d",
      "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d", "upsample_nearest2d",
      "upsample_bilinear2d", "_adaptive_avg_pool2d", "max_pool2d_with_indices")  # fmt: skip
def _pool(slots: Slots, shape: Any, x: Labelled, *args: Any, **kwargs: Any) -> Any:
    if isinstance(shape, list):  # with indices
        return [_pool(slots, shape[0], x), *unlabelled(shape[1:])]
    kept = []
    for field in x.fields:
        if max(field.dims) > 1:
            slots.pin(field.ids, "the sizes of an image")
        else:
            kept.append(field)
    return Labelled(tuple(shape), tuple(kept))
