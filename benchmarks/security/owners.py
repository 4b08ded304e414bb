"""Of two clients who hand in one model, whose is it? How often the first rounds take the thief for the owner.

Twelve honest clients train alone, and then for five rounds together, from the same initial weights. For every two of
them: had the second handed in a copy of the first one's model, whose steps would fit it better, added up over one, two,
and up to five rounds? Measured by `fits` of `fedsac.defences.originals`, and by the cosine of whole steps; with the
whole network held by all (each round begins from the mean of their models), and in a hardened run, within what it lets
both clients hold."""

import json
from collections.abc import Iterator, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.security.marked import write_between
from benchmarks.studies.definitions import Cell
from benchmarks.studies.measures import named
from benchmarks.studies.raw import as_text
from fedsac.atomic import write_atomic
from fedsac.clients.training import Job, train
from fedsac.config import FORMAT_VERSION, RULES, Config
from fedsac.defences.originals import ROUNDS, fits
from fedsac.paper.settings import preset
from fedsac.runs.hardening import HANDED_IN, defended
from fedsac.runs.local import LocalEngine
from fedsac.runs.prepared import Prepared
from fedsac.runs.running import Running
from fedsac.runs.setup import prepare
from fedsac.runs.start import nobody_absent
from fedsac.runs.watcher import Watcher

SCENES = ("iid", "pow", "cla", "dir:1.0")
FIRST_SEED = 400  # none that a defence was designed on
FASHION = preset("paper", "fashion-mnist", "dir:1.0") | {"rounds": 60, "samples_per_client": 2000}
SETTINGS: dict[str, dict[str, Any]] = {
    "digits": {"hidden": (64, 64), "rounds": 50},
    "fashion-mnist": FASHION,
    "fashion-mnist, lr .1": FASHION | {"lr": 0.1},  # Table 9's in POW
}
KEYS = "fits", "whole_steps"
Row = dict[str, Any]


def collect(out: Path, seeds: int, data: tuple[str, ...], data_dir: str | None) -> Path:
    out.mkdir(parents=True, exist_ok=True)
    rows = []
    for source in data:
        for scene in SCENES:
            for seed in range(FIRST_SEED, FIRST_SEED + seeds):
                config = Config(
                    data=source.split(",")[0], scene=scene, seed=seed, clients=12, data_dir=data_dir, **SETTINGS[source]
                )
                rows += [{"data": source, "scene": scene, "seed": seed, **row} for row in measured(config)]
            print(json.dumps(rows[-1]), flush=True)
    written = out / "owners.json"
    head = {"format_version": FORMAT_VERSION, "rules": RULES, "clients": 12, "settings": {d: SETTINGS[d] for d in data}}
    write_atomic(written, as_text(head, rows).encode())
    return written


def write(docs: Path) -> Path:
    """Write the table into docs/hardening.md."""
    raw = json.loads((docs / "results" / "owners.json").read_text())
    return write_between(docs / "hardening.md", "owners", _table(raw["runs"]))


def _table(rows: Sequence[Row]) -> Iterator[str]:
    yield "| data | held | scene | " + " | ".join(f"{k + 1}" for k in range(ROUNDS)) + " |"
    yield "| --- | --- | --- |" + " ---: |" * ROUNDS
    for data, held, scene in dict.fromkeys((row["data"], row["held"], row["scene"]) for row in rows):
        own = [row for row in rows if (row["data"], row["held"], row["scene"]) == (data, held, scene)]
        pairs = sum(row["pairs"] for row in own)
        taken = {key: [100 * sum(row[key][k] for row in own) / pairs for k in range(ROUNDS)] for key in KEYS}
        cells = [f"{apart:.1f} ({whole:.1f})" for apart, whole in zip(*taken.values(), strict=True)]
        yield f"| {data} | {held} | {named(Cell('', scene, 10)).strip()} | " + " | ".join(cells) + " |"


def measured(config: Config) -> Iterator[Row]:
    """For each way to hold the network: of how many pairs, and how many were taken for each other after so many rounds,
    by each key."""
    run, engine = Running(prepare([config.replace(hardened="all")])[0]), LocalEngine(Watcher(), nobody_absent)
    engine.gather([run])
    ready = run.prepared
    handed_in = torch.stack([run.guard[f"{HANDED_IN}{name}"] for name in run.task.clients])
    ways = handed_in - ready.initial
    everything = torch.ones_like(ways, dtype=torch.bool)
    rounds = {
        "all": [(steps, everything) for steps in _steps(ready)],
        "hardened": list(_hardened_steps(run, engine)),
    }
    for held, each in rounds.items():
        yield {"held": held, "pairs": len(ways) * (len(ways) - 1)} | _taken(each, ways)


def _steps(ready: Prepared) -> Iterator[Tensor]:
    """The clients' steps [N, parameters] of each round, in which all train the mean of their models."""
    model, n = ready.initial, len(ready.clients.names)
    for k in range(ROUNDS):
        job = Job(ready.clients, model.expand(n, -1), None, (ready.config.local_steps,) * n, "batches", k)
        steps = train([job])[0].models - model
        yield steps
        model = model + steps.mean(0)


def _hardened_steps(run: Running, engine: LocalEngine) -> Iterator[tuple[Tensor, Tensor]]:
    """The clients' steps in each round of a hardened run, and what each held, both [N, parameters]."""
    for _ in range(ROUNDS):
        updates = engine.train([run]).updates()[0]
        held = run.prepared.layout.held(updates.neurons)
        sent = torch.stack([updates.assignment.model(i) for i in updates.clients])
        yield torch.where(held, updates.params - sent, 0), held
        run.learn(defended(run, updates).kept)
        run.assign()
        run.round += 1


def _taken(rounds: Sequence[tuple[Tensor, Tensor]], ways: Tensor) -> dict[str, list[int]]:
    """How many pairs are taken for each other, by each key, after each round."""
    taken = {key: [0] * len(rounds) for key in KEYS}
    for owner, thief in permutations(range(len(ways)), 2):
        others = [k for k in range(len(ways)) if k not in (owner, thief)]
        ahead = dict.fromkeys(KEYS, 0.0)  # how much better the owner's steps fitted so far
        for k, (steps, held) in enumerate(rounds):
            within, moved, come = held[[owner, thief]].all(0), steps, ways
            if not within.all():  # nothing else is looked at: leaving it out saves time
                within, moved, come = within[within], steps[:, within], ways[:, within]
            both, one = moved[[owner, thief]], come[owner]
            found = {
                "fits": fits(both, one, moved[others], come[others], within),
                "whole_steps": fits(both, one, moved[:0], come[:0], within),  # nothing is taken out
            }
            for key, (own, other) in found.items():
                ahead[key] += own - other
                taken[key][k] += ahead[key] <= 0
    return taken
