"""The methods, one file each; `make` gives the one that a config names.

The built-in ones are listed by name in `fedsac.doors`; a method of your own needs no entry there: name it as
`--method module:Class` (see docs/adding-a-method.md).
"""

import math
from dataclasses import MISSING, fields
from typing import Any

from fedsac.config import Config
from fedsac.doors import METHODS
from fedsac.errors import FedsacError
from fedsac.methods.base import Method


def make(config: Config) -> Method:
    """The method that a config names, with its options."""
    cls = method_class(config.method)
    allowed = {option.name: option for option in fields(cls)}  # type: ignore[arg-type]
    given = dict(cls.defaults(config))
    for name, value in config.options.items():
        if name not in allowed:
            there = ", ".join(allowed) or "none"
            raise FedsacError(f"method {config.method} has no option {name!r}; it has {there}")
        given[name] = _converted(name, value, allowed[name])
    return cls(**given)


def method_class(name: str) -> type[Method]:
    """The class of the method with this name; an error where it is not a complete method."""
    kind: object = METHODS.resolve(name)
    if not (isinstance(kind, type) and issubclass(kind, Method)):
        renamed = "; its function rewards is called assign now" if hasattr(kind, "rewards") else ""
        raise FedsacError(
            f"method {name!r} must be a class derived from fedsac.Method{renamed}; see docs/adding-a-method.md"
        )
    if missing := sorted(kind.__abstractmethods__):
        raise FedsacError(f"method {name!r} lacks {', '.join(missing)}; see docs/adding-a-method.md")
    if not hasattr(kind, "__dataclass_fields__"):
        raise FedsacError(f"method {name!r} must be a dataclass: its fields are its options")
    return kind


def _converted(name: str, value: object, option: Any) -> object:
    """A value from the command line or a file as the option's own type, which is that of its default."""
    default: Any = option.default if option.default is not MISSING else value
    if isinstance(default, bool) and str(value).lower() in ("true", "false"):
        return str(value).lower() == "true"
    try:
        if isinstance(default, bool):
            raise ValueError
        converted = type(default)(value)
        if isinstance(converted, float) and not math.isfinite(converted):
            raise ValueError
        if isinstance(converted, int) and isinstance(value, float) and value != converted:
            raise ValueError
        return converted
    except (TypeError, ValueError):
        kind = {bool: "true or false", int: "a whole number", float: "a number"}.get(type(default), "a text")
        raise FedsacError(f"option {name} must be {kind}, not {value!r}") from None
