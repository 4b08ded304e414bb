"""The round loop: from a config to a result. Read `play` first."""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from fedsac import measures, methods, stack
from fedsac.config import FORMAT_VERSION, Config
from fedsac.contribution import Alone, Contributions, standalone
from fedsac.data.split import Split
from fedsac.engines.local import Absent, personalised, train_round
from fedsac.errors import FedsacError
from fedsac.methods.base import Method, Rewards, State, Task, Updates
from fedsac.models.network import Network
from fedsac.models.submodels import extract
from fedsac.prepare import Prepared, prepare
from fedsac.result import Result, judged
from fedsac.store import Checkpoint, Folder


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


@dataclass
class Running:
    """One run under way. Between rounds, `state`, `round` and `records` are what a checkpoint holds."""

    prepared: Prepared
    folder: Folder | None = None
    contributions: Contributions | None = None
    state: State = field(default_factory=dict)
    round: int = 0
    records: list[dict[str, Any]] = field(default_factory=list)
    committed: int = 0
    pace: float = 0.0  # seconds between two commits at least; 0: every round
    task: Task = field(init=False)
    method: Method = field(init=False)
    rewards: Rewards = field(init=False)
    _when: float = field(default_factory=time.monotonic)

    def begin(self, contributions: Contributions) -> None:
        """Start the method, or take up the state a checkpoint has brought."""
        config = self.prepared.config
        self.contributions = contributions
        self.task = self.prepared.task(contributions.given(config.contribution_on))
        self.method = methods.make(config)
        if not self.state:
            self.state = self.method.start(self.task)
        self.rewards = self.method.rewards(self.task, self.state)

    def commit(self, seconds: float) -> None:
        """Make everything so far final."""
        if self.folder is not None:
            assert self.contributions is not None
            checkpoint = Checkpoint(self.round, self.state, self.contributions, self.prepared.fingerprint)
            self.folder.commit(checkpoint, self.records[self.committed :], seconds)
        self.committed, self._when = len(self.records), time.monotonic()

    def due(self) -> bool:
        """Is it time for a commit? After the last round it is."""
        return self.round == self.prepared.config.rounds or time.monotonic() - self._when >= self.pace


def play(runs: Sequence[Running], watcher: Watcher, absent: Absent = nobody) -> list[Result]:
    """Contributions, then rounds until every run has had all of its own: Algorithm 1 for any method."""
    with _threads(runs[0].prepared.config):
        clock = _Clock(runs)
        _measure_contributions(runs, watcher, clock)
        while at_work := [run for run in runs if run.round < run.prepared.config.rounds]:
            work = [(run.prepared.clients, run.rewards, run.round) for run in at_work]
            for run, updates in zip(at_work, train_round(work, absent), strict=True):
                sent = run.rewards
                run.state = run.method.learn(run.task, run.state, updates)
                run.rewards = run.method.rewards(run.task, run.state)
                run.round += 1
                run.records.append(_record(run, sent, updates))
                if run.due():
                    run.commit(clock.seconds(run))
                for i in updates.diverged:
                    watcher.note(
                        f"round {run.round}: {run.task.clients[i]} diverged (NaN or infinity) and was set aside"
                    )
                watcher.round(run.records[-1], run.prepared.config.rounds)
        return [_finish(run, clock) for run in runs]


def _measure_contributions(runs: Sequence[Running], watcher: Watcher, clock: "_Clock") -> None:
    # Runs that differ only in their method have the same clients, who stand alone only once.
    new = {(id(run.prepared.clients), run.prepared.config.alone()): run for run in runs if run.contributions is None}
    alone = [
        Alone(p.clients, p.initial, p.config.alone(), p.validation, p.test)
        for p in (run.prepared for run in new.values())
    ]
    longest = max((a.steps for a in alone), default=0)
    measured = standalone(alone, lambda step: watcher.alone(step, longest)) if alone else []
    for contributions in measured:
        for name in contributions.diverged:
            watcher.note(f"{name} diverged while training alone: its contribution counts as 0")
    found = dict(zip(new, zip(alone, measured, strict=True), strict=True))
    decided: dict[tuple[object, ...], Contributions] = {}
    for run in runs:
        if run.contributions is None:
            config, clients = run.prepared.config, (id(run.prepared.clients), run.prepared.config.alone())
            how = (config.contribution, config.contribution_on)
            if (clients, how) not in decided:
                if config.contribution != measures.STANDALONE:
                    watcher.note(f"measuring contributions: {config.contribution}")
                decided[clients, how] = measures.decided(*how, *found[clients])
            run.begin(decided[clients, how])
            run.commit(clock.seconds(run))
        else:
            run.begin(run.contributions)


