"""What a client brings, in other ways than by standing alone. To add one: write a `Measure` and name it below.

The values decide reputations, and gamma is computed with them; BCF, alpha-BCF and gamma* compare rewards with the
standalone accuracies whatever decides, since their bounds are bounds on accuracies.
"""

from collections.abc import Callable
from dataclasses import replace

from fedsac.compute.training import Samples
from fedsac.contributions import cosine, leave_one_out, shapley
from fedsac.contributions.standalone import Alone, Contributions
from fedsac.errors import FedsacError

Measure = Callable[[Alone, Samples], tuple[float, ...]]
"""From a run's clients and the samples that judge (V or the test set) to one number per client, of either sign."""

STANDALONE = "standalone"
MEASURES: dict[str, Measure] = {
    "leave-one-out": leave_one_out.measure,
    "shapley": shapley.measure,
    "cosine": cosine.measure,
}


def named(name: str) -> Measure | None:
    """The measure of this name; None for standalone, whose accuracies are measured in any case.

    >>> named("shap")
    Traceback (most recent call last):
    fedsac.errors.FedsacError: no contribution 'shap'; there are standalone, leave-one-out, shapley, cosine
    """
    if name != STANDALONE and name not in MEASURES:
        raise FedsacError(f"no contribution {name!r}; there are {', '.join((STANDALONE, *MEASURES))}")
    return MEASURES.get(name)


def decided(name: str, on: str, run: Alone, alone: Contributions) -> Contributions:
    """The standalone contributions, completed by what the named measure finds `on` validation or test."""
    measure = named(name)
    if measure is None:
        return alone
    return replace(alone, deciding=measure(run, run.test if on == "test" else run.validation))
