"""One run under way, and when what it has done becomes final."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from fedsac import methods
from fedsac.contributions.standalone import Contributions
from fedsac.core.units import Layout
from fedsac.methods.base import Method, Rewards, State, Task
from fedsac.runs.folder import Checkpoint, Folder
from fedsac.runs.setup import Prepared


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
    keep_models: bool = True  # in the folder, once the run is over
    task: Task = field(init=False)
    method: Method = field(init=False)
    rewards: Rewards = field(init=False)
    held: list[Layout] = field(init=False)  # the submodel that each client holds now
    counted: torch.Tensor | None = None  # the masks that `held` was counted from
    settled: tuple[int, State] = field(init=False)  # the last whole round, and the state after it

    def begin(self, contributions: Contributions) -> None:
        """Start the method, or take up the state a checkpoint has brought."""
        config = self.prepared.config
        self.contributions = contributions
        self.task = self.prepared.task(contributions.given(config.contribution_on))
        self.method = methods.make(config)
        if not self.state:
            self.state = self.method.start(self.task)
        self.settled = self.round, self.state
        self.earn()

    def earn(self) -> None:
        """Let the method say what everybody holds now."""
        self.rewards = self.method.rewards(self.task, self.state)
        if self.rewards.neurons is not self.counted:  # most methods give whole models, always
            self.counted = self.rewards.neurons
            self.held = self.prepared.layout.submodels(self.counted)

    def commit(self, seconds: float) -> None:
        """Make all whole rounds so far final."""
        round, state = self.settled
        if self.folder is not None and self.contributions is not None:
            checkpoint = Checkpoint(round, state, self.contributions, self.prepared.fingerprint)
            self.folder.commit(checkpoint, self.records[self.committed : round], seconds)
        self.committed = round

    @property
    def over(self) -> bool:
        return self.round == self.prepared.config.rounds


class Commits:
    """When what is done becomes final: after every round, or, where many runs write a lot, as soon as commits take no
    more than a twentieth of the time."""

    SPARE = 20

    def __init__(self, runs: Sequence[Running], clock: "Clock", every_round: bool) -> None:
        self.clock, self._runs, self._every_round = clock, runs, every_round
        self._cost, self._when = 0.0, time.monotonic()

    def first(self, runs: Sequence[Running]) -> None:
        """Contributions are measured: they are kept, and so is what a commit costs."""
        self._when = time.monotonic()
        self._make(runs)
        self._cost, self._when = time.monotonic() - self._when, time.monotonic()

    def after_round(self) -> None:
        start = time.monotonic()
        due = self._every_round or start - self._when >= self.SPARE * self._cost
        # What is over and leaves no models is written down when it is finished.
        self._make([run for run in self._waiting() if (run.keep_models if run.over else due)])
        if due:
            self._when = time.monotonic()
            self._cost = self._when - start

    def now(self) -> None:
        """An interruption: all whole rounds are kept."""
        self._make(self._waiting())

    def _waiting(self) -> list[Running]:
        """Runs with whole rounds that are not final."""
        return [run for run in self._runs if run.committed < run.settled[0]]

    def _make(self, runs: Sequence[Running]) -> None:
        for run in runs:
            run.commit(self.clock.seconds(run))


class Clock:
    """Seconds of work on each run, those before an interruption included."""

    def __init__(self, runs: Sequence[Running]) -> None:
        self._start = time.perf_counter()
        self._before = {id(run): 0.0 if run.folder is None else run.folder.seconds() for run in runs}

    def seconds(self, run: Running) -> float:
        return self._before[id(run)] + time.perf_counter() - self._start
