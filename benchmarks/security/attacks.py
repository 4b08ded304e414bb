"""Every attack on every method, for one cell: a data set and a scene. Two studies of `fedsac attack`, methods as they
are and ours hardened, and one raw file with what every number on the page follows from."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.studies.carrying_out import Lines
from benchmarks.studies.raw import Raw, as_text
from fedsac.atomic import write_atomic
from fedsac.config import ALL, FORMAT_VERSION, RULES, Config
from fedsac.errors import FedsacError
from fedsac.paper.settings import preset
from fedsac.runs.attack_table import STUDY
from fedsac.runs.attacking import Study, attacks_named, begin, begun, carry_out
from fedsac.runs.workers import Workers

PLAIN = "plain"
PARTS = {  # studies of a cell, and their methods: as they are, and hardened
    PLAIN: ("fedsac", "fedsac-plus", "fedrac", "cgsv", "cffl", "rffl", "fedavg"),
    "hardened": ("fedsac",),
    "hardened-plus": ("fedsac-plus",),
}
OPTIONS = {"reward_by": "own"}  # CGSV, CFFL and RFFL reward by their own rules, not by our contributions
CLIENTS = 12
DIGITS = {"rounds": 50, "hidden": (64, 64)}  # what two cores do in half an hour
IMAGES = {"rounds": 100, "contribution_on": "validation"}  # the server measures on its own data, as it would
SHOWN = ("rounds", "hidden", "lr", "local_steps", "batch", "beta", "clients", "data", "scene")
KEPT = ("attack", "method", "seed", "attackers", "one_party", "kept", "success", "found", "clients", "rewards")


@dataclass(frozen=True)
class Cell:
    """A data set and a scene, with as many seeds; `changes` are other settings than the usual ones."""

    data: str
    scene: str
    seeds: int
    attacks: str
    changes: dict[str, Any]

    @property
    def name(self) -> str:
        return f"{self.data}-{self.scene}".replace(":", "-")

    def config(self) -> Config:
        own = DIGITS if self.data == "digits" else preset("paper", self.data, self.scene) | IMAGES
        settings = {"data": self.data, "scene": self.scene, "clients": CLIENTS} | own | self.changes
        return Config(**settings | {"eval_every": settings["rounds"]})

    def study(self, part: str) -> Study:
        base = self.config().replace(hardened=None if part == PLAIN else ALL)
        return Study(base, attacks_named(self.attacks), PARTS[part], self.seeds, OPTIONS if part == PLAIN else {})


class Progress(Lines):
    """Without what single runs remark: there would be thousands of lines about who is suspected."""

    def note(self, text: str) -> None:
        pass

    def stage(self, where: str, what: str, runs: int) -> None:
        self.line(f"{where}: {what}, {runs} to do")


def collect(
    cell: Cell, out: Path, watcher: Progress, parts: Iterable[str] = tuple(PARTS), workers: Workers | None = None
) -> Path:
    """Carry out what is missing of a cell below `out`. Returns the raw file of all parts that are done."""
    for part in parts:
        folder = out / cell.name / part
        if not (folder / STUDY).exists():
            begin(cell.study(part), folder)
        elif (there := begun(folder)) != cell.study(part):
            raise FedsacError(f"{folder} holds another study ({there.seeds} seeds); name another folder, or remove it")
        carry_out(folder, watcher, partial(watcher.stage, f"{cell.name}, {part}"), workers)
    written = out / f"{cell.name}.json"
    write_atomic(written, _text(cell, out).encode())
    return written


def _text(cell: Cell, out: Path) -> str:
    """The raw file: one line for each run, so that two files can be compared with diff."""
    config = cell.config()
    head = {"format_version": FORMAT_VERSION, "rules": RULES, "label": "last"}
    head |= {name: getattr(config, name) for name in SHOWN}
    done = {part: out / cell.name / part / "results.json" for part in PARTS}
    runs = [
        run | {"method": run["method"] + ("" if part == PLAIN else ", hardened")}
        for part, results in done.items()
        if results.exists()
        for run in json.loads(results.read_text())["runs"]
    ]
    clean = {(run["method"], run["seed"]): _clean(run) for run in runs}
    lines = [*clean.values(), *({name: run[name] for name in KEPT} for run in runs)]
    return as_text(head, lines)


def _clean(run: Raw) -> Raw:
    return {"attack": "clean", "method": run["method"], "seed": run["seed"], **run["clean"]}
