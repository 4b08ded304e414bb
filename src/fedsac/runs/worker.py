"""`python -m fedsac.runs.worker`: a process that carries out stacks of runs for `fedsac.runs.spread`.

It reads orders from standard input, one JSON line each: the folders of runs that train together. What a watcher is told
goes to standard output, one JSON line each, and so does the end of an order. When nobody reads any more, or SIGTERM
comes, whole rounds are committed, and the process ends.
"""

import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from fedsac.clients import memory
from fedsac.errors import FedsacError
from fedsac.runs.start import resume_together
from fedsac.runs.watcher import RunInfo, Watcher
from fedsac.runs.wrecks import resume_but_wrecks


class Telling(Watcher):
    """Tells the other process what happens, as JSON lines."""

    def __init__(self, to: TextIO) -> None:
        self._to = to

    def alone(self, step: int, steps: int) -> None:
        self.tell("alone", step=step, steps=steps)

    def begin(self, run: RunInfo, records: Sequence[dict[str, Any]]) -> None:
        self.tell("begin", folder=str(run.folder), clients=run.clients, records=list(records))

    def round(self, run: RunInfo, record: dict[str, Any]) -> None:
        self.tell("round", folder=str(run.folder), clients=run.clients, record=record)

    def note(self, text: str) -> None:
        self.tell("note", text=text)

    def tell(self, what: str, **facts: Any) -> None:
        try:
            print(json.dumps({"what": what} | facts), file=self._to, flush=True)
        except BrokenPipeError:
            raise KeyboardInterrupt from None  # whoever wanted this is gone: as if it had interrupted us


def work(orders: TextIO, telling: Telling) -> None:
    """Carry out one order after the other."""
    for line in orders:
        order = json.loads(line)
        memory.processes = order["processes"]
        try:
            resume = resume_but_wrecks if order["but_wrecks"] else resume_together
            resume(
                [Path(folder) for folder in order["folders"]],
                telling,
                every_round=order["every_round"],
                keep_models=order["keep_models"],
            )
        except FedsacError as error:
            telling.tell("failed", text=str(error))
        else:
            telling.tell("done")


def main() -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
    try:
        work(sys.stdin, Telling(sys.stdout))
    except KeyboardInterrupt:
        # Python would try to flush a pipe that may be closed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
