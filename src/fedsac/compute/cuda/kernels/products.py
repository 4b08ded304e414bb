"""Matrix products in the precision that a run asks for."""

from typing import Any

import triton
import triton.language as tl

from fedsac.compute.cuda import precision

PRECISIONS: dict[str, Any] = {"float32": "tf32x3", "tf32": "tf32", "bf16": "bf16"}


def chosen_precision() -> Any:
    return PRECISIONS[precision.current()]


@triton.jit
def _rounded_to_tf32(a):  # type: ignore[no-untyped-def]
    """The nearest numbers with TF32's ten bits of mantissa; NaN stays NaN."""
    return tl.where(a == a, ((a.to(tl.int32, bitcast=True) + 0x1000) & -0x2000).to(tl.float32, bitcast=True), a)


@triton.jit
def dot(a, b, total, precision: tl.constexpr):  # type: ignore[no-untyped-def]
    if precision == "bf16":
        total = tl.dot(a.to(tl.bfloat16), b.to(tl.bfloat16), total)
    elif precision == "tf32":
        # Rounded here, since the tensor cores would truncate; it also keeps the operands in registers.
        total = tl.dot(_rounded_to_tf32(a), _rounded_to_tf32(b), total, input_precision=precision)
    else:
        total = tl.dot(a, b, total, input_precision=precision)
    return total
