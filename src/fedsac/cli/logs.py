"""`--log NAME`: logs and trackers beside the progress on the screen."""

from collections.abc import Sequence
from typing import Any

from fedsac.doors import LOGGERS
from fedsac.runs.watcher import Watcher, Watchers


def add_log(command: Any) -> None:
    command.add_argument(
        "--log",
        action="append",
        metavar="NAME",
        help=f"write every round to a log: {LOGGERS.names()} or module:Class; may be repeated",
    )


def with_logs(screen: Watcher, names: Sequence[str] | None) -> Watcher:
    """The screen, and the logs that were named, each once. One that cannot be had is an error now, before any work;
    one that fails later says so on the screen."""
    from fedsac.runs.loggers import make
    from fedsac.runs.loggers.guarded import Guarded

    logs = {name: make(name) for name in dict.fromkeys(names or ())}
    return Watchers(screen, *(Guarded(name, log, screen.note) for name, log in logs.items()))
