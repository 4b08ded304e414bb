"""FedSAC: collaborative fairness in federated learning.

`run(Config(...))` carries out a whole federation. Its pieces work on their own, on tensors and on torch modules:
`importance`, `reputation`, `allocate`, `extract`, `merge`, `aggregate`, `gamma`, `bcf`. For networks other than
perceptrons: `find_units`, `unit_importance`, `smaller` and what a `UnitTable` does (docs/any-network.md). A method of
your own derives from `Method`; a watcher of runs from `Watcher`. In a notebook, a `Result` shows itself, `figures` are
those of its page, and `Result.to_frame` has the numbers. Scenes, measures of contribution, metrics and client
behaviours of your own are functions of `Deal`, `Measurement` and `Samples`, numpy arrays (`Metric`) and `Update`.

Importing fedsac loads nothing heavy: torch comes with the first name that needs it.
"""

import importlib
from typing import TYPE_CHECKING, Any

from fedsac.errors import FedsacError
from fedsac.threads import spin_briefly
from fedsac.version import __version__

if TYPE_CHECKING:
    from fedsac.clients.behaviour import Update
    from fedsac.compute.importance import importance
    from fedsac.compute.samples import Samples
    from fedsac.compute.unit_importance import unit_importance
    from fedsac.config import Config
    from fedsac.contributions.measurement import Measurement
    from fedsac.core.aggregation import aggregate
    from fedsac.core.allocation import allocate, reputation, shares
    from fedsac.core.fairness import alpha_bcf, bcf, cgs, fairness, gamma, gamma_attainable, gamma_limit, mcg
    from fedsac.core.metrics import Metric
    from fedsac.core.unit_table import UnitTable
    from fedsac.core.units import Layout
    from fedsac.data.scenes import Deal, counted_in_classes
    from fedsac.methods.base import Assignment, Method, State, Task, Updates
    from fedsac.models.batch_norm import with_statistics_of
    from fedsac.models.finding.by_hand import units_by_hand
    from fedsac.models.finding.finder import find_units
    from fedsac.models.finding.shrinking import smaller
    from fedsac.models.network import Network
    from fedsac.models.submodels import extract, merge
    from fedsac.report.inline import figures
    from fedsac.runs.result import Result
    from fedsac.runs.start import resume, run, run_together
    from fedsac.runs.watcher import RunInfo, Watcher

__all__ = [
    "Assignment",
    "Config",
    "Deal",
    "FedsacError",
    "Layout",
    "Measurement",
    "Method",
    "Metric",
    "Network",
    "Result",
    "RunInfo",
    "Samples",
    "State",
    "Task",
    "UnitTable",
    "Update",
    "Updates",
    "Watcher",
    "__version__",
    "aggregate",
    "allocate",
    "alpha_bcf",
    "bcf",
    "cgs",
    "counted_in_classes",
    "extract",
    "fairness",
    "figures",
    "find_units",
    "gamma",
    "gamma_attainable",
    "gamma_limit",
    "importance",
    "mcg",
    "merge",
    "reputation",
    "resume",
    "run",
    "run_together",
    "shares",
    "smaller",
    "unit_importance",
    "units_by_hand",
    "with_statistics_of",
]

spin_briefly()  # here, since OpenMP asks only once, when torch is loaded

_DEFINED_IN = {
    "clients.behaviour": ("Update",),
    "compute.importance": ("importance",),
    "compute.samples": ("Samples",),
    "compute.unit_importance": ("unit_importance",),
    "config": ("Config",),
    "contributions.measurement": ("Measurement",),
    "core.aggregation": ("aggregate",),
    "core.allocation": ("allocate", "reputation", "shares"),
    "core.fairness": ("alpha_bcf", "bcf", "cgs", "fairness", "gamma", "gamma_attainable", "gamma_limit", "mcg"),
    "core.metrics": ("Metric",),
    "core.unit_table": ("UnitTable",),
    "core.units": ("Layout",),
    "data.scenes": ("Deal", "counted_in_classes"),
    "methods.base": ("Assignment", "Method", "State", "Task", "Updates"),
    "models.batch_norm": ("with_statistics_of",),
    "models.finding.by_hand": ("units_by_hand",),
    "models.finding.finder": ("find_units",),
    "models.finding.shrinking": ("smaller",),
    "models.network": ("Network",),
    "models.submodels": ("extract", "merge"),
    "report.inline": ("figures",),
    "runs.result": ("Result",),
    "runs.start": ("resume", "run", "run_together"),
    "runs.watcher": ("RunInfo", "Watcher"),
}
_HOMES = {name: f"fedsac.{module}" for module, names in _DEFINED_IN.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import what is asked for, the first time it is."""
    if name not in _HOMES:
        raise AttributeError(f"module 'fedsac' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
