"""What a client brings: the accuracy of a model it trains alone (Definition 1)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from fedsac.clients.training import Clients, Job, train
from fedsac.compute import evaluation, training
from fedsac.errors import FedsacError


@dataclass(frozen=True)
class Contributions:
    """One accuracy per client, measured on the validation set and on the test set; `diverged` clients count as 0.

    `deciding`: where another measure than standing alone decides reputations, its values as it found them.
    """

    validation: tuple[float, ...]
    test: tuple[float, ...]
    diverged: tuple[str, ...] = ()
    deciding: tuple[float, ...] | None = None

    def given(self, on: str) -> tuple[float, ...]:
        """What a method gets as c: the accuracies `on` validation or test, or the deciding values put in [0, 1]."""
        if self.deciding is not None:
            return in_unit_range(self.deciding)
        return self.test if on == "test" else self.validation


def in_unit_range(values: Sequence[float]) -> tuple[float, ...]:
    """Values of either sign as methods can take them (some divide by their sum): max(0, v_i) / max_k v_k.

    Whoever harms counts like someone who brings nothing; ratios between the others stay; the best has 1. Where nobody
    brings anything, all have 1.

    >>> in_unit_range([.25, -.5, .125])
    (1.0, 0.0, 0.5)
    >>> in_unit_range([0., -.5])
    (1.0, 1.0)
    """
    best = max(values)
    return tuple(max(0.0, v) / best if best > 0 else 1.0 for v in values)


@dataclass(frozen=True)
class Alone:
    """The standalone training of one run's clients: from the common initial weights, for `steps`."""

    clients: Clients
    initial: torch.Tensor
    steps: int
    validation: training.Samples
    test: training.Samples


def standalone(runs: Sequence[Alone], step_done: Callable[[int], None] = lambda steps: None) -> list[Contributions]:
    """The contributions of every run's clients; all runs train side by side.

    `step_done` is called with the number of steps done so far by the longest run.
    """
    return [_score(run, final) for run, final in zip(runs, trained_alone(runs, step_done), strict=True)]


def trained_alone(runs: Sequence[Alone], step_done: Callable[[int], None] = lambda steps: None) -> list[torch.Tensor]:
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


def _score(run: Alone, models: torch.Tensor) -> Contributions:
    finite = models.isfinite().all(1)
    if not finite.any():
        raise FedsacError(f"every client's standalone training diverged at lr {run.clients.lr:g}; lower --lr")
    diverged = tuple(name for name, ok in zip(run.clients.names, finite.tolist(), strict=True) if not ok)
    scores = []
    for samples in (run.validation, run.test):
        accuracy, _ = evaluation.evaluate(run.clients.layout, models, None, samples)
        scores.append(tuple(torch.where(finite.cpu(), accuracy, 0).tolist()))
    return Contributions(scores[0], scores[1], diverged)