def _record(run: Running, sent: Rewards, updates: Updates) -> dict[str, Any]:
    """What the log says of a round: who answered, what crossed the network, what everybody holds now."""
    assert run.contributions is not None
    config, layout = run.prepared.config, run.prepared.layout
    weight = run.prepared.initial.element_size()
    sizes = layout.count(sent.neurons).tolist()
    due = run.round % config.eval_every == 0 or run.round == config.rounds
    test = validation = common = None
    if due:
        models = personalised(run.prepared.clients, run.rewards, run.round)
        test, validation = (
            stack.evaluate(layout, models, run.rewards.neurons, samples)[0].tolist()
            for samples in (run.prepared.test, run.prepared.validation)
        )
        if "model" in run.state:
            common = float(stack.evaluate(layout, run.state["model"].unsqueeze(0), None, run.prepared.test)[0])
    return {
        "format_version": FORMAT_VERSION,
        "round": run.round,
        "answered": [run.task.clients[i] for i in updates.clients],
        "diverged": [run.task.clients[i] for i in updates.diverged],
        "losses": [loss if loss == loss and abs(loss) != float("inf") else None for loss in updates.losses],
        "bytes": {"down": weight * sum(sizes), "up": weight * sum(sizes[i] for i in updates.clients)},
        "neurons": run.rewards.neurons.sum(1).tolist(),
        "parameters": layout.count(run.rewards.neurons).tolist(),
        "rewards": test,
        "rewards_validation": validation,
        "global_accuracy": common,
        **judged(run.contributions, test),
    }


def _finish(run: Running, clock: "_Clock") -> Result:
    assert run.contributions is not None
    layout, rewards = run.prepared.layout, run.rewards
    models = personalised(run.prepared.clients, rewards, run.round).cpu()
    neurons = rewards.neurons.cpu()
    result = Result(
        config=run.prepared.config,
        clients=run.task.clients,
        samples=run.task.samples,
        contributions=run.contributions,
        records=tuple(run.records),
        reputations=rewards.reputations,
        layout=layout,
        global_model=Network(layout, run.state["model"].cpu()) if "model" in run.state else None,
        reward_models=tuple(
            extract(Network(layout, models[i if len(models) > 1 else 0]), mask) for i, mask in enumerate(neurons)
        ),
        seconds=clock.seconds(run),
        folder=None if run.folder is None else run.folder.path,
        reported_on="validation" if run.prepared.split.test_is_validation else "test",
    )
    if run.folder is not None:
        run.folder.finish(result, run.prepared.split)
    return result


class _Clock:
    """Seconds of work on each run, those before an interruption included."""

    def __init__(self, runs: Sequence[Running]) -> None:
        self._start = time.perf_counter()
        self._before = {id(run): 0.0 if run.folder is None else run.folder.seconds() for run in runs}

    def seconds(self, run: Running) -> float:
        return self._before[id(run)] + time.perf_counter() - self._start


@contextmanager
def _threads(config: Config) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(config.threads or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def run_together(
    configs: Sequence[Config],
    outs: Sequence[Path | None] | None = None,
    watcher: Watcher | None = None,
    *,
    overwrite: bool = False,
    splits: Sequence[Split] | None = None,
    absent: Absent = nobody,
    pace: float = 0.0,
) -> list[Result]:
    """Carry out several runs side by side, all their clients in shared stacks. What one run finds does not depend, but
    for rounding, on the others. `splits` replace what the configs would deal out; `absent` says who drops out; `pace`
    is how many seconds a run with a folder may go on without a commit."""
    places = outs or [None] * len(configs)
    for place in places:
        if place is not None:
            Folder.refuse(place, overwrite=overwrite)  # before minutes go into reading data
    for config in configs:
        measures.named(config.contribution)
    prepared = prepare(configs, splits)
    with ExitStack() as open_folders:
        folders = [
            None if place is None else open_folders.enter_context(Folder.create(place, p.config, overwrite=overwrite))
            for p, place in zip(prepared, places, strict=True)
        ]
        runs = [Running(p, folder, pace=pace) for p, folder in zip(prepared, folders, strict=True)]
        return play(runs, watcher or Watcher(), absent)


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


def resume_together(paths: Sequence[Path], watcher: Watcher | None = None, *, pace: float = 0.0) -> list[Result]:
    """Take up several runs side by side, each where its own last commit left it."""
    watcher = watcher or Watcher()
    with ExitStack() as open_folders:
        folders = [open_folders.enter_context(Folder.open(path)) for path in paths]
        prepared = prepare([folder.config for folder in folders])
        runs = [_taken_up(p, folder, watcher, pace) for p, folder in zip(prepared, folders, strict=True)]
        return play(runs, watcher)


def _taken_up(prepared: Prepared, folder: Folder, watcher: Watcher, pace: float) -> Running:
    running = Running(prepared, folder, pace=pace)
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
