"""Stacks of runs spread over several processes of this machine.

One process waits for Python about as long as a GPU works: several keep it busy, and on a machine with many cores they
train side by side. What a run finds does not depend, but for rounding, on where it is carried out. The processes talk
in JSON lines (`fedsac.runs.worker`), and leave the runs in their folders, as one process would.
"""

import json
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock, Thread
from typing import Any

from fedsac.config import Config, read
from fedsac.errors import FedsacError
from fedsac.runs.watcher import RunInfo, Watcher

SECONDS_TO_COMMIT = 600.0  # after an interruption, until a process that does not end is killed


Done = Callable[[Sequence[Path], float], None]
"""Told of each stack that is complete, and of the seconds that it took."""


def resume_spread(
    stacks: Sequence[Sequence[Path]],
    workers: int,
    watcher: Watcher,
    *,
    every_round: bool,
    keep_models: bool,
    but_wrecks: bool = False,
    minutes: float | None = None,
    done: Done | None = None,
) -> bool:
    """Take up the runs of each stack, as `resume_together` does, in so many processes, the first stacks first; after so
    many `minutes`, no other stack is begun. Returns whether all were. A stack that fails for a reason that the user can
    put right does not keep the others from ending; its error is raised then. With `but_wrecks`, a run whose model is
    wrecked is none (`wrecks.py`)."""
    waiting = deque([str(path) for path in stack] for stack in stacks)
    processes = min(workers, len(waiting))
    options = {"processes": processes, "every_round": every_round, "keep_models": keep_models, "but_wrecks": but_wrecks}
    until = None if minutes is None else time.monotonic() + 60 * minutes
    shared = _Shared(waiting, options, watcher, until, done)
    started = [_Worker(shared) for _ in range(processes)]
    try:
        for worker in started:
            worker.join()
    except KeyboardInterrupt:
        shared.waiting.clear()
        for worker in started:
            worker.terminate()
        until = time.monotonic() + SECONDS_TO_COMMIT
        for worker in started:
            worker.wait(until)
        raise
    if shared.failure is not None:
        raise shared.failure
    if shared.errors:
        raise FedsacError(shared.errors[0])
    return not waiting


class _Shared:
    """What all workers share: the stacks that wait, the one who watches, and what failed."""

    def __init__(
        self,
        waiting: deque[list[str]],
        options: dict[str, Any],
        watcher: Watcher,
        until: float | None,
        done: Done | None,
    ) -> None:
        self.waiting, self.options, self.errors = waiting, options, list[str]()
        self._watcher, self._lock, self._configs = watcher, Lock(), dict[str, Config]()
        self._until, self._done = until, done
        self.failure: Exception | None = None  # of ours, in the thread that listens to a process

    def next(self) -> list[str] | None:
        """The folders of the next stack, if there is one and time is left."""
        with self._lock:
            in_time = self._until is None or time.monotonic() < self._until
            return self.waiting.popleft() if self.waiting and in_time else None

    def completed(self, folders: Sequence[str], seconds: float) -> None:
        """A stack is complete, after so many seconds."""
        if self._done is not None:
            with self._lock:
                self._done([Path(folder) for folder in folders], seconds)

    def told(self, event: dict[str, Any]) -> None:
        """Pass on what a process tells."""
        with self._lock:
            what = event["what"]
            if what == "failed":
                self.errors.append(event["text"])
            elif what == "alone":
                self._watcher.alone(event["step"], event["steps"])
            elif what == "note":
                self._watcher.note(event["text"])
            elif what == "begin":
                self._watcher.begin(self._run(event), event["records"])
            elif what == "round":
                self._watcher.round(self._run(event), event["record"])

    def _run(self, event: dict[str, Any]) -> RunInfo:
        folder = event["folder"]
        if folder not in self._configs:
            self._configs[folder] = Config(**read(Path(folder) / "config.toml"))
        return RunInfo(self._configs[folder], Path(folder), tuple(event["clients"]))


class _Worker:
    """One process, and the thread that reads what it tells."""

    def __init__(self, shared: _Shared) -> None:
        self._shared = shared
        self._process = subprocess.Popen(
            [sys.executable, "-m", "fedsac.runs.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C reaches this process alone, which tells the others
        )
        self._thread = Thread(target=self._converse, daemon=True)
        self._thread.start()

    def _converse(self) -> None:
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        try:
            self._order()
        except BrokenPipeError:
            pass  # it has ended: its status says how
        except Exception as error:  # noqa: BLE001 - raised by `resume_spread`: in this thread nobody would hear it
            self._shared.failure = self._shared.failure or error
            self._shared.waiting.clear()
            process.terminate()  # what it is at is committed
        with suppress(BrokenPipeError):
            process.stdin.close()  # no more orders
        for _ in process.stdout:
            pass  # what nobody listens to any more must not fill the pipe
        status = process.wait()
        process.stdout.close()
        if status not in (0, 130):
            self._shared.errors.append(
                f"a process that carried out runs ended with status {status}; the same command goes on"
            )

    def _order(self) -> None:
        """Let the process complete one stack after the other."""
        orders, told = self._process.stdin, self._process.stdout
        assert orders is not None and told is not None
        while (folders := self._shared.next()) is not None:
            start = time.monotonic()
            print(json.dumps({"folders": folders} | self._shared.options), file=orders, flush=True)
            for line in told:
                event = json.loads(line)
                self._shared.told(event)
                if event["what"] in ("done", "failed"):
                    break
            else:
                return
            if event["what"] == "done":
                self._shared.completed(folders, time.monotonic() - start)

    def join(self) -> None:
        while self._thread.is_alive():
            self._thread.join(0.2)  # short, so that Ctrl-C is heard

    def terminate(self) -> None:
        """Let it commit its whole rounds, and end."""
        self._process.terminate()

    def wait(self, until: float) -> None:
        """Wait for that; from then on it is killed."""
        self._thread.join(max(0.0, until - time.monotonic()))
        if self._thread.is_alive():
            self._process.kill()
