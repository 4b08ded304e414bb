"""The round loop: Algorithm 1 for any method, on any engine. Read `play` first.

`fedsac run`, `compare`, `paper`, Flower's simulation and a real federation all play this loop. What differs between
them is where the clients are, and that is an `Engine`.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import torch
from torch import Tensor

from fedsac.clients.memory import groups_that_fit
from fedsac.compute.cuda import precision
from fedsac.config import Config
from fedsac.errors import FedsacError, Wrecked
from fedsac.methods.base import Updates
from fedsac.runs.finish import finished
from fedsac.runs.hardening import defended
from fedsac.runs.limits import most_threads
from fedsac.runs.records import evaluate, record
from fedsac.runs.result import Result
from fedsac.runs.running import Clock, Commits, Running
from fedsac.runs.watcher import Watcher
from fedsac.threads import warn_if_slow


class Training(Protocol):
    """A round of local training in progress."""

    def updates(self) -> list[Updates]:
        """Wait for it to end: what came back, for each run."""
        ...


class Engine(Protocol):
    """Where the clients are: on this machine, or behind a network."""

    def gather(self, runs: Sequence[Running]) -> list[Running]:
        """See who takes part in each run and with what contributions. Called before the first round and between rounds,
        since clients may come and go. Returns the runs to commit at once: those started from nothing, and those whose
        clients have changed."""
        ...

    def train(self, runs: Sequence[Running]) -> Training:
        """Let the clients of each run train what they are assigned. Whoever does not answer has dropped out."""
        ...

    def reward_models(self, runs: Sequence[Running]) -> list[Tensor]:
        """The models [N or 1, parameters] that each run's clients would end with now: what they are assigned, after an
        extra epoch on their own data where the method wants one and the engine can."""
        ...


def play(runs: Sequence[Running], engine: Engine, watcher: Watcher, *, every_round: bool = True) -> list[Result]:
    """Measure contributions, then train round after round until every run has had all its rounds; returns the results.

    Commits are made after every round or, where many runs write a lot, as often as they cost little.
    """
    if len({run.prepared.config.precision for run in runs}) > 1:
        raise FedsacError("runs side by side share one precision; run those with another apart")
    with _machine(runs[0].prepared.config):
        commits = Commits(runs, Clock(runs), every_round)
        commits.at_once(engine.gather(runs))
        for run in runs:
            watcher.begin(run.info, run.records)
        try:
            _play_rounds(runs, engine, watcher, commits)
        except (KeyboardInterrupt, Exception):
            commits.now()  # what one run cannot get past must not cost the others their rounds
            raise
        return [finished(run, engine.reward_models, commits.clock.seconds(run), watcher) for run in runs]


def _play_rounds(runs: Sequence[Running], engine: Engine, watcher: Watcher, commits: Commits) -> None:
    """The rounds of all runs, in groups of runs that fit in memory at the same time. On a GPU two groups are in
    progress: while the clients of one train, the server's step of the other is computed."""
    initial = runs[0].prepared.initial
    unfinished = [run for run in runs if not run.over]
    parts = groups_that_fit([run.prepared.clients for run in unfinished], initial.element_size(), initial.device)
    ready = deque([unfinished[i] for i in part] for part in parts)
    under_way: deque[tuple[list[Running], Training]] = deque()
    while ready or under_way:
        if ready and len(under_way) < (2 if initial.is_cuda else 1):
            part = ready.popleft()
            under_way.append((part, engine.train(part)))
            continue
        part, training = under_way.popleft()
        _end_round(part, training.updates(), engine, watcher, alone=len(runs) == 1)
        commits.after_round()
        if left := [run for run in part if not run.over]:
            commits.at_once(engine.gather(left))
            ready.append(left)


def _end_round(
    runs: Sequence[Running], answers: Sequence[Updates], engine: Engine, watcher: Watcher, *, alone: bool
) -> None:
    """The server's step of each run, what its clients are assigned after it, and the round's record. Unless a run is
    `alone`, what is said of it names it."""
    sent = [[submodel.parameters for submodel in run.submodels] for run in runs]
    after = [defended(run, updates) for run, updates in zip(runs, answers, strict=True)]
    for run, each in zip(runs, after, strict=True):
        with _naming(run):
            run.learn(each.kept)
    for run in runs:  # after all have learned: `assign` may wait for a GPU, and their work is queued on it by now
        with _naming(run):
            run.assign()
        run.round += 1
    due = [run for run in runs if run.round % run.prepared.config.eval_every == 0 or run.over]
    scores = dict(zip(due, evaluate(due, engine.reward_models(due)), strict=True))
    for run, updates, sizes in zip(runs, [each.received for each in after], sent, strict=True):
        run.records.append(record(run, sizes, updates, scores.get(run)))
        run.memory = updates.memory
        run.settle()
        for text in _remarks(run, updates):
            watcher.note(text if alone else f"{run.info.name}, {text}")
        watcher.round(run.info, run.records[-1])


def _remarks(run: Running, updates: Updates) -> Iterator[str]:
    """What is worth a line of a round that is over: whose answer did not count, and who is newly suspected."""
    for name, reason in updates.remarks.get("refused", {}).items():
        yield f"round {run.round}: {name} is left out: {reason}"
    before = run.records[-2].get("suspected", {}) if len(run.records) > 1 else {}
    for name, reason in updates.remarks.get("suspected", {}).items():
        if name not in before:
            yield f"round {run.round}: {name} is suspected: {reason}"
    for i in updates.diverged:
        yield f"round {run.round}: {run.task.clients[i]} diverged (NaN or infinity) and was left out"


@contextmanager
def _naming(run: Running) -> Iterator[None]:
    """Whose model is wrecked, where one is: among runs side by side it could be any."""
    try:
        yield
    except Wrecked as error:
        error.folder = run.info.folder
        raise


@contextmanager
def _machine(config: Config) -> Iterator[None]:
    """Set threads and precision as in the config, and restore them afterwards."""
    threads = torch.get_num_threads()
    torch.set_num_threads(min(config.threads or threads, most_threads()))  # a run may come from a larger machine
    try:
        if torch.device(config.device).type == "cpu":
            warn_if_slow(torch.get_num_threads())
        with precision.using(config.precision or "float32", torch.device(config.device)):
            yield
    finally:
        torch.set_num_threads(threads)
