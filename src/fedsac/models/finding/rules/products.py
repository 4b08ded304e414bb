"""Rules for sums of products: linear layers, attention, embeddings."""

from collections.abc import Sequence
from typing import Any

from fedsac.models.finding.labels import Field, Labelled, Slots, contracted, joined
from fedsac.models.finding.rules.arrangement import rearranged, repeated
from fedsac.models.finding.rules.registry import mixed, rule


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
    left = Labelled(_without(a.shape, rows + 1), tuple(own)).moved(among(shape, a.shape, place_a), place_a)
    right = Labelled(_without(b.shape, columns - 1), tuple(other)).moved(among(shape, b.shape, place_b), place_b)
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
        aligned.append(rearranged(slots, tensor, among(letters, tensor.shape, place), place))
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


def among(result: Sequence[Any], shape: tuple[int, ...], place: dict[int, int]) -> tuple[int, ...]:
    """The shape of an operand among the result's dimensions: 1 where it has none of them."""
    sizes = {to: shape[dim] for dim, to in place.items()}
    return tuple(sizes.get(i, 1) for i in range(len(result)))


@rule("scaled_dot_product_attention")
def _attention(
    slots: Slots, shape: Any, q: Labelled, k: Labelled, v: Labelled, mask: Labelled | None = None, *args: Any,
    enable_gqa: bool = False, **kwargs: Any,
) -> Labelled:  # fmt: skip
    last, reason = len(q.shape) - 1, "the width of an attention head"
    if enable_gqa:  # several heads of queries share one of keys and values
        k, v = (repeated(each, last - 2, q.shape[last - 2] // each.shape[last - 2]) for each in (k, v))
    positions = "positions of a sequence, over which attention is a mean"
    k, v = mixed(slots, k, [last - 1], positions), mixed(slots, v, [last - 1], positions)
    batch = [(i, i) for i in range(last - 1) if q.shape[i] == k.shape[i]]
    own, other = contracted(slots, q, k, (last, last), batch, reason)
    weights = [Labelled((*q.shape[:-1], 1), tuple(own)), Labelled((*k.shape[:-2], 1, 1), tuple(other))]
    if mask is not None:
        n = len(mask.shape)
        weights.append(Labelled((*mask.shape[:-2], 1, 1), mixed(slots, mask, [n - 2, n - 1], positions).fields))
    return joined(slots, [Labelled((*v.shape[:-2], 1, v.shape[-1]), v.fields), *weights], shape, reason)


@rule("embedding")
def _embedding(slots: Slots, shape: Any, weight: Labelled, *args: Any, **kwargs: Any) -> Labelled:
    for field in weight.along(0):
        slots.pin(field.ids, "entries of an embedding")
    return Labelled(tuple(shape), tuple(Field((len(shape) - 1,), field.ids) for field in weight.along(1)))
