"""The record of a round: the scores of what clients are given after it, and its line in the log."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fedsac.compute.evaluation import PendingScores
from fedsac.config import FORMAT_VERSION
from fedsac.methods.base import Updates
from fedsac.runs.labels import judged
from fedsac.runs.running import Running


@dataclass(frozen=True)
class RoundScores:
    """Scores after a round: of every client's model (its reward) on the test set and on V, and of the common model on
    the test set; and the log-losses on the test set, None where one is not finite."""

    test: list[float]
    validation: list[float]
    common: float | None
    test_losses: list[float | None]
    common_loss: float | None


def evaluate(runs: Sequence[Running], models: Sequence[Tensor]) -> list[RoundScores]:
    """The scores of each run, whose clients end with `models` [N or 1, parameters]."""
    # Queued for all runs before the first result is waited for, so that a GPU is never idle.
    pending = [_begin(run, own) for run, own in zip(runs, models, strict=True)]
    return [_scored(*each) for each in pending]


def _scored(test: PendingScores, validation: PendingScores, common: PendingScores | None) -> RoundScores:
    scores, losses = test.wait()
    model, loss = (None, None) if common is None else common.wait()
    return RoundScores(
        test=scores.tolist(),
        validation=validation.wait()[0].tolist(),
        common=None if model is None else float(model),
        test_losses=list(map(_finite, losses.tolist())),
        common_loss=None if loss is None else _finite(float(loss)),
    )


def _finite(loss: float) -> float | None:
    return loss if math.isfinite(loss) else None


def _begin(run: Running, models: Tensor) -> tuple[PendingScores, PendingScores, PendingScores | None]:
    """Start computing the scores of one run: of its clients' models on the test set and on V, and of the common
    model."""
    layout, test, metric = run.prepared.layout, run.prepared.test, run.task.metric
    whole = len(models) > 1 and all(submodel == layout.shape for submodel in run.reward_submodels)
    neurons = None if whole else run.reward.neurons
    model = run.method.common_model(run.state)
    common = None if model is None else PendingScores(layout, model.unsqueeze(0), None, test, metric=metric)
    on_validation = PendingScores(layout, models, neurons, run.prepared.validation, metric=metric)
    return PendingScores(layout, models, neurons, test, metric=metric), on_validation, common


def record(run: Running, sent: Sequence[int], updates: Updates, scores: RoundScores | None) -> dict[str, Any]:
    """What the log says of a round: who answered, what crossed the network, what everybody is given now. `sent` are the
    parameters of what each client had been given."""
    assert run.contributions is not None
    names, bytes_each = run.task.clients, run.prepared.initial.element_size()
    counted = {"down": bytes_each * sum(sent), "up": bytes_each * sum(sent[i] for i in updates.clients)}
    reputations = run.assignment.reputations
    return {
        "format_version": FORMAT_VERSION,
        "round": run.round,
        "answered": [names[i] for i in updates.clients],
        "diverged": [names[i] for i in updates.diverged],
        "losses": list(map(_finite, updates.losses)),
        "bytes": counted if updates.traffic is None else updates.traffic,
        "neurons": [submodel.neurons for submodel in run.reward_submodels],
        "parameters": [submodel.parameters for submodel in run.reward_submodels],
        "reputations": None if reputations is None else list(reputations),
        "rewards": None if scores is None else scores.test,
        "rewards_validation": None if scores is None else scores.validation,
        "global_accuracy": None if scores is None else scores.common,
        "log_losses": None if scores is None else scores.test_losses,
        "global_log_loss": None if scores is None else scores.common_loss,
        **judged(run.contributions, run.prepared.config.contribution_on, None if scores is None else scores.test),
        **updates.remarks,
    }
