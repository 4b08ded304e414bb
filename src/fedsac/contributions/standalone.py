"""The standalone contribution: the score of the model that a client trains alone (Definition 1)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from fedsac.clients.training import Job, train
from fedsac.compute import evaluation
from fedsac.compute.samples import Samples
from fedsac.compute.uncertainty import standard_errors
from fedsac.contributions.base import Contributions
from fedsac.contributions.measurement import Measurement
from fedsac.core.metrics import Metric
from fedsac.core.module_layout import AnyLayout
from fedsac.errors import FedsacError
from fedsac.rng import stream


def standalone(
    runs: Sequence[Measurement],
    step_done: Callable[[int], None] = lambda steps: None,
    trained: Callable[[int, torch.Tensor], None] = lambda run, models: None,
) -> list[Contributions]:
    """The contributions of every run's clients; all runs train at the same time. With several checkpoints, a client's
    contribution is the mean of their scores.

    `step_done` is called with the number of steps done so far by the longest run, `trained` at the end with the number
    of a run and the models [N, parameters] that its clients hand in.
    """
    scores: list[list[_Scores]] = [[] for _ in runs]
    models = [run.initial for run in runs]
    for part in training_alone(runs):
        for alone in part:
            run = runs[alone.run]
            if alone.steps in run.checkpoint_steps:
                scores[alone.run].append(_score(run, alone.models))
            models[alone.run] = alone.models
        step_done(max(alone.steps for alone in part))
    for i, final in enumerate(models):
        trained(i, final)
    return [_contributions(run, final, own) for run, final, own in zip(runs, models, scores, strict=True)]


def handed_in(run: Measurement, alone: Contributions, models: Mapping[int, torch.Tensor]) -> Contributions:
    """The contributions where some clients (by index) hand in other models [parameters] than they have trained: these
    are scored in their place."""
    if not models:
        return alone
    who = list(models)
    stack, finite = _finite(run, torch.stack([models[i] for i in who]))
    scores = _score(run, stack)
    errors = errors_on_validation(
        run.clients.layout, stack, run.validation, scores.validation, run.metric, run.clients.seed
    )

    def replaced(before: Sequence[float], now: torch.Tensor) -> tuple[float, ...]:
        new = dict(zip(who, torch.where(finite, now, 0).tolist(), strict=True))
        return tuple(new.get(i, value) for i, value in enumerate(before))

    bad = {run.clients.names[i] for i, ok in zip(who, finite.tolist(), strict=True) if not ok}
    others = set(alone.diverged) - {run.clients.names[i] for i in who}
    return replace(
        alone,
        validation=replaced(alone.validation, scores.validation),
        test=replaced(alone.test, scores.test),
        diverged=tuple(name for name in run.clients.names if name in bad | others),
        error=None if alone.error is None or errors is None else replaced(alone.error, errors),
    )


def trained_alone(runs: Sequence[Measurement]) -> list[torch.Tensor]:
    """The models [N, parameters] that every run's clients end with when they train alone."""
    models = [run.initial for run in runs]
    for part in training_alone(runs):
        for trained in part:
            models[trained.run] = trained.models
    return models


@dataclass(frozen=True)
class TrainedAlone:
    """The models [N, parameters] of the clients of the `run`-th run after so many steps of standalone training."""

    run: int
    steps: int
    models: torch.Tensor


def training_alone(runs: Sequence[Measurement]) -> Iterator[list[TrainedAlone]]:
    """Train every run's clients alone, and yield the unfinished runs' models after every part: as many steps at a time
    as a round has, with a new shuffle each, as in a run."""
    models = [run.initial.expand(len(run.clients.names), -1) for run in runs]
    done = [0] * len(runs)
    while unfinished := [i for i, run in enumerate(runs) if done[i] < run.steps]:
        steps = [min(runs[i].clients.local_steps, runs[i].steps - done[i]) for i in unfinished]
        jobs = [
            Job(runs[i].clients, models[i], None, (n,) * len(models[i]), "standalone", done[i], done[i] / runs[i].steps)
            for i, n in zip(unfinished, steps, strict=True)
        ]
        for i, n, trained in zip(unfinished, steps, train(jobs), strict=True):
            models[i] = trained.models
            done[i] += n
        yield [TrainedAlone(i, done[i], models[i]) for i in unfinished]


@dataclass(frozen=True)
class _Scores:
    """The scores of models on V and on the test set, float64 [N] each."""

    validation: torch.Tensor
    test: torch.Tensor


def _score(run: Measurement, models: torch.Tensor) -> _Scores:
    models, _ = _finite(run, models)
    both = (run.validation, run.test)
    return _Scores(*(evaluation.evaluate(run.clients.layout, models, None, on, metric=run.metric)[0] for on in both))


def _finite(run: Measurement, models: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Models that can be evaluated, and which of them have not diverged [N], on the CPU: any finite model may take the
    place of one that has, for its score counts as 0."""
    finite = models.isfinite().all(1)
    if not finite.all():
        models = torch.where(finite.unsqueeze(1), models, run.initial)
    return models, finite.cpu()


def _contributions(run: Measurement, final: torch.Tensor, scores: Sequence[_Scores]) -> Contributions:
    """Contributions from the scores of the checkpoints, the last of which is the `final` models [N, parameters]: what
    has diverged before has diverged at the end."""
    models, finite = _finite(run, final)
    if not finite.any():
        raise FedsacError(f"every client's standalone training diverged at lr {run.clients.lr:g}; lower --lr")
    diverged = tuple(name for name, ok in zip(run.clients.names, finite.tolist(), strict=True) if not ok)

    def kept(values: torch.Tensor) -> tuple[float, ...]:
        return tuple(torch.where(finite, values, 0).tolist())

    validation = torch.stack([each.validation for each in scores]).mean(0)
    test = torch.stack([each.test for each in scores]).mean(0)
    errors = errors_on_validation(run.clients.layout, models, run.validation, validation, run.metric, run.clients.seed)
    return Contributions(kept(validation), kept(test), diverged, error=None if errors is None else kept(errors))


def errors_on_validation(
    layout: AnyLayout, models: torch.Tensor, validation: Samples, scores: torch.Tensor, metric: Metric, seed: int
) -> torch.Tensor | None:
    """The standard errors [N] of scores [N] on V, float64 on the CPU; None where the metric is not defined on parts of
    V, as a user's own may be.

    The mean score of several checkpoints is treated as that of one model. Its error is smaller than that, if anything:
    checkpoints of one training are mostly wrong on the same samples.
    """
    try:
        return standard_errors(layout, models, validation, scores, metric=metric, rng=stream(seed, "standard error"))
    except (FedsacError, ArithmeticError, ValueError):
        return None
