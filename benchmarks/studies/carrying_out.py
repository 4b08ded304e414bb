"""Carrying out a study: each part (a cell, or all of them in one stack) in a folder of its own, none twice."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.studies import raw
from benchmarks.studies.definitions import Cell, Study
from fedsac.config import Config
from fedsac.paper import job
from fedsac.runs.spread import resume_spread
from fedsac.runs.watcher import RunInfo, Watcher


def carry_out(
    study: Study,
    cells: Sequence[Cell],
    out: Path,
    watcher: Watcher,
    minutes: float | None = None,
    workers: int = 1,
    **common: Any,
) -> bool:
    """Complete the parts of a study below `out`, and write a raw file for each. Finished ones are left as they are,
    interrupted ones are resumed; after so many minutes no other part is begun. With several workers, as many parts are
    at work at the same time. Returns whether all are finished."""
    start = time.monotonic()
    todo = [
        (name, configs) for name, configs in study.parts(cells, **common) if not _is_finished(study, name, configs, out)
    ]
    if workers > 1:
        return _side_by_side(study, todo, out, watcher, workers, minutes)
    for name, configs in todo:
        if minutes is not None and time.monotonic() - start > 60 * minutes:
            return False
        watcher.note(f"{study.name}, {name}: {len(configs)} runs")
        # As the paper's tables are: hundreds of runs side by side, of which only the numbers stay.
        job.carry_out(configs, out / study.name / name, watcher)
        _write(study, name, configs, out)
    return True


def _side_by_side(
    study: Study,
    todo: Sequence[tuple[str, Sequence[Config]]],
    out: Path,
    watcher: Watcher,
    workers: int,
    minutes: float | None,
) -> bool:
    """Complete parts in several processes. A part has its raw file as soon as it is whole: a machine may be gone
    before the last one is."""
    folders = {name: out / study.name / name for name, _ in todo}
    parts = [(job.begun(configs, folders[name]), folders[name]) for name, configs in todo]
    for (name, configs), (unfinished, _) in zip(todo, parts, strict=True):
        if not unfinished:  # killed between its last run and its raw file
            _write(study, name, configs, out)
    stacks = job.stacks(parts)
    watcher.note(f"{study.name}: {sum(len(configs) for configs, _ in parts)} runs in {workers} processes")

    def done(runs: Sequence[Path], seconds: float) -> None:
        name, configs = next((name, configs) for name, configs in todo if runs[0].is_relative_to(folders[name]))
        # Side by side each is slower: together they have the time that passes.
        job.add_seconds(folders[name], seconds / min(workers, len(stacks)))
        if not job.unfinished(configs, folders[name]):
            _write(study, name, configs, out)
            watcher.note(f"{study.name}, {name}: whole")

    each = {"every_round": False, "keep_models": False}
    return resume_spread(stacks, workers, watcher, **each, minutes=minutes, done=done)


def _is_finished(study: Study, name: str, configs: Sequence[Config], out: Path) -> bool:
    return raw.is_finished(out / study.name / f"{name}.json", study.name, configs)


def _write(study: Study, name: str, configs: Sequence[Config], out: Path) -> None:
    """The raw file of a part whose runs are all finished."""
    folder = out / study.name / name
    runs = [raw.summarised(job.run_folder(folder, config), config, curve=study.curves) for config in configs]
    made = job.provenance(folder, configs, quick=False)
    del made["quick"]
    raw.write(out / study.name / f"{name}.json", raw.head(study.name, configs), made, runs)


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
