"""The paper's two theorems, tested numerically: what they assume, what they conclude, and where each does not hold.

`study` measures everything, on the CPU; `Theorems` holds every number that the pages on the theorems show.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

from fedsac.config import FORMAT_VERSION, Config
from fedsac.paper import theorem1, theorem2
from fedsac.paper.theorem1 import Counterexample, GradientBin, QuadraticPairs, Ridge
from fedsac.paper.theorem2 import Problem, Trajectory
from fedsac.paper.theorem_network import NetworkStudy, clients_samples, inputs, study_network
from fedsac.runs.setup import prepare

Note = Callable[[str], None]
LOCAL_STEPS = 5  # E


@dataclass(frozen=True)
class Effort:
    """How much is measured: `trials` random problems, `orders` of neurons at random, `rounds` of FedSAC on a network of
    `hidden` neurons, `lanczos` steps, and SGD `steps` with decreasing and with constant rate."""

    trials: int
    orders: int
    rounds: int
    hidden: tuple[int, ...]
    lanczos: int
    steps: int
    constant_steps: int


FULL = Effort(trials=500, orders=20, rounds=60, hidden=(200, 200), lanczos=60, steps=20000, constant_steps=8000)
QUICK = Effort(trials=60, orders=3, rounds=10, hidden=(200, 200), lanczos=20, steps=3000, constant_steps=2000)


@dataclass(frozen=True)
class Ending:
    """Theorem 2's decreasing steps on one problem: F - F* after the last step, the slope of log(F - F*) against log T,
    and F - F* at the limit point, if that is known."""

    holding: str
    coupled: bool
    differ: bool
    gap: float
    slope: float
    limit: float | None


@dataclass(frozen=True)
class Bounded:
    """Every client holds everything: F - F* after the last step, the theorem's bound there, and the largest ratio of
    F - F* to the bound after any step."""

    local_steps: int
    slope: float
    gap: float
    bound: float
    largest_share: float
    gradient: float  # G^2, measured


@dataclass(frozen=True)
class Floor:
    """A constant learning rate: F - F* in the second half of the steps, its exact limit, and the part of that limit
    that is not noise."""

    rate: float
    local_steps: int
    measured: float
    exact: float
    drift: float


@dataclass(frozen=True)
class Convergence:
    """The results on Theorem 2."""

    steps: int
    local_steps: int
    start: float  # F - F* at the start, in the problem with coupled parameters and different optima
    least: float  # F* there, which is Gamma
    endings: tuple[Ending, ...]
    bounded: tuple[Bounded, ...]
    floors: tuple[Floor, ...]
    weighted_gap: float


@dataclass(frozen=True)
class Theorems:
    """Everything that was measured; `theorems_page` turns it into text."""

    quick: bool
    seed: int
    trials: int
    isotropic: tuple[GradientBin, ...]
    quadratics: tuple[QuadraticPairs, ...]
    ridge: tuple[Ridge, ...]
    counterexample: Counterexample
    network: NetworkStudy
    convergence: Convergence

    def as_dict(self) -> dict[str, Any]:
        return {"format_version": FORMAT_VERSION, **asdict(self)}

    def ending(self, holding: str, *, coupled: bool, differ: bool) -> Ending:
        wanted = (holding, coupled, differ)
        return next(e for e in self.convergence.endings if (e.holding, e.coupled, e.differ) == wanted)


def study(quick: bool = False, seed: int = 0, note: Note = lambda text: None) -> Theorems:
    """Test both theorems: about 90 seconds on one core, `quick` about 20. The same seed gives the same numbers."""
    effort = QUICK if quick else FULL
    note("theorem 1: quadratics")
    isotropic = theorem1.isotropic(effort.trials, seed)
    quadratics = tuple(theorem1.quadratics(ratio, effort.trials, seed) for ratio in theorem1.RATIOS)
    note("theorem 1: ridge regression on digits")
    samples = clients_samples(prepare([Config(dtype="float64", threads=1, seed=seed)])[0])
    ridge = tuple(
        theorem1.ridge_regression(inputs(samples), samples.y, weight, effort.orders, seed) for weight in theorem1.RIDGES
    )
    network = study_network(effort.rounds, effort.hidden, effort.lanczos, seed, note)
    return Theorems(
        quick=quick,
        seed=seed,
        trials=effort.trials,
        isotropic=isotropic,
        quadratics=quadratics,
        ridge=ridge,
        counterexample=theorem1.counterexample(),
        network=network,
        convergence=converge(effort, seed, network.samples, note),
    )


def converge(effort: Effort, seed: int, samples: tuple[int, ...], note: Note) -> Convergence:
    """Theorem 2: with and without submodels, against its bound, and with a constant learning rate."""
    endings = []
    for holding, coupled, differ in product(theorem2.HOLDINGS, (False, True), (False, True)):
        kind = f"{'coupled' if coupled else 'uncoupled'}, optima {'differ' if differ else 'agree'}"
        note(f"theorem 2: {theorem2.HOLDINGS[holding]}; {kind}")
        task = theorem2.problem(seed, coupled=coupled, differ=differ)
        path = _decreasing(task, holding, effort.steps, LOCAL_STEPS, seed)
        # FedSAC allocates by the current model, so there is no fixed cycle of submodels with a limit to compute.
        known = holding != theorem2.ALLOTTED
        limit = float(task.gap(task.limit(theorem2.submodels(task, holding)))) if known else None
        endings.append(Ending(holding, coupled, differ, path.gaps[-1], path.slope, limit))
    task = theorem2.problem(seed, coupled=True, differ=True)
    note("theorem 2: the bound, and constant learning rates")
    return Convergence(
        steps=effort.steps,
        local_steps=LOCAL_STEPS,
        start=float(task.gap(0 * task.best)),
        least=task.least,
        endings=tuple(endings),
        bounded=tuple(_bounded(task, effort.steps, local_steps, seed) for local_steps in (1, LOCAL_STEPS)),
        floors=tuple(
            _floor(task, rate, local_steps, effort.constant_steps, seed)
            for local_steps, rate in product((1, LOCAL_STEPS, 20), (0.05, 0.025))
        ),
        weighted_gap=task.weighted_gap(samples),
    )


def _decreasing(task: Problem, holding: str, steps: int, local_steps: int, seed: int) -> Trajectory:
    rate = theorem2.decreasing_rate(local_steps)
    return theorem2.local_sgd(task, holding, rate, steps=steps, local_steps=local_steps, seed=seed)


def _bounded(task: Problem, steps: int, local_steps: int, seed: int) -> Bounded:
    path = _decreasing(task, theorem2.EVERYTHING, steps, local_steps, seed)
    bounds = theorem2.bound(task, path.steps, local_steps, path.gradient)
    largest = max(gap / most for gap, most in zip(path.gaps, bounds, strict=True))
    return Bounded(local_steps, path.slope, path.gaps[-1], bounds[-1], largest, path.gradient)


def _floor(task: Problem, rate: float, local_steps: int, steps: int, seed: int) -> Floor:
    path = theorem2.local_sgd(
        task,
        theorem2.EVERYTHING,
        lambda t: rate,
        steps=steps,
        local_steps=local_steps,
        seed=seed,
        at_rounds=range(1, steps + 1),
    )
    return Floor(rate, local_steps, path.settled(), *theorem2.constant_rate(task, rate, local_steps))
