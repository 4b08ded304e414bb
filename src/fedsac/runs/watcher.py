"""What may be told of runs as they go: the one interface behind progress bars, logs and trackers."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsac.config import Config

if TYPE_CHECKING:
    from fedsac.runs.result import Result


@dataclass(frozen=True)
class RunInfo:
    """Which run is meant: its config, with every default filled in, its folder, if it has one, and the names of its
    clients in the order of a record's lists."""

    config: Config
    folder: Path | None = None
    clients: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The folder's name; of a run without one, what it is about."""
        c = self.config
        return self.folder.name if self.folder is not None else f"{c.method}-{c.data}-{c.scene}-seed{c.seed}"


class Watcher:
    """Told what happens as it happens; this one says nothing. Derive from it and override what you need.

    Records are those of `rounds.jsonl`: one dict per round, whose scores are None in rounds that were not evaluated.
    """

    def alone(self, step: int, steps: int) -> None:
        """Standalone training has come this far."""

    def begin(self, run: RunInfo, records: Sequence[dict[str, Any]]) -> None:
        """A run's rounds begin, or go on after these."""

    def round(self, run: RunInfo, record: dict[str, Any]) -> None:
        """A round is over."""

    def end(self, run: RunInfo, result: "Result") -> None:
        """A run is over, and its folder complete."""

    def note(self, text: str) -> None:
        """Something worth a line: a client that diverged, a damaged checkpoint that was passed over."""


class Watchers(Watcher):
    """Several of them as one."""

    def __init__(self, *watchers: Watcher) -> None:
        self._watchers = watchers

    def alone(self, step: int, steps: int) -> None:
        for watcher in self._watchers:
            watcher.alone(step, steps)

    def begin(self, run: RunInfo, records: Sequence[dict[str, Any]]) -> None:
        for watcher in self._watchers:
            watcher.begin(run, records)

    def round(self, run: RunInfo, record: dict[str, Any]) -> None:
        for watcher in self._watchers:
            watcher.round(run, record)

    def end(self, run: RunInfo, result: "Result") -> None:
        for watcher in self._watchers:
            watcher.end(run, result)

    def note(self, text: str) -> None:
        for watcher in self._watchers:
            watcher.note(text)
