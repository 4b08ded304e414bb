"""A log that cannot cost a run."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from fedsac.runs.watcher import RunInfo, Watcher

if TYPE_CHECKING:
    from fedsac.runs.result import Result


class Guarded(Watcher):
    """Passes everything on to a log until it raises: then `note` gets one line about it, the log is told nothing more,
    and the run goes on. Ctrl-C is no error, and ends the run as always."""

    def __init__(self, name: str, log: Watcher, note: Callable[[str], None]) -> None:
        self._name, self._log, self._note = name, log, note
        self._failed = False

    def alone(self, step: int, steps: int) -> None:
        self._tell(self._log.alone, step, steps)

    def begin(self, run: RunInfo, records: Sequence[dict[str, Any]]) -> None:
        self._tell(self._log.begin, run, records)

    def round(self, run: RunInfo, record: dict[str, Any]) -> None:
        self._tell(self._log.round, run, record)

    def end(self, run: RunInfo, result: "Result") -> None:
        self._tell(self._log.end, run, result)

    def note(self, text: str) -> None:
        self._tell(self._log.note, text)

    def _tell(self, method: Callable[..., None], *what: Any) -> None:
        if self._failed:
            return
        try:
            method(*what)
        except Exception as error:  # noqa: BLE001 - whatever it is, hours of training are worth more than their log
            self._failed = True
            text = " ".join(f"{type(error).__name__}: {error}".split())
            self._note(f"the log {self._name} failed: {text}; it is switched off, and the run goes on")
