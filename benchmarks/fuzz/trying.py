"""Trying a reader with damaged payloads, in a forked process that may take little more memory than it has."""

import json
import logging
import os
import resource
import signal
import tempfile
import traceback
from pathlib import Path
from typing import IO, NamedTuple

import torch

from benchmarks.fuzz.mutator import mutated
from benchmarks.fuzz.readers import Reader
from fedsac.errors import FedsacError

MEGABYTES = 256  # beside what the process has when it is forked
HANGS_AFTER_SECONDS = 60  # for one payload


class Tried(NamedTuple):
    """What became of payloads: how many were read, how many refused, and the first that did anything else."""

    read: int = 0
    refused: int = 0
    grown: int = 0  # KiB that the peak of resident memory rose by
    fell: str = ""


def tried(reader: Reader, numbers: range) -> Tried:
    """Mutations of these numbers read one after another, until one falls over."""
    with tempfile.TemporaryFile("w+") as told:
        child = os.fork()
        if child == 0:
            try:
                _limit()
                # OpenMP's threads do not survive a fork: whoever waits for them waits for ever.
                torch.set_num_threads(1)
                logging.disable()
                told.write(json.dumps(_read_all(reader, numbers, told)))
                told.flush()
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        reader.restore()
        told.seek(0)
        last = told.read().splitlines()[-1:] or [""]
        try:
            return Tried(*json.loads(last[0]))
        except (ValueError, TypeError):
            ended = os.waitstatus_to_exitcode(status)
            return Tried(fell=f"{reader.name}: the process ended by {ended} at number {last[0] or '?'}")


def _limit() -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + (MEGABYTES << 20),) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _read_all(reader: Reader, numbers: range, told: IO[str]) -> Tried:
    """Which number is at work is written down, in case the process does not survive it."""
    read = refused = 0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    progress = os.dup(told.fileno())
    for number in numbers:
        os.write(progress, f"{number}\n".encode())
        payload = mutated(reader.payload, reader.name, number)
        signal.alarm(HANGS_AFTER_SECONDS)
        try:
            reader.read(payload)
            read += 1
        except FedsacError as error:
            refused += 1
            if (said := str(error)).count("\n") or not said.strip():
                return Tried(read, refused, 0, f"{reader.name} {number}: not one line: {said[:300]!r}")
        except BaseException:  # noqa: BLE001  what must not come out
            shown = traceback.format_exc(limit=-4)
            return Tried(read, refused, 0, f"{reader.name} {number}: {shown[-1500:]}")
    signal.alarm(0)
    return Tried(read, refused, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
