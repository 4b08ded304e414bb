"""The round loop: from a config to a result. Read `play` first."""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from fedsac import methods, stack
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
    task: Task = field(init=False)
    method: Method = field(init=False)
    rewards: Rewards = field(init=False)

    def begin(self, contributions: Contributions) -> None:
        """Start the method, or take up the state a checkpoint has brought."""
        config = self.prepared.config
        self.contributions = contributions
        self.task = self.prepared.task(
            contributions.test if config.contribution_on == "test" else contributions.validation
        )
        self.method = methods.make(config)
        if not self.state:
            self.state = self.method.start(self.task)
        self.rewards = self.method.rewards(self.task, self.state)

    def commit(self, seconds: float) -> None:
        if self.folder is not None:
            assert self.contributions is not None
            record = self.records[-1] if self.round else None
            checkpoint = Checkpoint(self.round, self.state, self.contributions, self.prepared.fingerprint)
            self.folder.commit(checkpoint, record, seconds)


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
                run.commit(clock.seconds(run))
                for i in updates.diverged:
                    watcher.note(
                        f"round {run.round}: {run.task.clients[i]} diverged (NaN or infinity) and was set aside"
                    )
                watcher.round(run.records[-1], run.prepared.config.rounds)
        return [_finish(run, clock) for run in runs]


def _measure_contributions(runs: Sequence[Running], watcher: Watcher, clock: "_Clock") -> None:
    new = [run for run in runs if run.contributions is None]
    alone = [Alone(p.clients, p.initial, p.config.alone(), p.validation, p.test) for p in (run.prepared for run in new)]
    longest = max((a.steps for a in alone), default=0)
    measured = iter(standalone(alone, lambda step: watcher.alone(step, longest)) if new else [])
    for run in runs:
        fresh = run.contributions is None
        contributions = next(measured) if run.contributions is None else run.contributions
        run.begin(contributions)
        if fresh:
            for name in contributions.diverged:
                watcher.note(f"{name} diverged while training alone: its contribution counts as 0")
            run.commit(clock.seconds(run))


def _record(run: Running, sent: Rewards, updates: Updates) -> dict[str, Any]:
    """What the log says of a round: who answered, what crossed the network, what everybody holds now."""
    assert run.contributions is not None
    config, layout = run.prepared.config, run.prepared.layout
    weight = run.prepared.initial.element_size()
    sizes = layout.count(sent.neurons).tolist()
    due = run.round % config.eval_every == 0 or run.round == config.rounds
    test = validation = None
    if due:
        models = personalised(run.prepared.clients, run.rewards, run.round)
        test, validation = (
            stack.evaluate(layout, models, run.rewards.neurons, samples)[0].tolist()
            for samples in (run.prepared.test, run.prepared.validation)
        )
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
        global_model=Network(layout, run.state["model"].cpu()),
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
) -> list[Result]:
    """Carry out several runs side by side, all their clients in shared stacks. What one run finds does not depend, but
    for rounding, on the others. `splits` replace what the configs would deal out; `absent` says who drops out."""
    places = outs or [None] * len(configs)
    for place in places:
        if place is not None:
            Folder.refuse(place, overwrite=overwrite)  # before minutes go into reading data
    prepared = prepare(configs, splits)
    with ExitStack() as open_folders:
        folders = [
            None if place is None else open_folders.enter_context(Folder.create(place, p.config, overwrite=overwrite))
            for p, place in zip(prepared, places, strict=True)
        ]
        runs = [Running(p, folder) for p, folder in zip(prepared, folders, strict=True)]
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
    watcher = watcher or Watcher()
    with Folder.open(Path(path)) as folder:
        prepared = prepare([folder.config])[0]
        running = Running(prepared, folder)
        found = folder.latest(watcher.note)
        if found is not None:
            checkpoint, records = found
            if checkpoint.fingerprint != prepared.fingerprint:
                raise FedsacError(
                    f"{path}: the data is not what this run began with (it has changed, or another copy was found); "
                    "bring back the old data or start a new run"
                )
            running.contributions = checkpoint.contributions
            device = prepared.initial.device
            running.state = {
                name: value.to(device) if isinstance(value, torch.Tensor) else value
                for name, value in checkpoint.state.items()
            }
            running.round, running.records = checkpoint.round, records
        return play([running], watcher)[0]
