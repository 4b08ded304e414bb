"""Whether a value that was read from a file has the type that a dataclass says. Loads no torch."""

import math
import types
from dataclasses import fields, is_dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints


def is_of(value: Any, wanted: Any) -> bool:
    """Whether a value is of a type: a dataclass (all fields are), a union, a tuple, a dict, or a plain one. Numbers are
    finite; a whole number is a float, too, and a bool is neither.

    >>> is_of((1, 2.5, None), tuple[int | None, ...]), is_of((1, 2), tuple[int, float]), is_of(True, int)
    (False, True, False)
    """
    origin, arguments = get_origin(wanted), get_args(wanted)
    if origin in (Union, types.UnionType):
        return any(is_of(value, one) for one in arguments)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        each = arguments[:1] * len(value) if arguments[1:] == (...,) else arguments
        return len(value) == len(each) and all(map(is_of, value, each))
    if origin is dict:
        return isinstance(value, dict) and all(
            is_of(k, arguments[0]) and is_of(v, arguments[1]) for k, v in value.items()
        )
    if is_dataclass(wanted):
        hints = get_type_hints(wanted)
        return isinstance(value, wanted) and all(is_of(getattr(value, f.name), hints[f.name]) for f in fields(wanted))  # type: ignore[arg-type]
    if wanted in (int, float):
        number = isinstance(value, int if wanted is int else int | float) and not isinstance(value, bool)
        return number and abs(value) <= MOST and math.isfinite(value)
    return isinstance(value, wanted)


MOST = 1e300  # further away from 0, sums and squares of numbers in a table would end in infinity
