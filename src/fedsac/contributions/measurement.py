"""What contributions are measured from, and the measure that a config names."""

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
    standalone training, the samples that judge and the score that they judge by."""

    clients: Clients
    initial: torch.Tensor
    steps: int
    validation: Samples
    test: Samples
    metric: Metric


Measure = Callable[[Measurement, Samples], Sequence[float]]
"""From a run's clients and the samples that judge (V or the test set) to one number per client, of either sign."""


def decided(config: Config, run: Measurement, alone: Contributions) -> Contributions:
    """The standalone contributions, completed by what decides in their place: numbers given in a file, or what the
    measure that the config names finds on validation or test data.

    The values decide reputations, and gamma is computed with them; BCF, alpha-BCF and gamma* compare rewards with the
    standalone scores whatever decides, since their bounds are bounds on scores.
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
    """Does another measure than standing alone have to be taken?"""
    return config.contributions is None and config.contribution != STANDALONE
