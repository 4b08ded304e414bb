"""From raw files to what pages show: a `Row` of `fedsac compare` for each method and label, and sentences on how the
runs were made."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.studies import raw
from benchmarks.studies.definitions import STUDIES, Cell
from benchmarks.studies.raw import Raw
from fedsac.config import RULES
from fedsac.contributions.base import Contributions
from fedsac.core.fairness import bcf, cgs, gamma, gamma_limit, mcg
from fedsac.errors import FedsacError
from fedsac.paper.printed import DATA, scene_name
from fedsac.paper.settings import SCENES
from fedsac.runs.comparison import Row
from fedsac.runs.labels import LABELS, attainable


def read_cells(folder: Path, study: str) -> tuple[dict[Cell, list[Raw]], list[Raw]]:
    """The runs of each cell in the raw files of a folder, by clients, data set and scene; and the files' heads."""
    files = [raw.read(path) for path in sorted(folder.glob("*.json"))]
    if not files:
        raise FedsacError(f"{folder} has no raw files; make some with python -m benchmarks.studies {study} OUT")
    if any(file["study"] != study or file["rules"] != RULES for file in files):
        raise FedsacError(f"{folder}: a raw file is of another study, or was made under other rules than {RULES}")
    cells: dict[Cell, list[Raw]] = {}
    for run in (run for file in files for run in file["runs"]):
        cells.setdefault(Cell(run["data"], run["scene"], run["clients"]), []).append(run)
    scenes = {scene: k for k, scene in enumerate(SCENES)}
    order = sorted(cells, key=lambda cell: (cell.clients, cell.data, scenes.get(cell.scene, len(scenes)), cell.scene))
    heads = [{name: value for name, value in file.items() if name != "runs"} for file in files]
    return {cell: cells[cell] for cell in order}, heads


def named(cell: Cell) -> str:
    """A cell for people: "CIFAR-10 DIR(1.0), 20 clients"."""
    clients = "" if cell.clients == 10 else f", {cell.clients} clients"
    return f"{DATA.get(cell.data, cell.data)} {scene_name(cell.scene)}{clients}"


def not_made(study: str, there: Collection[Cell]) -> list[str]:
    """Which cells of the study are not among these, in words; nothing where none is the study's, as in tries."""
    wanted = STUDIES[study].cells
    missing = [cell for cell in wanted if cell not in there]
    if not missing or len(missing) == len(wanted):
        return []
    return [f"Not made yet are {len(missing)} of {len(wanted)} cells: {'; '.join(map(named, missing))}."]


def rows(runs: Sequence[Raw], contribution_on: str) -> list[Row]:
    """A row for each method and label; `contribution_on` says which contributions the methods knew."""
    made: dict[tuple[str, str], Row] = {}
    for run in runs:
        for label in LABELS:
            row = made.setdefault((run["method"], label), Row(run["method"], label, {}))
            row.seeds.append((run["seed"], run["seed"]))
            for key, value in measured(run, label, contribution_on).items():
                row.values.setdefault(key, []).append(value)
    return list(made.values())


def measured(run: Raw, label: str, contribution_on: str) -> dict[str, float | None]:
    """The columns of one run at one label. The keys are those of `fedsac compare`; `below` counts clients that have
    less than alone, `losers` those that do not have more."""
    c, theta = np.array(run["contributions_test"]), np.array(run["labels"][label]["rewards"])
    contributions = Contributions(tuple(run["contributions"]), tuple(run["contributions_test"]))
    return {
        "gamma": gamma(c, theta),
        "gamma_limit": gamma_limit(c, float(theta.max())),
        "gamma_attainable": attainable(contributions, contribution_on, theta.tolist()),
        "bcf": float(bcf(c, theta).mean()),
        "max": float(theta.max()),
        "mean": float(theta.mean()),
        "gain": mcg(c, theta),
        "gain_spread": cgs(c, theta),
        "losers": float((theta <= c).sum()),
        "below": float((theta < c).sum()),
        "global": run["labels"][label]["global"],
        "megabytes": run["megabytes"],
    }


def by_label(table: Sequence[Row], label: str) -> dict[str, Row]:
    """The rows of one label, by method."""
    return {row.method: row for row in table if row.label == label}


def how_made(heads: Sequence[Raw], cells: dict[Cell, list[Raw]], command: str) -> str:
    """A list for a page's top: the command, and what the raw files say of their making."""
    made: list[dict[str, Any]] = [head["made"] for head in heads]
    runs = [run for found in cells.values() for run in found]
    rounds = sorted({training["rounds"] for head in heads for training in head["training"].values()})
    every = sorted({training["eval_every"] for head in heads for training in head["training"].values()})
    seeds = sorted({run["seed"] for run in runs})
    lines = [
        f"command: `{command}`",
        f"runs: {len(runs)}, of {len({run['method'] for run in runs})} methods in {len(cells)} cells",
        f"seeds: {', '.join(map(str, seeds))}; each draws its own split, the same for all methods",
        f"rounds: {', '.join(map(str, rounds))}, evaluated every {', '.join(map(str, every))}",
        *(f"{name}: {_joined([one.get(name) for one in made])}" for name in ("fedsac", "rules", "commit", "source")),
        *(f"{name}: {_joined([one.get(name) for one in made])}" for name in ("torch", "device")),
        f"seconds: {sum(one['seconds'] for one in made):.0f}",
    ]
    return "\n".join(f"- {line}" for line in lines)


def _joined(values: Sequence[Any]) -> str:
    return ", ".join(dict.fromkeys(str(value) for value in values if value is not None)) or "-"
