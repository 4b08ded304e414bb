"""One run under way, and when its rounds are committed."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch

from fedsac import methods
from fedsac.contributions.base import Contributions
from fedsac.core.module_layout import ModuleShape
from fedsac.core.units import Layout
from fedsac.defences.standing import Standing, counted, shares
from fedsac.errors import FedsacError
from fedsac.methods.base import Assignment, Method, State, Task, Updates
from fedsac.runs.checkpoint import SHOWN, Checkpoint
from fedsac.runs.folder import Folder
from fedsac.runs.prepared import Members, Prepared
from fedsac.runs.watcher import RunInfo

ENGINE = "federation"  # the name of what an engine adds to a checkpoint's state
MEMORY = "behaviour/"  # before the names of what client behaviours remember, in a checkpoint's state
GUARD = "hardened/"  # before the names of what defences remember, in a checkpoint's state
FIRST = "measured first"  # there: contributions by name, as they were measured when a client joined first
COMMIT_SHARE = 1 / 50  # of the time, at the most, for commits where they are not made after every round


@dataclass(frozen=True)
class WholeRound:
    """What a commit holds: how many rounds are over, and everything as it was after the last of them."""

    round: int
    state: State
    memory: State
    shown: State
    guard: State


@dataclass(eq=False)
class Running:
    """One run under way. Between rounds, `state`, `round` and `records` are what a checkpoint holds.

    `round` counts the rounds that are over. `members` are the clients that take part; `engine_state` is what an engine
    adds to a checkpoint, by name.
    """

    prepared: Prepared
    folder: Folder | None = None
    contributions: Contributions | None = None
    members: Members | None = None
    state: State = field(default_factory=dict)
    round: int = 0
    records: list[dict[str, Any]] = field(default_factory=list)
    committed: int = 0
    keep_models: bool = True  # in the folder, once the run is over
    memory: State = field(default_factory=dict)  # of client behaviours
    guard: State = field(default_factory=dict)  # of defences (`hardening.py`)
    engine_state: Callable[[], State] = dict
    task: Task = field(init=False)
    assignment: Assignment = field(init=False)
    submodels: Sequence[Layout | ModuleShape] = field(init=False)  # the shape of what each client trains next
    reward: Assignment = field(init=False)  # what each client would keep now
    reward_submodels: Sequence[Layout | ModuleShape] = field(init=False)
    _counted: torch.Tensor | None = None  # the masks that `submodels` was counted from
    _whole: "WholeRound" = field(init=False)  # the last whole round

    @cached_property
    def method(self) -> Method:
        return methods.make(self.prepared.config)

    @property
    def info(self) -> RunInfo:
        folder = None if self.folder is None else self.folder.path
        return RunInfo(self.prepared.config, folder, self.task.clients if self.begun else ())

    @property
    def begun(self) -> bool:
        return hasattr(self, "task")

    @property
    def over(self) -> bool:
        return self.round == self.prepared.config.rounds

    def begin(self, contributions: Contributions, members: Members | None = None) -> None:
        """Start the method, or take up the state a checkpoint has brought. `members` are the prepared clients, unless
        an engine has others."""
        self.contributions, self.members = contributions, members or self.prepared.members
        self.task = self._new_task()
        if not self.state:
            self.state = self.method.start(self.task)
            _refuse_reserved(self.state)
        self.assign()
        self.settle()

    def change_members(self, contributions: Contributions, members: Members) -> None:
        """Go on with other clients: the method carries its state over."""
        before = self.task.clients
        self.contributions, self.members = contributions, members
        self.task = self._new_task()
        self.state = self.method.carry_over(self.task, self.state, before)
        self.assign()
        self.settle()

    def _new_task(self) -> Task:
        """The server's task, with what counts of the contributions."""
        assert self.contributions is not None and self.members is not None
        task = self.prepared.task(self.members, self.contributions)
        return replace(task, contributions=self._counted_contributions(task)) if self.guard else task

    def count(self) -> None:
        """Let what counts of the contributions follow from what the defences have seen."""
        new = self._new_task()
        if new.contributions != self.task.contributions:  # else the task stays, with what it has computed
            self.task = new

    def _counted_contributions(self, task: Task) -> tuple[float, ...]:
        share, first = self.shares(task.clients), self.guard.get(FIRST, {})
        at_most = [min(c, first.get(name, c)) for name, c in zip(task.clients, task.contributions, strict=True)]
        return counted(at_most, [share[name] for name in task.clients])

    def remember_contributions(self) -> None:
        """From now on, a client that leaves and comes back counts for no more than it was measured at before it was
        ever paid: what it learned from its rewards is not what it contributes."""
        assert self.contributions is not None and self.members is not None
        task = self.prepared.task(self.members, self.contributions)
        measured = dict(zip(task.clients, task.contributions, strict=True))
        before = self.guard.get(FIRST, {})
        if measured.keys() - before.keys():
            self.guard = self.guard | {FIRST: measured | before}

    def shares(self, clients: Sequence[str] | None = None) -> dict[str, float]:
        """Which share of its contribution counts of each client."""
        names = self.task.clients if clients is None else clients
        known = {name: Standing(**own) for name, own in self.guard.get("standings", {}).items() if name in names}
        copies = self.guard.get("copies", {})
        return dict.fromkeys(names, 1.0) | shares(known) | {name: 0.0 for name in names if name in copies}

    def assign(self) -> None:
        """Let the method say what each client is given now."""
        self.assignment = self.method.assign(self.task, self.state)
        if not isinstance(self.assignment, Assignment):
            raise FedsacError(
                f"method {self.prepared.config.method}: assign must return a fedsac.Assignment, not "
                f"{type(self.assignment).__name__} (docs/adding-a-method.md)"
            )
        if self.assignment.neurons is not self._counted:  # most methods give whole models, always
            self._counted = self.assignment.neurons
            self.submodels = self.prepared.layout.submodels(self._counted)
        self.reward, self.reward_submodels = self.assignment.reward(), self.submodels
        if self.reward.neurons is not self.assignment.neurons:
            self.reward_submodels = self.prepared.layout.submodels(self.reward.neurons)

    def learn(self, updates: Updates) -> None:
        """The server's step."""
        self.state = self.method.learn(self.task, self.state, updates)

    def settle(self) -> None:
        """The round is whole: from here on, this is what a commit holds."""
        self._whole = WholeRound(self.round, self.state, self.memory, self._shown(), self.guard)

    @property
    def uncommitted(self) -> bool:
        return self.committed < self._whole.round

    def commit(self, seconds: float) -> None:
        """Make all whole rounds so far final, after `seconds` of work on this run."""
        whole = self._whole
        if self.folder is not None and self.contributions is not None:
            beside = self.engine_state() | {f"{MEMORY}{name}": value for name, value in whole.memory.items()}
            beside |= {f"{GUARD}{name}": value for name, value in whole.guard.items()}
            # Before the first round the state is what `start` returns, and may be computed again: for hundreds of runs
            # whose clients each have a model, writing it takes minutes.
            state = (whole.state if whole.round else {}) | beside
            checkpoint = Checkpoint(whole.round, state, self.contributions, self.prepared.fingerprint, whole.shown)
            self.folder.commit(checkpoint, self.records[: whole.round], seconds)
        self.committed = whole.round

    def _shown(self) -> State:
        """What a report shows of the method's state: importance, and who holds which neurons if not all do."""
        neurons, importance = self.reward.neurons, self.method.importance(self.state)
        whole = all(submodel == self.prepared.layout for submodel in self.reward_submodels)
        return ({} if whole else {"neurons": neurons}) | ({} if importance is None else {"importance": importance})

    def _fingerprints(self, rounds: int) -> list[str]:
        """What a checkpoint after so many rounds may have been written with: this run's settings, or those of the run
        that ended there and was given more rounds (`Folder.lengthen`)."""
        p, config = self.prepared, self.prepared.config
        shorter = [config.replace(rounds=rounds)] if 0 < rounds < config.rounds else []
        if shorter and rounds * config.local_steps == config.alone():
            shorter.append(config.replace(rounds=rounds, standalone_steps=None))
        return [p.fingerprint, *(replace(p, config=own).fingerprint for own in shorter)]

    def take_up(self, note: Callable[[str], None]) -> State:
        """Go on from the newest checkpoint in the folder, if there is one: returns the state as it is stored there."""
        assert self.folder is not None
        newest = self.folder.latest(note)
        if newest is None:
            return {}
        checkpoint, records = newest
        if checkpoint.fingerprint not in self._fingerprints(checkpoint.round):
            raise FedsacError(
                f"{self.folder.path}: the data or the settings are not what this run began with; bring them back, or "
                "start a new run"
            )
        device = self.prepared.initial.device
        stored = {
            name: value.to(device) if isinstance(value, torch.Tensor) else value
            for name, value in checkpoint.tensors().items()
        }
        self.memory = {name.removeprefix(MEMORY): v for name, v in stored.items() if name.startswith(MEMORY)}
        self.guard = {name.removeprefix(GUARD): v for name, v in stored.items() if name.startswith(GUARD)}
        self.state = {name: value for name, value in stored.items() if not name.startswith((MEMORY, GUARD))}
        self.contributions = checkpoint.contributions
        self.round, self.records, self.committed = checkpoint.round, records, len(records)
        return stored


