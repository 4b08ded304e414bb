"""The methods by name."""

from collections.abc import Callable

from fedsac.config import Config
from fedsac.errors import FedsacError
from fedsac.methods.base import Method
from fedsac.methods.fedavg import FedAvg
from fedsac.methods.fedsac import FedSAC

METHODS: dict[str, Callable[[Config], Method]] = {
    "fedsac": lambda config: FedSAC(config.beta, config.importance_every),
    "fedavg": lambda config: FedAvg(),
}


def make(config: Config) -> Method:
    """The method that a config names."""
    if config.method not in METHODS:
        raise FedsacError(f"no method {config.method!r}; there are {', '.join(METHODS)}")
    return METHODS[config.method](config)
