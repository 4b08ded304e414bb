"""Every attack on every method, for one cell: a data set and a scene. Studies of `fedsac attack`, methods as they are,
ours hardened, and each defence alone; runs in which clients are missing; and one raw file with what every number on the
page follows from."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.studies.carrying_out import Lines
from benchmarks.studies.raw import Raw, as_text
from fedsac.atomic import write_atomic
from fedsac.config import ALL, DEFENCES, FORMAT_VERSION, RULES, Config
from fedsac.errors import FedsacError
from fedsac.paper import job
from fedsac.paper.settings import preset
from fedsac.runs.attack_table import STUDY, detected
from fedsac.runs.attacking import Study, attacks_named, begin, begun, carry_out
from fedsac.runs.workers import Workers, spread

OURS = ("fedsac", "fedsac-plus")
# Who has least has most to gain: these once more by the two smallest clients.
SMALLEST = tuple(
    f"{name}@smallest"
    for name in (
        *("borrow-global", "launder", "launder-tuned", "launder-distilled", "borrow-distilled"),
        *("hoard", "hoard-together", "regrow", "fine-tune", "sybils"),
    )
)
# Each defence alone against these: what it is meant for, and what it is not. Where nobody is hostile, whom the server
# names is an honest client: `claim` changes nothing.
ALONE = (
    *("claim", "zero", "late-switch", "borrow-noised", "launder", "sybils", "hoard", "hoard@smallest"),
    *("rescale", "rescale@top", "sign-flip", "alie", "sole-holder@top"),
)
MISSING = "absent:0.3"
OPTIONS = {"reward_by": "own"}  # CGSV, CFFL and RFFL reward by their own rules, not by our contributions
CLIENTS = 12
DIGITS = {"rounds": 50, "hidden": (64, 64)}  # what two cores do in an hour or two
IMAGES = {"rounds": 60, "contribution_on": "validation"}  # the server measures on its own data, as it would
SHOWN = ("rounds", "hidden", "lr", "local_steps", "batch", "beta", "clients", "data", "scene")
KEPT = ("attack", "method", "seed", "attackers", "one_party", "kept", "success", "found", "clients", "rewards")


@dataclass(frozen=True)
class Part:
    """A study of a cell: these methods, with the defences of `hardened`, and once more with those of each of `also`."""

    methods: tuple[str, ...]
    attacks: tuple[str, ...]
    hardened: str | None = None
    also: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    def named(self, subject: str) -> str:
        """What a subject of the study is called on the page: fedsac, or "fedsac, hardened work"."""
        return f"{subject}, hardened {self.hardened}" if self.hardened and "," not in subject else subject


FIRST, *OTHERS = (name for name in DEFENCES if name != "commit")  # which changes no number
PARTS = {
    "ours": Part(OURS, attacks_named("all") + SMALLEST, also=(ALL,)),
    "defences": Part(OURS[:1], ALONE, hardened=FIRST, also=tuple(OTHERS)),
    "others": Part(("fedrac", "cgsv", "cffl", "rffl", "fedavg"), attacks_named("all"), options=OPTIONS),
}
AWAY = "missing"  # a part that is no study of attacks: clients stay away at random


@dataclass(frozen=True)
class Cell:
    """A data set and a scene, with as many seeds; `attacks` and `methods` are all, or some; `changes` are other
    settings than the usual ones."""

    data: str
    scene: str
    seeds: int
    attacks: str
    changes: dict[str, Any]
    methods: str = "all"

    @property
    def name(self) -> str:
        return f"{self.data}-{self.scene}".replace(":", "-")

    def config(self) -> Config:
        own = DIGITS if self.data == "digits" else preset("paper", self.data, self.scene) | IMAGES
        settings = {"data": self.data, "scene": self.scene, "clients": CLIENTS} | own | self.changes
        return Config(**settings | {"eval_every": settings["rounds"]})

    def study(self, part: Part) -> Study | None:
        """None where no attack, or no method, of this part was asked for."""
        attacks, methods = _some(part.attacks, self.attacks), _some(part.methods, self.methods)
        base = self.config().replace(hardened=part.hardened)
        also = tuple({"hardened": defences} for defences in part.also)
        return Study(base, attacks, methods, self.seeds, part.options, also) if attacks and methods else None

    def missing(self) -> Iterator[tuple[str, Config]]:
        """Runs of ours in which clients stay away at random, by the names of their methods on the page."""
        for hardened in (None, ALL):
            for method in _some(OURS, self.methods):
                base = self.config().replace(method=method, behaviour=MISSING, hardened=hardened)
                named = method if hardened is None else f"{method}, hardened {hardened}"
                for seed in range(base.seed, base.seed + self.seeds):
                    yield f"{named}, missing", base.replace(seed=seed)


def _some(names: tuple[str, ...], wanted: str) -> tuple[str, ...]:
    """Those of the names that were asked for."""
    return names if wanted == "all" else tuple(name for name in names if name in wanted.split(","))


class Progress(Lines):
    """Without what single runs remark: there would be thousands of lines about who is suspected."""

    def note(self, text: str) -> None:
        pass

    def stage(self, where: str, what: str, runs: int) -> None:
        self.line(f"{where}: {what}, {runs} to do")


def collect(
    cell: Cell, out: Path, watcher: Progress, parts: Iterable[str] = (*PARTS, AWAY), workers: Workers | None = None
) -> Path:
    """Carry out what is missing of a cell below `out`. Returns the raw file of all parts that are done."""
    for name in parts:
        _carry_out(cell, name, out / cell.name / name, watcher, workers)
    written = out / f"{cell.name}.json"
    write_atomic(written, _text(cell, out).encode())
    return written


def _carry_out(cell: Cell, name: str, folder: Path, watcher: Progress, workers: Workers | None) -> None:
    if name == AWAY:
        _stay_away(cell, folder, watcher, workers)
    elif (study := cell.study(PARTS[name])) is not None:
        if not (folder / STUDY).exists():
            begin(study, folder)
        elif (there := begun(folder)) != study:
            raise FedsacError(f"{folder} holds another study ({there.seeds} seeds); name another folder, or remove it")
        carry_out(folder, watcher, partial(watcher.stage, f"{cell.name}, {name}"), workers)


def _stay_away(cell: Cell, folder: Path, watcher: Progress, workers: Workers | None) -> None:
    configs = {_run_folder(folder, named, config): config for named, config in cell.missing()}
    todo = {path: config for path, config in configs.items() if not (path / "summary.json").exists()}
    if todo:
        watcher.stage(f"{cell.name}, {AWAY}", "runs", len(todo))
        spread(todo, workers or Workers(1, ray=False), watcher, keep_models=False)


def _run_folder(folder: Path, named: str, config: Config) -> Path:
    return folder / f"{named.replace(', ', '-').replace(' ', '-')}-seed{config.seed}"


def _text(cell: Cell, out: Path) -> str:
    """The raw file: one line for each run, so that two files can be compared with diff."""
    config = cell.config()
    head: Raw = {"format_version": FORMAT_VERSION, "rules": RULES, "label": "last"}
    head |= {name: getattr(config, name) for name in SHOWN}
    head["made"] = job.provenance(out / cell.name, [config], quick=False)
    del head["made"]["quick"], head["made"]["seconds"]  # of parts that may have been made side by side
    runs, wrecks = list[Raw](), list[Raw]()
    for name, part in PARTS.items():
        if (path := out / cell.name / name / "results.json").exists():
            results = json.loads(path.read_text())
            runs += [run | {"method": part.named(run["method"])} for run in results["runs"]]
            wrecks += [
                one | {"method": part.named(one["method"]), "wrecked": True} for one in results.get("wrecks", ())
            ]
    clean = {(run["method"], run["seed"]): _clean(run) for run in runs}
    lines = [
        *clean.values(),
        *_missing(cell, out / cell.name / AWAY),
        *({name: run[name] for name in KEPT} for run in runs),
        *wrecks,
    ]
    return as_text(head, lines)


def _clean(run: Raw) -> Raw:
    return {"attack": "clean", "method": run["method"], "seed": run["seed"], **run["clean"]}


def _missing(cell: Cell, folder: Path) -> Iterator[Raw]:
    for named, config in cell.missing():
        path = _run_folder(folder, named, config)
        if (path / "summary.json").exists():
            summary = json.loads((path / "summary.json").read_text())
            records = [json.loads(line) for line in (path / "rounds.jsonl").read_text().splitlines()]
            watched = {"attack": {"removed": [], "defended": config.hardened is not None}}
            found = detected(watched, records)
            yield {
                **{"attack": "clean", "method": named, "seed": config.seed, "clients": summary["client_names"]},
                **{key: summary[key] for key in ("rewards", "contributions", "contributions_test")},
                "found": None if found is None else sorted(found),
            }
