"""Progress: bars on a terminal, a line now and then elsewhere."""

import time
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from fedsac.runs.watcher import RunInfo, Watcher

LINES = 10  # about as many progress lines for a phase, where there is no terminal to redraw
PATIENCE = 20.0  # seconds without a line at most, whatever the phase's length


class Screen(Watcher):
    """Shows a run on `stream`; results go elsewhere (standard output)."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._console = Console(file=stream)
        self._live = self._console.is_terminal
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[tail]}"),
            console=self._console,
        )
        self._tasks: dict[str, TaskID] = {}
        self._said: dict[str, int] = {}
        self._when = time.monotonic()

    def __enter__(self) -> "Screen":
        if self._live:
            self._progress.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._live:
            self._progress.stop()

    def alone(self, step: int, steps: int) -> None:
        self._show("standing alone (steps)", step, steps, "")

    def round(self, run: RunInfo, record: dict[str, Any]) -> None:
        tail = ""
        if record["rewards"] is not None:
            gamma = "   -" if record["gamma"] is None else f"{record['gamma']:6.2f}"
            tail = f"gamma {gamma}  best reward {record['accuracy']['max']:.3f}  inside BCF {record['bcf']:.0%}"
        self._show("together (rounds)", record["round"], run.config.rounds, tail)

    def advance(self, what: str, done: int, total: int) -> None:
        """Any other piece of work."""
        self._show(what, done, total, "")

    def note(self, text: str) -> None:
        self._console.print(f"fedsac: {text}", highlight=False, markup=False, soft_wrap=True)

    def _show(self, what: str, done: int, total: int, tail: str) -> None:
        if self._live:
            if what not in self._tasks:
                self._tasks[what] = self._progress.add_task(what, total=total, tail="")
            task = self._tasks[what]
            if tail:
                self._progress.update(task, completed=done, tail=tail)
            else:
                self._progress.update(task, completed=done)
            return
        part, now = done * LINES // total, time.monotonic()
        if part > self._said.get(what, 0) or done == total or now - self._when > PATIENCE:
            self._said[what], self._when = part, now
            print(f"{what}: {done}/{total}  {tail}".rstrip(), file=self._stream, flush=True)
