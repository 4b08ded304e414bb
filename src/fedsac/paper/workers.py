"""Several groups of runs at once, each in a process of its own.

A GPU is idle while Python decides what comes next, so a second process keeps it busy. Workers tell what happens through
a queue; an interruption reaches them through this process, which waits until they have committed what is whole. A
worker whose parent is gone commits and ends, too.
"""

import multiprocessing
import os
import queue
import signal
import traceback
from collections.abc import Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from fedsac.errors import FedsacError
from fedsac.federation import Watcher, resume_together


def in_processes(groups: Sequence[Sequence[Path]], watcher: Watcher, processes: int) -> None:
    """Bring the runs of every group to their end, at most `processes` groups at a time."""
    context = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
    told: Any = context.Queue()
    waiting = list(groups)
    at_work: list[BaseProcess] = []
    try:
        while waiting or at_work:
            while waiting and len(at_work) < processes:
                worker = context.Process(target=_work, args=(waiting.pop(0), told, os.getpid()))
                worker.start()
                at_work.append(worker)
            _listen(told, watcher)
            for worker in [worker for worker in at_work if not worker.is_alive()]:
                at_work.remove(worker)
                if worker.exitcode != 0:
                    _listen(told, watcher)  # what it said last, an error among it
                    raise FedsacError(f"a group of runs ended unexpectedly (exit status {worker.exitcode})")
        _listen(told, watcher)
    finally:
        _stop(at_work)


def _listen(told: Any, watcher: Watcher) -> None:
    """Pass on what workers have said, for at most a second."""
    try:
        what, value = told.get(timeout=1.0)
        while True:
            if what == "error":
                raise FedsacError(value)
            if what == "round":
                watcher.round(*value)
            else:
                watcher.note(value)
            what, value = told.get_nowait()
    except queue.Empty:
        return


def _stop(workers: Sequence[BaseProcess]) -> None:
    """Interrupt those that are still at work, and wait until they have committed."""
    for worker in workers:
        if worker.is_alive() and worker.pid is not None:
            os.kill(worker.pid, signal.SIGINT)
    for worker in workers:
        worker.join()


class _Telling(Watcher):
    """Passes everything on, and notices when nobody listens any more."""

    def __init__(self, told: Any, parent: int) -> None:
        self._told, self._parent = told, parent

    def alone(self, step: int, steps: int) -> None:
        self._check()

    def round(self, record: dict[str, Any], rounds: int) -> None:
        self._check()
        self._told.put(("round", ({"round": record["round"]}, rounds)))

    def note(self, text: str) -> None:
        self._told.put(("note", text))

    def _check(self) -> None:
        if os.getppid() != self._parent:
            raise KeyboardInterrupt


def _work(paths: Sequence[Path], told: Any, parent: int) -> None:
    os.setpgrp()  # Ctrl-C reaches the parent alone, which passes it on once
    try:
        resume_together(paths, _Telling(told, parent), every_round=False, keep_models=False)
    except KeyboardInterrupt:
        told.cancel_join_thread()
        os._exit(130)
    except FedsacError as error:
        told.put(("error", str(error)))
        raise SystemExit(2) from None
    except Exception:
        told.put(("error", "in a group of runs: " + traceback.format_exc(limit=-2)))
        raise
