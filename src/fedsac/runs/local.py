"""The local engine: all clients on this machine, those of many runs in shared stacks."""

from collections.abc import Sequence

from torch import Tensor

from fedsac.attacks.base import Standing
from fedsac.attacks.conduct import HostileConduct
from fedsac.clients.behaviour import Conduct
from fedsac.clients.rounds import Absent, LocalRound, personalised
from fedsac.clients.rounds import Conduct as AnyConduct
from fedsac.contributions.base import Contributions
from fedsac.contributions.measurement import Measurement, decided, is_measured
from fedsac.contributions.standalone import standalone
from fedsac.runs import hostile
from fedsac.runs.hardening import Screened, admitted
from fedsac.runs.running import Running
from fedsac.runs.watcher import Watcher


class LocalEngine:
    """Clients that train on this machine. `absent` says who drops out of which round."""

    def __init__(self, watcher: Watcher, absent: Absent) -> None:
        self._watcher, self._absent = watcher, absent

    def gather(self, runs: Sequence[Running]) -> list[Running]:
        """Measure contributions of runs that are new. Clients neither come nor go, but for hostile ones that leave to
        rejoin."""
        waiting = [run for run in runs if not run.begun]
        new = [run for run in waiting if run.contributions is None]
        measured = self._measured(new) if new else {}
        for run in waiting:
            run.begin(measured[run] if run.contributions is None else run.contributions)
        rejoined = [run for run in runs if hostile.rejoins_now(run)]
        for run in rejoined:
            hostile.rejoin(run, _measurement(run), self.reward_models([run])[0])
        return list(dict.fromkeys([*new, *rejoined]))

    def train(self, runs: Sequence[Running]) -> LocalRound | Screened:
        conducts = [_conduct(run) for run in runs]
        work = [(run.prepared.clients, run.assignment, run.round) for run in runs]
        training = LocalRound(work, self._absent, conducts)
        return Screened(training, runs) if any(run.prepared.config.refuse for run in runs) else training

    def reward_models(self, runs: Sequence[Running]) -> list[Tensor]:
        return personalised([(run.prepared.clients, run.reward, run.round) for run in runs])

    def _measured(self, runs: Sequence[Running]) -> dict[Running, Contributions]:
        """The contributions of each run. Runs that differ only in their method have the same clients, who stand alone
        only once."""
        distinct = {_standalone_key(run): run for run in runs}
        measurements = {key: _measurement(run) for key, run in distinct.items()}
        longest = max(m.steps for m in measurements.values())
        keys = list(measurements)
        # Models are kept only where hostile clients may hand in others, or where they are compared.
        wanted = {_standalone_key(run) for run in runs if _looks_at_models(run)}
        models: dict[tuple[object, ...], Tensor] = {}

        def trained(i: int, final: Tensor) -> None:
            if keys[i] in wanted:
                models[keys[i]] = final

        alone = standalone(list(measurements.values()), lambda step: self._watcher.alone(step, longest), trained)
        for name in dict.fromkeys(name for each in alone for name in each.diverged):
            self._watcher.note(f"{name} diverged while training alone: its contribution counts as 0")
        by_clients = dict(zip(measurements, alone, strict=True))
        by_measure: dict[tuple[object, ...], Contributions] = {}
        for run in runs:
            key = _contribution_key(run)
            if key not in by_measure:
                config = run.prepared.config
                if is_measured(config):
                    self._watcher.note(f"measuring contributions: {config.contribution}")
                at = _standalone_key(run)
                own = by_clients[at]
                if run.prepared.attack is not None:
                    own = hostile.contributions(run.prepared, measurements[at], own, models[at])
                by_measure[key] = decided(config, measurements[at], own)
            self._admit(run, measurements[_standalone_key(run)], models.get(_standalone_key(run)))
        return {run: by_measure[_contribution_key(run)] for run in runs}

    def _admit(self, run: Running, measurement: Measurement, models: Tensor | None) -> None:
        """Compare the models [N, parameters] that clients hand in, hostile ones others than they have trained."""
        if models is None or not run.prepared.config.defends("originals"):
            return
        standing = Standing(measurement.clients, run.prepared.hostile, measurement.initial, models)
        attack = run.prepared.attack
        handed_in = {
            name: attack.submit(standing, i) if attack is not None and i in run.prepared.hostile else models[i]
            for i, name in enumerate(measurement.clients.names)
        }
        for name, reason in admitted(run, handed_in).items():
            self._watcher.note(f"{name} counts as nothing: {reason}")


def _looks_at_models(run: Running) -> bool:
    return run.prepared.attack is not None or run.prepared.config.defends("originals")


def _conduct(run: Running) -> AnyConduct | None:
    """What the run's clients do besides training honestly, if anything."""
    config, attack = run.prepared.config, run.prepared.attack
    if attack is not None:
        return HostileConduct(str(config.attack), attack, run.prepared.hostile, run.memory)
    return None if config.behaviour is None else Conduct(config.behaviour, run.memory)


def _standalone_key(run: Running) -> tuple[object, ...]:
    """What standalone training depends on: runs alike in it share it."""
    config = run.prepared.config
    return id(run.prepared.clients), config.alone(), config.metric, config.standalone_checkpoints


def _contribution_key(run: Running) -> tuple[object, ...]:
    """What contributions depend on."""
    config = run.prepared.config
    measured = config.contribution, config.contribution_on, config.contributions
    return *_standalone_key(run), *measured, config.attack, config.attackers


def _measurement(run: Running) -> Measurement:
    p = run.prepared
    checkpoints = p.config.standalone_checkpoints
    return Measurement(p.clients, p.initial, p.config.alone(), p.validation, p.test, p.metric, checkpoints)
