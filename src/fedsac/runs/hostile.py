"""What hostile clients do in a run of the local engine: where contributions are measured, when they rejoin, and what
they end with."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fedsac.attacks.base import End, Holding, Standing
from fedsac.clients.behaviour import of_client
from fedsac.compute import evaluation
from fedsac.compute.samples import Samples
from fedsac.contributions.base import Contributions
from fedsac.contributions.measurement import Measurement
from fedsac.contributions.standalone import handed_in
from fedsac.core.metrics import Metric, accuracy
from fedsac.methods.base import Method
from fedsac.runs.hardening import admitted
from fedsac.runs.prepared import Prepared
from fedsac.runs.running import Running

REJOINED = "rejoined"  # in a client's memory: after how many rounds


def contributions(prepared: Prepared, run: Measurement, alone: Contributions, models: Tensor) -> Contributions:
    """The contributions with what hostile clients hand in for the models [N, parameters] that were trained alone. What
    they claim counts only before a server that believes it."""
    attack, hostile = prepared.attack, prepared.hostile
    assert attack is not None
    standing = Standing(run.clients, hostile, run.initial, models)
    submitted = {i: attack.submit(standing, i) for i in hostile}
    changed = {i: model.to(models) for i, model in submitted.items() if not torch.equal(model, models[i])}
    measured = handed_in(run, alone, changed)
    claim = attack.claims()
    if not attack.believed or claim is None:
        return measured
    return replace(measured, validation=tuple(claim if i in hostile else v for i, v in enumerate(measured.validation)))


def rejoins_now(run: Running) -> bool:
    """Whether the run's hostile clients leave and rejoin now: after half of the rounds, once."""
    attack = run.prepared.attack
    if attack is None or not attack.rejoins or run.over or run.round != max(1, run.prepared.config.rounds // 2):
        return False
    return f"{run.task.clients[run.prepared.hostile[0]]}/{REJOINED}" not in run.memory


def rejoin(run: Running, measurement: Measurement, rewards: Tensor) -> None:
    """Hostile clients leave, and come back with other models as trained alone, which are scored as at the beginning.
    The method goes on as in a federation when somebody joins."""
    attack = run.prepared.attack
    assert attack is not None and run.contributions is not None and run.members is not None
    end, common = _end(run, rewards), run.method.common_model(run.state)
    models = {i: attack.resubmit(end, common, i) for i in end.hostile}
    names = [run.task.clients[i] for i in end.hostile]
    run.memory = run.memory | {f"{name}/{REJOINED}": run.round for name in names}
    admitted(run, dict(zip(names, models.values(), strict=True)))
    run.change_members(handed_in(measurement, run.contributions, models), run.members)


def outcome(run: Running, rewards: Tensor) -> dict[str, Any]:
    """Who was hostile, and what came of it: the scores on test data of what they `kept` (None: what they were paid),
    for each client the share of the probe with which the attack succeeds, whether
    anything is there that could find them out, and whom the method has removed."""
    prepared, attack = run.prepared, run.prepared.attack
    assert attack is not None
    end = _end(run, rewards)
    kept, probe = attack.keep(end), prepared.probe
    everybody = [end.reward(i) for i in range(len(end.models))]

    def scores(of: Sequence[Holding] | None, on: Samples | None, metric: Metric = accuracy) -> list[float] | None:
        if of is None or on is None:
            return None
        models, neurons = (torch.stack([getattr(one, part) for one in of]) for part in ("model", "neurons"))
        values: list[float] = evaluation.evaluate(prepared.layout, models, neurons, on, metric=metric)[0].tolist()
        return values

    return {
        "name": prepared.config.attack,
        "attackers": [run.task.clients[i] for i in prepared.hostile],
        "one_party": attack.one_party,
        "kept": scores(kept, prepared.test, prepared.metric),
        "success": scores(everybody, probe),
        "defended": prepared.config.refuse is not None
        or prepared.config.hardened is not None
        or type(run.method).removed is not Method.removed,
        "removed": [run.task.clients[i] for i in run.method.removed(run.state)],
    }


def _end(run: Running, rewards: Tensor) -> End:
    """How things stand, from the rewards [N or 1, parameters] as whole models."""
    prepared, neurons = run.prepared, run.reward.neurons
    held = prepared.layout.held(neurons)
    models = torch.where(held, rewards, 0)
    memories = {i: of_client(run.memory, run.task.clients[i]) for i in prepared.hostile}
    return End(prepared.clients, prepared.hostile, prepared.initial, models, neurons, memories)
