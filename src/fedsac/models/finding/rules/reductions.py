"""Rules for normalisation, pooling and reductions."""

from collections.abc import Sequence
from typing import Any

from fedsac.models.finding.labels import Labelled, Slots, joined
from fedsac.models.finding.rules.registry import mixed, rule, unlabelled


@rule("batch_norm", "instance_norm")
def _batch_norm(slots: Slots, shape: Any, x: Labelled, *args: Any, **kwargs: Any) -> Labelled:
    result = x
    for own in (arg for arg in args[:4] if isinstance(arg, Labelled)):
        in_place = own.moved((own.shape[0], *(1 for _ in x.shape[2:])), {0: 0})
        result = joined(slots, [result, in_place], x.shape, "normalised by what is never cut")
    return result


@rule("layer_norm", "rms_norm")
def _layer_norm(
    slots: Slots, shape: Any, x: Labelled, normalised: Sequence[int], *args: Any, **kwargs: Any
) -> Labelled:
    first = len(x.shape) - len(normalised)
    reason = "normalised together (LayerNorm): without some of them, the others would change"
    parameters = [arg for arg in args if isinstance(arg, Labelled)]
    if any(min(field.dims) < first <= max(field.dims) for field in x.fields):  # of a head's width: heads can be cut
        for field in (field for own in parameters for field in own.fields):
            slots.pin(field.ids, reason)
        return mixed(slots, x, range(first, len(x.shape)), reason)
    result = joined(slots, [x, *parameters], x.shape, reason)
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


@rule("softmax", "log_softmax", "cumsum", "argsort")
def _along(slots: Slots, shape: Any, x: Labelled, *args: Any, **kwargs: Any) -> Any:
    dim = next((arg for arg in (*args, *kwargs.values()) if isinstance(arg, int) and not isinstance(arg, bool)), -1)
    return mixed(slots, x, [dim])


@rule("mean", "sum", "amax", "amin", "var", "std", "norm", "linalg_vector_norm", "prod", "any", "all", "logsumexp")
def _reduced(slots: Slots, shape: Any, x: Labelled, *args: Any, **kwargs: Any) -> Labelled:
    dims = kwargs.get("dim", next((arg for arg in args if isinstance(arg, list | tuple)), None))
    dims = [arg for arg in args if isinstance(arg, int) and not isinstance(arg, bool)][:1] if dims is None else dims
    gone = {dim % len(x.shape) for dim in (dims or range(len(x.shape)))}
    left = mixed(slots, x, list(gone))
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
