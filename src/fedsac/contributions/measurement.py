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
    standalone training, validation and test samples, the metric, and at how many `checkpoints` of the training the
    clients' models are scored."""

    clients: Clients
    initial: torch.Tensor
    steps: int
    validation: Samples
    test: Samples
    metric: Metric
    checkpoints: int = 1

    @property
    def checkpoint_steps(self) -> tuple[int, ...]:
        """The numbers of steps after which the clients' models are scored, the last at the end of the training."""
        return checkpoint_steps(self.steps, self.clients.local_steps, self.checkpoints)


Measure = Callable[[Measurement, Samples], Sequence[float]]
"""From a run's clients and the samples that judge (V or the test set) to one number per client, of either sign."""


def checkpoint_steps(steps: int, part: int, checkpoints: int) -> tuple[int, ...]:
    """`checkpoints` evenly spaced numbers of steps in the last fifth of a training of `steps` steps, the last at its
    end. All are ends of parts of `part` steps, in which a training alone is carried out whether it is scored once or
    several times: so that the training is the same.

    >>> checkpoint_steps(2000, 20, 1), checkpoint_steps(2000, 20, 4)
    ((2000,), (1700, 1800, 1900, 2000))
    >>> checkpoint_steps(100, 20, 3)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    fedsac.errors.FedsacError: standalone_checkpoints must be at most 1, not 3: 100 steps alone have no more in ...
    """
    parts = -(-steps // part)
    late = max(1, parts // 5)
    if checkpoints > late:
        raise FedsacError(
            f"standalone_checkpoints must be at most {late}, not {checkpoints}: {steps} steps alone have no more in "
            f"their last fifth, one every {part} steps; lower it, or train for longer"
        )
    ends = (parts - k * late // checkpoints for k in reversed(range(checkpoints)))
    return tuple(min(end * part, steps) for end in ends)


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
