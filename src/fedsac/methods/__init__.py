"""The methods by name.

A method of your own needs no entry here: `--method module:Class` finds it (see docs/adding-a-method.md).
"""

import importlib
import math
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any

from fedsac.config import Config
from fedsac.errors import FedsacError
from fedsac.methods.ablations import NoAggregation, NoAllocation
from fedsac.methods.base import Method
from fedsac.methods.cffl import CFFL
from fedsac.methods.cgsv import CGSV
from fedsac.methods.fedave import FedAVE
from fedsac.methods.fedavg import FedAvg
from fedsac.methods.fedrac import FedRAC
from fedsac.methods.fedsac import FedSAC
from fedsac.methods.fedsac_plus import FedSACPlus
from fedsac.methods.iafl import IAFL
from fedsac.methods.qffl import QFFL
from fedsac.methods.rffl import RFFL
from fedsac.methods.standalone import Standalone


@dataclass(frozen=True)
class Entry:
    """A method in the list: what makes it, what it does in a line, where it comes from."""

    make: Callable[..., Method]
    what: str
    citation: str


_FEDSAC = "Wang et al., KDD 2024"
METHODS: dict[str, Entry] = {
    "standalone": Entry(Standalone, "nobody shares anything", "-"),
    "fedavg": Entry(FedAvg, "everyone gets the mean model", "McMahan et al., AISTATS 2017"),
    "qffl": Entry(QFFL, "the mean model, clients with a higher loss weigh more", "Li et al., ICLR 2020"),
    "cffl": Entry(CFFL, "gradients by validation accuracy and data size", "Lyu et al., 2020"),
    "cgsv": Entry(CGSV, "gradients by similarity to the common direction", "Xu et al., NeurIPS 2021"),
    "fedave": Entry(FedAVE, "gradients by accuracy and likeness of the data", "Wang et al., 2024"),
    "rffl": Entry(RFFL, "gradients by reputation, outsiders removed", "Xu and Lyu, 2020"),
    "iafl": Entry(IAFL, "as many of the others' updates as earned", "Wu et al., ICLR 2024"),
    "fedrac": Entry(FedRAC, "submodels by validation accuracy, rarely trained neurons first", "CVPR 2026"),
    "fedsac": Entry(FedSAC, "submodels by importance", _FEDSAC),
    "fedsac-no-allocation": Entry(NoAllocation, "FedSAC with neurons in random order (Table 3)", _FEDSAC),
    "fedsac-no-aggregation": Entry(NoAggregation, "FedSAC with FedAvg's mean (Table 3)", _FEDSAC),
    "fedsac-plus": Entry(FedSACPlus, "submodels calibrated to targets inside BCF", "this project"),
}


def make(config: Config) -> Method:
    """The method that a config names, with its options."""
    maker = _maker(config.method)
    allowed = {option.name: option for option in fields(maker)}  # type: ignore[arg-type]
    given: dict[str, Any] = {}
    # FedSAC's two are settings of a run, since the paper's tables vary them; every other option is the method's own.
    if isinstance(maker, type) and issubclass(maker, FedSAC):
        given = {"beta": config.beta, "importance_every": config.importance_every}
    if "length" in allowed:
        given["length"] = 0.15 if config.data == "cifar10" else 0.5  # Gamma, as its authors set it
    for name, value in config.options.items():
        if name not in allowed:
            there = ", ".join(allowed) or "none"
            raise FedsacError(f"method {config.method} has no option {name!r}; it has {there}")
        given[name] = _converted(name, value, allowed[name])
    return maker(**given)


def _maker(name: str) -> Callable[..., Method]:
    if name in METHODS:
        return METHODS[name].make
    module, colon, attribute = name.partition(":")
    if not colon:
        raise FedsacError(f"no method {name!r}; there are {', '.join(METHODS)}, or module:Class for one of your own")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError, TypeError) as error:  # the last two: no module's name at all
        raise FedsacError(f"method {name!r} cannot be imported: {error}; is it on PYTHONPATH?") from None
    if not all(callable(getattr(found, part, None)) for part in ("start", "rewards", "learn")):
        raise FedsacError(f"method {name!r} lacks start, rewards or learn; see docs/adding-a-method.md")
    if not is_dataclass(found):
        raise FedsacError(f"method {name!r} must be a dataclass: its fields are its options")
    return found  # type: ignore[return-value]


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
