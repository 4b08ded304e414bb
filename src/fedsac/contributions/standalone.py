"""What a client brings: the score of a model it trains alone (Definition 1)."""

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
    """The contributions of every run's clients; all runs train side by side.

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
        # In pieces of a round, so that progress shows; a fresh shuffle each, as in the federation.
        at_work = [i for i, run in enumerate(runs) if done[i] < run.steps]
        steps = [min(runs[i].clients.local_steps, runs[i].steps - done[i]) for i in at_work]
        jobs = [
            Job(runs[i].clients, models[i], None, (n,) * len(models[i]), "standalone", done[i])
            for i, n in zip(at_work, steps, strict=True)
        ]
        for i, n, trained in zip(at_work, steps, train(jobs), strict=True):
            models[i] = trained.models
            done[i] += n
        step_done(max(done))
    return models


def _score(run: Measurement, models: torch.Tensor) -> Contributions:
    finite = models.isfinite().all(1)
    if not finite.any():
        raise FedsacError(f"every client's standalone training diverged at lr {run.clients.lr:g}; lower --lr")
    diverged = tuple(name for name, ok in zip(run.clients.names, finite.tolist(), strict=True) if not ok)
    if diverged:  # they count as 0: what stands in their place only has to be a model
        models = torch.where(finite.unsqueeze(1), models, run.initial)
    scores = []
    for samples in (run.validation, run.test):
        found, _ = evaluation.evaluate(run.clients.layout, models, None, samples, metric=run.metric)
        scores.append(tuple(torch.where(finite.cpu(), found, 0).tolist()))
    return Contributions(scores[0], scores[1], diverged)