class Commits:
    """When rounds are committed: after every round, or, where many runs write a lot, one run after the other, as long
    as commits take no more than `COMMIT_SHARE` of the time."""

    def __init__(self, runs: Sequence[Running], clock: "Clock", every_round: bool) -> None:
        self.clock, self._runs, self._every_round = clock, runs, every_round
        self._start, self._spent = time.monotonic(), 0.0

    def at_once(self, runs: Sequence[Running]) -> None:
        """Runs have begun, or go on with other clients: contributions are kept."""
        for run in runs:
            self._make(run)

    def after_round(self) -> None:
        for run in sorted(self._waiting(), key=lambda run: run.committed):
            # A run that is over and keeps no models needs no checkpoint: its log is written when it is finished.
            if self._every_round or (run.keep_models if run.over else self._affordable()):
                self._make(run)

    def now(self) -> None:
        """An interruption: all whole rounds are kept."""
        for run in self._waiting():
            self._make(run)

    def _waiting(self) -> list[Running]:
        return [run for run in self._runs if run.begun and run.uncommitted]

    def _affordable(self) -> bool:
        return self._spent <= COMMIT_SHARE * (time.monotonic() - self._start)

    def _make(self, run: Running) -> None:
        before = time.monotonic()
        run.commit(self.clock.seconds(run))
        self._spent += time.monotonic() - before


def _refuse_reserved(state: State) -> None:
    """Names of a method's state that a checkpoint has for others."""
    for name in state:
        if name == ENGINE or name.startswith((MEMORY, GUARD, SHOWN)):
            raise FedsacError(f"a method's state must not use the name {name!r}: a checkpoint has it for others")


class Clock:
    """Seconds since work on these runs began, and those of each before an interruption."""

    def __init__(self, runs: Sequence[Running]) -> None:
        self._start = time.perf_counter()
        self._before = {run: 0.0 if run.folder is None else run.folder.seconds() for run in runs}

    def seconds(self, run: Running) -> float:
        return self._before[run] + time.perf_counter() - self._start
