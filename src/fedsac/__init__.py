"""FedSAC: collaborative fairness in federated learning.

`run(Config(...))` carries out a whole federation. Its pieces work on their own, on tensors and on torch modules:
`importance`, `reputation`, `allocate`, `extract`, `merge`, `aggregate`, `gamma`, `bcf`.
"""

from fedsac.compute.importance import importance, shares
from fedsac.config import Config
from fedsac.core.aggregation import aggregate
from fedsac.core.allocation import allocate, reputation
from fedsac.core.fairness import alpha_bcf, bcf, fairness, gamma, gamma_limit
from fedsac.core.units import Layout
from fedsac.errors import FedsacError
from fedsac.models.network import Network
from fedsac.models.submodels import extract, merge
from fedsac.runs.loop import resume, run, run_together
from fedsac.runs.result import Result
from fedsac.version import __version__

__all__ = [
    "Config",
    "FedsacError",
    "Layout",
    "Network",
    "Result",
    "__version__",
    "aggregate",
    "allocate",
    "alpha_bcf",
    "bcf",
    "extract",
    "fairness",
    "gamma",
    "gamma_limit",
    "importance",
    "merge",
    "reputation",
    "resume",
    "run",
    "run_together",
    "shares",
]
