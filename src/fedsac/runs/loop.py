"""The round loop: from a config to a result. Read `play` first."""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fedsac import contributions
from fedsac.clients.training import Absent, Round, fitting, personalised
from fedsac.compute import evaluation
from fedsac.compute.cuda import precision
from fedsac.config import FORMAT_VERSION, Config
from fedsac.contributions.standalone import Alone, Contributions, standalone
from fedsac.data.split import Split
from fedsac.errors import FedsacError
from fedsac.methods.base import Updates
from fedsac.models.files import serialised_bytes
from fedsac.models.network import Network
from fedsac.models.submodels import extract
from fedsac.runs.folder import Folder
from fedsac.runs.result import Result, judged
from fedsac.runs.running import Clock, Commits, Running
from fedsac.runs.setup import Prepared, prepare


class Watcher:
    """Told what happens as it happens; this one says nothing."""

    def alone(self, step: int, steps: int) -> None:
        """Standalone training has come this far."""

    def round(self, record: dict[str, Any], rounds: int) -> None:
        """A round is over and committed."""

    def note(self, text: str) -> None:
        """Something worth a line: a client that was set aside, a damaged checkpoint that was passed over."""


def nobody(round: int, name: str) -> bool:
    """Nobody drops out."""
    return False


def play(
    runs: Sequence[Running], watcher: Watcher, absent: Absent = nobody, *, every_round: bool = True
) -> list[Result]:
    """Contributions, then rounds until every run has had all of its own: Algorithm 1 for any method.

    Commits are made after every round or, where many runs write a lot, as often as they cost little.
    """
    if len({run.prepared.config.precision for run in runs}) > 1:
        raise FedsacError("runs side by side share one precision; run those with another apart")
    with _machine(runs[0].prepared.config):
        commits = Commits(runs, Clock(runs), every_round)
        _measure_contributions(runs, watcher, commits)
        try:
            _play_rounds(runs, watcher, absent, commits)
        except KeyboardInterrupt:
            commits.now()
            raise
        return [_finish(run, commits.clock) for run in runs]


def _play_rounds(runs: Sequence[Running], watcher: Watcher, absent: Absent, commits: Commits) -> None:
    """Rounds, as many runs side by side as memory holds. On a GPU two parts are under way: while the clients of one
    train, the server's step of the other is taken."""
    initial = runs[0].prepared.initial
    begun = [run for run in runs if not run.over]
    numbers = fitting([run.prepared.clients for run in begun], initial.element_size(), initial.device)
    ready = deque([begun[i] for i in part] for part in numbers)
    under_way: deque[tuple[list[Running], Round]] = deque()
    while ready or under_way:
        if ready and len(under_way) < (2 if initial.is_cuda else 1):
            part = ready.popleft()
            work = [(run.prepared.clients, run.rewards, run.round) for run in part]
            under_way.append((part, Round(work, absent)))
            continue
        part, trained = under_way.popleft()
        _end_round(part, trained.updates(), watcher)
        commits.after_round()
        if left := [run for run in part if not run.over]:
            ready.append(left)


def _end_round(runs: Sequence[Running], answers: Sequence[Updates], watcher: Watcher) -> None:
    """The server's step of each run, and what everybody holds after it."""
    sent = [[submodel.parameters for submodel in run.held] for run in runs]
    for run, updates in zip(runs, answers, strict=True):
        run.state = run.method.learn(run.task, run.state, updates)
    for run in runs:  # only now: a GPU, told what to do for all of them, is waited for once
        run.earn()
        run.round += 1
    scores = _evaluated([run for run in runs if run.round % run.prepared.config.eval_every == 0 or run.over])
    for run, updates, sizes in zip(runs, answers, sent, strict=True):
        run.records.append(_record(run, sizes, updates, scores.get(id(run))))
        run.settled = run.round, run.state
        for i in updates.diverged:
            watcher.note(f"round {run.round}: {run.task.clients[i]} diverged (NaN or infinity) and was set aside")
        watcher.round(run.records[-1], run.prepared.config.rounds)


