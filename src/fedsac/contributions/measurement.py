"""What contributions are measured from, and by the measure that a config names."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from fedsac.clients.population import Clients
from fedsac.compute.samples import Samples
from fedsac.config import Config
from fedsac.contributions.base import STANDALONE, Contributions, read_given
from fedsac.core.metrics import Metric
from fedsac.doors import CONTRIBUTIONS
from fedsac.errors import FedsacError


@dataclass(frozen=True)
class Measurement:
    """The clients of one run and what their contributions are measured with: common initial weights, `steps` of
    standalone training, validation and test samples, and the metric."""

    clients: Clients
    initial: torch.Tensor
    steps: int
    validation: Samples
    test: Samples
    metric: Metric


Measure = Callable[[Measurement, Samples], Sequence[float]]
"""From a run's clients and the samples that judge (V or the test set) to one number per client, of either sign."""


def decided(config: Config, run: Measurement, alone: Contributions) -> Contributions:
    """The standalone contributions `alone`, with the values that decide in their place, if any: numbers given in a
    file, or those of the measure that the config names, on validation or test data.

    Reputations and gamma are computed from the deciding values. BCF, alpha-BCF and gamma* compare rewards with the
    standalone scores in any case, since their bounds are bounds on scores.
    """
    names = run.clients.names
    if config.contributions is not None:
        return replace(alone, deciding=read_given(Path(config.contributions), names))
    if config.contribution == STANDALONE:
        return alone
    measure: Measure = CONTRIBUTIONS.resolve(config.contribution)
    measured = measure(run, run.test if config.contribution_on == "test" else run.validation)
    try:
        values = tuple(float(v) for v in measured)
    except (TypeError, ValueError):
        values = ()
    if len(values) != len(names) or not all(map(math.isfinite, values)):
        shown = " ".join(repr(measured).split())[:80]
        raise FedsacError(
            f"contribution {config.contribution} must give a number for each of {len(names)} clients, not {shown}"
        )
    return replace(alone, deciding=values)


def is_measured(config: Config) -> bool:
    """Is there a measure other than the standalone score to compute?"""
    return config.contributions is None and config.contribution != STANDALONE
