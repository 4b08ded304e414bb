"""Carrying out a study: each part (a cell, or all of them in one stack) in a folder of its own, none twice."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.studies import raw
from benchmarks.studies.definitions import Cell, Study
from fedsac.config import Config
from fedsac.paper import job
from fedsac.runs.watcher import RunInfo, Watcher


def carry_out(
    study: Study, cells: Sequence[Cell], out: Path, watcher: Watcher, minutes: float | None = None, **common: Any
) -> bool:
    """Complete the parts of a study below `out`, and write a raw file for each. Finished ones are left as they are,
    interrupted ones are resumed; after so many minutes no other part is begun. Returns whether all are finished."""
    start = time.monotonic()
    for name, configs in study.parts(cells, **common):
        written = out / study.name / f"{name}.json"
        if raw.is_finished(written, study.name, configs):
            continue
        if minutes is not None and time.monotonic() - start > 60 * minutes:
            return False
        watcher.note(f"{study.name}, {name}: {len(configs)} runs")
        _carry_out(study, configs, out / study.name / name, written, watcher)
    return True


def _carry_out(study: Study, configs: Sequence[Config], folder: Path, written: Path, watcher: Watcher) -> None:
    """The runs of one part, and its raw file."""
    # As the paper's tables are: hundreds of runs side by side, of which only the numbers stay.
    job.carry_out(configs, folder, watcher)
    runs = [raw.summarised(job.run_folder(folder, config), config, curve=study.curves) for config in configs]
    made = job.provenance(folder, configs, quick=False)
    del made["quick"]
    raw.write(written, raw.head(study.name, configs), made, runs)


class Lines(Watcher):
    """Progress as plain lines: a machine that only computes has no other screen."""

    SECONDS = 20.0  # between two lines

    def __init__(self) -> None:
        self._start = self._said = time.monotonic()
        self._rounds = 0

    def alone(self, step: int, steps: int) -> None:
        self._say(f"alone, step {step} of {steps}")

    def round(self, run: RunInfo, record: dict[str, Any]) -> None:
        self._rounds += 1
        self._say(f"round {record['round']} of {run.config.rounds}, {run.name}; {self._rounds} rounds done")

    def note(self, text: str) -> None:
        self.line(text)

    def line(self, text: str) -> None:
        print(f"{time.monotonic() - self._start:7.0f} s  {text}", flush=True)

    def _say(self, text: str) -> None:
        if time.monotonic() - self._said >= self.SECONDS:
            self._said = time.monotonic()
            self.line(text)