def _measure_contributions(runs: Sequence[Running], watcher: Watcher, commits: Commits) -> None:
    # Runs that differ only in their method have the same clients, who stand alone only once.
    new_runs = [run for run in runs if run.contributions is None]
    new = {(id(run.prepared.clients), run.prepared.config.alone()): run for run in new_runs}
    alone = [
        Alone(p.clients, p.initial, p.config.alone(), p.validation, p.test)
        for p in (run.prepared for run in new.values())
    ]
    longest = max((a.steps for a in alone), default=0)
    measured = standalone(alone, lambda step: watcher.alone(step, longest)) if alone else []
    for each in measured:
        for name in each.diverged:
            watcher.note(f"{name} diverged while training alone: its contribution counts as 0")
    found = dict(zip(new, zip(alone, measured, strict=True), strict=True))
    decided: dict[tuple[object, ...], Contributions] = {}
    for run in runs:
        if run.contributions is None:
            config, clients = run.prepared.config, (id(run.prepared.clients), run.prepared.config.alone())
            how = (config.contribution, config.contribution_on)
            if (clients, how) not in decided:
                if config.contribution != contributions.STANDALONE:
                    watcher.note(f"measuring contributions: {config.contribution}")
                decided[clients, how] = contributions.decided(*how, *found[clients])
            run.begin(decided[clients, how])
        else:
            run.begin(run.contributions)
    commits.first(new_runs)


@dataclass(frozen=True)
class _Scores:
    """Accuracies after a round: of every client's reward on the test set and on V, and of the common model."""

    test: list[float]
    validation: list[float]
    common: float | None


def _evaluated(runs: Sequence[Running]) -> dict[int, _Scores]:
    """The scores of each run, by its id."""
    models = personalised([(run.prepared.clients, run.rewards, run.round) for run in runs])
    # All runs' are begun before the first is waited for.
    begun = [_begun(run, rewards) for run, rewards in zip(runs, models, strict=True)]
    found = {}
    for run, (test, validation, common) in zip(runs, begun, strict=True):
        found[id(run)] = _Scores(
            test=test.done()[0].tolist(),
            validation=validation.done()[0].tolist(),
            common=None if common is None else float(common.done()[0]),
        )
    return found


def _begun(
    run: Running, rewards: torch.Tensor
) -> tuple[evaluation.Scores, evaluation.Scores, evaluation.Scores | None]:
    """The scores of one run under way: its rewards' on the test set and on V, and the common model's."""
    layout, test = run.prepared.layout, run.prepared.test
    whole = len(rewards) > 1 and all(submodel == layout for submodel in run.held)
    neurons = None if whole else run.rewards.neurons
    common = evaluation.Scores(layout, run.state["model"].unsqueeze(0), None, test) if "model" in run.state else None
    on_validation = evaluation.Scores(layout, rewards, neurons, run.prepared.validation)
    return evaluation.Scores(layout, rewards, neurons, test), on_validation, common


def _record(run: Running, sent: list[int], updates: Updates, scores: _Scores | None) -> dict[str, Any]:
    """What the log says of a round: who answered, what crossed the network, what everybody holds now."""
    assert run.contributions is not None
    weight = run.prepared.initial.element_size()
    return {
        "format_version": FORMAT_VERSION,
        "round": run.round,
        "answered": [run.task.clients[i] for i in updates.clients],
        "diverged": [run.task.clients[i] for i in updates.diverged],
        "losses": [loss if loss == loss and abs(loss) != float("inf") else None for loss in updates.losses],
        "bytes": {"down": weight * sum(sent), "up": weight * sum(sent[i] for i in updates.clients)},
        "neurons": [submodel.neurons for submodel in run.held],
        "parameters": [submodel.parameters for submodel in run.held],
        "rewards": None if scores is None else scores.test,
        "rewards_validation": None if scores is None else scores.validation,
        "global_accuracy": None if scores is None else scores.common,
        **judged(run.contributions, None if scores is None else scores.test),
    }


def _finish(run: Running, clock: Clock) -> Result:
    assert run.contributions is not None
    layout, rewards = run.prepared.layout, run.rewards
    kept: tuple[Network, ...] = ()
    if run.keep_models:
        models = personalised([(run.prepared.clients, rewards, run.round)])[0].cpu()
        kept = tuple(
            extract(Network(layout, models[i if len(models) > 1 else 0]), mask)
            for i, mask in enumerate(rewards.neurons.cpu())
        )
    common = Network(layout, run.state["model"].cpu()) if run.keep_models and "model" in run.state else None
    weight = run.prepared.initial.element_size()
    result = Result(
        config=run.prepared.config,
        clients=run.task.clients,
        samples=run.task.samples,
        contributions=run.contributions,
        records=tuple(run.records),
        reputations=rewards.reputations,
        layout=layout,
        global_model=common,
        reward_models=kept,
        reward_bytes={
            "counted": weight * sum(submodel.parameters for submodel in run.held),
            "serialised": sum(serialised_bytes(submodel, run.prepared.initial.dtype) for submodel in run.held),
        },
        seconds=clock.seconds(run),
        folder=None if run.folder is None else run.folder.path,
        reported_on="validation" if run.prepared.split.test_is_validation else "test",
    )
    if run.folder is not None:
        if run.committed < run.round:
            run.folder.log(run.records[run.committed :])
        run.folder.finish(result, run.prepared.split, keep_models=run.keep_models)
    return result


