"""Of two clients who hand in one model, whose is it? How often the first round takes the thief for the owner.

Twelve honest clients train alone, and then for one round, from the same initial weights. For every two of them: had the
second handed in a copy of the first one's model, whose step would fit it better? Measured by `fits` of
`fedsac.defences.originals`, and by the cosine of whole steps, which hardened mode went by before; with the whole
network held, and with a quarter of it, as by clients that are sent little."""

import json
from collections.abc import Iterator, Sequence
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
from fedsac.contributions.measurement import Measurement
from fedsac.contributions.standalone import trained_alone
from fedsac.defences.originals import fits
from fedsac.paper.settings import preset
from fedsac.rng import stream
from fedsac.runs.setup import prepare

SCENES = ("iid", "pow", "cla", "dir:1.0")
FIRST_SEED = 400  # none that a defence was designed on
SETTINGS: dict[str, dict[str, Any]] = {
    "digits": {"hidden": (64, 64), "rounds": 50},
    "fashion-mnist": preset("paper", "fashion-mnist", "dir:1.0") | {"rounds": 60, "samples_per_client": 2000},
}
HELD = (1.0, 0.25)
Row = dict[str, Any]


def collect(out: Path, seeds: int, data: tuple[str, ...], data_dir: str | None) -> Path:
    out.mkdir(parents=True, exist_ok=True)
    rows = []
    for source in data:
        for scene in SCENES:
            for seed in range(FIRST_SEED, FIRST_SEED + seeds):
                config = Config(data=source, scene=scene, seed=seed, clients=12, data_dir=data_dir, **SETTINGS[source])
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
    scenes = list(dict.fromkeys(row["scene"] for row in rows))
    yield "| data | held | " + " | ".join(named(Cell("", scene, 10)).strip() for scene in scenes) + " |"
    yield "| --- | --- |" + " ---: |" * len(scenes)
    for data, share in dict.fromkeys((row["data"], row["held"]) for row in rows):
        cells = []
        for scene in scenes:
            own = [row for row in rows if (row["data"], row["held"], row["scene"]) == (data, share, scene)]
            pairs = sum(row["pairs"] for row in own)
            taken = [100 * sum(row[key] for row in own) / pairs for key in ("fits", "whole_steps")]
            cells.append(f"{taken[0]:.1f} ({taken[1]:.1f})")
        yield f"| {data} | {'all' if share == 1 else f'{share:.0%}'} | " + " | ".join(cells) + " |"


def measured(config: Config) -> Iterator[Row]:
    """For each share of the network that is held: of how many pairs, and how many were taken for each other."""
    ready = prepare([config])[0]
    clients, initial = ready.clients, ready.initial
    alone = Measurement(clients, initial, config.alone(), ready.validation, ready.test, ready.metric)
    ways = trained_alone([alone])[0] - initial
    n = len(ways)
    first = Job(clients, initial.expand(n, -1), None, (config.local_steps,) * n, "batches", 0)
    steps = train([first])[0].models - initial
    order = torch.from_numpy(stream(config.seed, "held").permutation(ready.layout.neurons))
    for share in HELD:
        held = ready.layout.held((order < share * len(order)).to(initial.device))
        whole = apart = 0
        for owner in range(n):
            for thief in range(n):
                if owner != thief:
                    whole += _taken(torch.cosine_similarity(*_pair(steps, ways, owner, thief, held), dim=1).tolist())
                    others = [k for k in range(n) if k not in (owner, thief)]
                    both = steps[[owner, thief]]
                    apart += _taken(fits(both, ways[owner], steps[others], ways[others], held))
        yield {"held": share, "pairs": n * (n - 1), "whole_steps": whole, "fits": apart}


def _pair(steps: Tensor, ways: Tensor, owner: int, thief: int, held: Tensor) -> tuple[Tensor, Tensor]:
    return torch.where(held, steps[[owner, thief]], 0).double(), torch.where(held, ways[[owner]], 0).double()


def _taken(fit: list[float]) -> int:
    """1 where the thief, who stands second, is taken for the owner."""
    return int(fit[1] >= fit[0])
