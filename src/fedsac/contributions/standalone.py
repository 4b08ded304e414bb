"""The standalone contribution: the score of the model that a client trains alone (Definition 1)."""

from collections.abc import Callable, Sequence

import torch

from fedsac.clients.training import Job, train
from fedsac.compute import evaluation
from fedsac.contributions.base import Contributions
from fedsac.contributions.measurement import Measurement
from fedsac.errors import FedsacError


def standalone(
    runs: Sequence[Measurement], step_done: Callable[[int], None] = lambda steps: None
) -> list[Contributions]:
    """The contributions of every run's clients; all runs train at the same time.

    `step_done` is called with the number of steps done so far by the longest run.
    """
    return [_score(run, final) for run, final in zip(runs, trained_alone(runs, step_done), strict=True)]


def trained_alone(
    runs: Sequence[Measurement], step_done: Callable[[int], None] = lambda steps: None
) -> list[torch.Tensor]:
    """The models [N, parameters] that every run's clients end with when they train alone."""
    models = [run.initial.expand(len(run.clients.names), -1) for run in runs]
    done, longest = [0] * len(runs), max(run.steps for run in runs)
    while max(done) < longest:
        # As many steps at a time as a round has, to report progress; with a new shuffle each, as in a run.
        unfinished = [i for i, run in enumerate(runs) if done[i] < run.steps]
        steps = [min(runs[i].clients.local_steps, runs[i].steps - done[i]) for i in unfinished]
        jobs = [
            Job(runs[i].clients, models[i], None, (n,) * len(models[i]), "standalone", done[i])
            for i, n in zip(unfinished, steps, strict=True)
        ]
        for i, n, trained in zip(unfinished, steps, train(jobs), strict=True):
            models[i] = trained.models
            done[i] += n
        step_done(max(done))
    return models


def _score(run: Measurement, models: torch.Tensor) -> Contributions:
    """The scores of standalone models [N, parameters]."""
    finite = models.isfinite().all(1)
    if not finite.any():
        raise FedsacError(f"every client's standalone training diverged at lr {run.clients.lr:g}; lower --lr")
    diverged = tuple(name for name, ok in zip(run.clients.names, finite.tolist(), strict=True) if not ok)
    if diverged:  # their scores are set to 0 below; any finite model may be evaluated in their place
        models = torch.where(finite.unsqueeze(1), models, run.initial)
    scores = []
    for samples in (run.validation, run.test):
        scores_on, _ = evaluation.evaluate(run.clients.layout, models, None, samples, metric=run.metric)
        scores.append(tuple(torch.where(finite.cpu(), scores_on, 0).tolist()))
    return Contributions(scores[0], scores[1], diverged)