@contextmanager
def _machine(config: Config) -> Iterator[None]:
    """Threads and precision as the config has them, and afterwards as they were."""
    threads = torch.get_num_threads()
    torch.set_num_threads(config.threads or threads)
    try:
        with precision.using(config.precision or "float32", torch.device(config.device)):
            yield
    finally:
        torch.set_num_threads(threads)


def run_together(
    configs: Sequence[Config],
    outs: Sequence[Path | None] | None = None,
    watcher: Watcher | None = None,
    *,
    overwrite: bool = False,
    splits: Sequence[Split] | None = None,
    absent: Absent = nobody,
    every_round: bool = True,
) -> list[Result]:
    """Carry out several runs side by side, all their clients in shared stacks. What one run finds does not depend, but
    for rounding, on the others. `splits` replace what the configs would deal out; `absent` says who drops out;
    without `every_round`, commits are made only as often as they cost little."""
    places = outs or [None] * len(configs)
    for place in places:
        if place is not None:
            Folder.refuse(place, overwrite=overwrite)  # before minutes go into reading data
    for config in configs:
        contributions.named(config.contribution)
    prepared = prepare(configs, splits)
    with ExitStack() as open_folders:
        folders = [
            None if place is None else open_folders.enter_context(Folder.create(place, p.config, overwrite=overwrite))
            for p, place in zip(prepared, places, strict=True)
        ]
        runs = [Running(p, folder) for p, folder in zip(prepared, folders, strict=True)]
        return play(runs, watcher or Watcher(), absent, every_round=every_round)


def run(
    config: Config, out: Path | str | None = None, *, overwrite: bool = False, watcher: Watcher | None = None
) -> Result:
    """Carry out one run; with `out`, in that folder, where `resume` can take it up again.

    >>> result = run(Config(rounds=2, clients=3, hidden=(16,)))
    >>> len(result.rewards), sorted(result.results)
    (3, ['best', 'last', 'selected'])
    """
    return run_together([config], [None if out is None else Path(out)], watcher, overwrite=overwrite)[0]


def resume(path: Path | str, *, watcher: Watcher | None = None) -> Result:
    """Take up a run where its last commit left it; it ends with the bytes of an uninterrupted run."""
    return resume_together([Path(path)], watcher)[0]


def resume_together(
    paths: Sequence[Path], watcher: Watcher | None = None, *, every_round: bool = True, keep_models: bool = True
) -> list[Result]:
    """Take up several runs side by side, each where its own last commit left it. Without `keep_models`, a finished
    run's folder keeps the numbers alone."""
    watcher = watcher or Watcher()
    with ExitStack() as open_folders:
        folders = [open_folders.enter_context(Folder.open(path)) for path in paths]
        prepared = prepare([folder.config for folder in folders])
        runs = [_taken_up(p, folder, watcher, keep_models) for p, folder in zip(prepared, folders, strict=True)]
        return play(runs, watcher, every_round=every_round)


def _taken_up(prepared: Prepared, folder: Folder, watcher: Watcher, keep_models: bool) -> Running:
    running = Running(prepared, folder, keep_models=keep_models)
    found = folder.latest(watcher.note)
    if found is not None:
        checkpoint, records = found
        if checkpoint.fingerprint != prepared.fingerprint:
            raise FedsacError(
                f"{folder.path}: the data or the settings are not what this run began with; bring them back, or start "
                "a new run"
            )
        running.contributions = checkpoint.contributions
        device = prepared.initial.device
        running.state = {
            name: value.to(device) if isinstance(value, torch.Tensor) else value
            for name, value in checkpoint.state.items()
        }
        running.round, running.records, running.committed = checkpoint.round, records, len(records)
    return running
