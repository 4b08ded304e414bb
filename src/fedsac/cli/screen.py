"""Progress: bars on a terminal, lines from time to time in a file or pipe."""

import time
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from fedsac.runs.watcher import RunInfo, Watcher

PROGRESS_LINES = 10  # about as many for each phase, if the output is not a terminal
MAX_SILENCE_SECONDS = 20.0  # between two lines, however long the phase takes


class Screen(Watcher):
    """Shows a run's progress on `stream` (standard error; results go to standard output)."""

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
        self._printed: dict[str, int] = {}
        self._last_print = time.monotonic()

    def __enter__(self) -> "Screen":
        if self._live:
            self._progress.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._live:
            self._progress.stop()

    def alone(self, step: int, steps: int) -> None:
        self._show("standalone training (steps)", step, steps, "")

    def round(self, run: RunInfo, record: dict[str, Any]) -> None:
        tail = ""
        if record["rewards"] is not None:
            gamma = "   -" if record["gamma"] is None else f"{record['gamma']:6.2f}"
            tail = f"gamma {gamma}  best reward {record['accuracy']['max']:.3f}  inside BCF {record['bcf']:.0%}"
        self._show("federated training (rounds)", record["round"], run.config.rounds, tail)

    def advance(self, what: str, done: int, total: int) -> None:
        """Show the progress of any other work."""
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
        part, now = done * PROGRESS_LINES // total, time.monotonic()
        if part > self._printed.get(what, 0) or done == total or now - self._last_print > MAX_SILENCE_SECONDS:
            self._printed[what], self._last_print = part, now
            print(f"{what}: {done}/{total}  {tail}".rstrip(), file=self._stream, flush=True)
