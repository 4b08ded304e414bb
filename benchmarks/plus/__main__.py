"""`python -m benchmarks.plus OUT [--study second] [--device cuda]`: variants of FedSAC+ and what they are measured
against, on development splits; a table of all, and every number in OUT.

Numbers are means over the last five evaluated rounds (every tenth) and over split seeds 100 and 101, or `--seeds N`
from 100 on. Cells that were carried out apart (`--only`) are joined with `--join FILE`.
"""

import argparse
import json
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from fedsac import Config
from fedsac.core.fairness import bcf, gamma, gamma_attainable, gamma_limit
from fedsac.paper.settings import preset
from fedsac.runs.start import run_together

V = "benchmarks.plus.variants:Variant"
FIRST: dict[str, tuple[str, dict[str, Any]]] = {
    "room 2": (V, {}),
    "room 1": (V, {"room": 1.0}),
    "room 1.5": (V, {"room": 1.5}),
    "generous .005": (V, {"generous": 0.005}),
    "generous .01": (V, {"generous": 0.01}),
    "generous .02": (V, {"generous": 0.02}),
    "generous .01, room 1": (V, {"generous": 0.01, "room": 1.0}),
    "generous .01, rate .5": (V, {"generous": 0.01, "rate": 0.5}),
    "generous .01, rate .3": (V, {"generous": 0.01, "rate": 0.3}),
    "generous .01, damping 1": (V, {"generous": 0.01, "damping": 1.0}),
    "generous .01, damping .5": (V, {"generous": 0.01, "damping": 0.5}),
    "generous .01, weigh 2": (V, {"generous": 0.01, "weigh": 2.0}),
    "generous .01, no server steps": (V, {"generous": 0.01, "server_steps": 0}),
    "generous .01, rate .5, 40 steps": (V, {"generous": 0.01, "rate": 0.5, "server_steps": 40}),
    "FedAvg": ("fedavg", {}),
    "FedAvg, server steps": ("fedavg-server", {}),
    "FedAvg, server steps, rate .5": ("benchmarks.plus.variants:FedAvgRate", {"rate": 0.5}),
    "FedSAC": ("fedsac", {}),
    "FedSAC over N": ("fedsac-over-n", {}),
}
SECOND: dict[str, tuple[str, dict[str, Any]]] = {
    f"generous .005, damping {damping:g}, weigh {weigh:g}": (
        V,
        {"generous": 0.005, "damping": damping, "weigh": weigh},
    )
    for damping, weigh in ((0.5, 0.0), (0.5, -1.0), (0.5, -2.0), (0.5, -3.0), (0.25, -2.0), (1.0, -2.0))
}
SECOND |= {
    "generous .02, damping .5, weigh -2": (V, {"generous": 0.02, "damping": 0.5, "weigh": -2.0}),
    "FedAvg, server steps": FIRST["FedAvg, server steps"],
}
OURS = {"generous": 0.005, "damping": 0.5}
THIRD: dict[str, tuple[str, dict[str, Any]]] = {
    "FedSAC+": (V, OURS),
    "samples": (V, OURS | {"samples": 1.0}),
    "rate 1.5": (V, OURS | {"rate": 1.5}),
    "samples, rate 1.5": (V, OURS | {"samples": 1.0, "rate": 1.5}),
    "samples, damping .25": (V, OURS | {"samples": 1.0, "damping": 0.25}),
    "FedAvg, server steps": FIRST["FedAvg, server steps"],
    "FedAvg, server steps, rate 1.5": ("benchmarks.plus.variants:FedAvgRate", {"rate": 1.5}),
}
RIVALS: dict[str, tuple[str, dict[str, Any]]] = {
    f"Aequa, least width {width:g}": ("aequa", {"least_width": width}) for width in (0.05, 0.1, 0.25, 0.5, 0.75)
}
A = "benchmarks.plus.variants:Averaged"
FOURTH: dict[str, tuple[str, dict[str, Any]]] = {
    "FedSAC+": ("fedsac-plus", {}),
    "mean .8": (A, {"decay": 0.8}),
    "mean .9": (A, {"decay": 0.9}),
    "mean .95": (A, {"decay": 0.95}),
    "mean .9, damping .25": (A, {"decay": 0.9, "damping": 0.25}),
    "mean .9, damping 0": (A, {"decay": 0.9, "damping": 0.0}),
    "mean .9, 40 steps": (A, {"decay": 0.9, "server_steps": 40}),
    "mean .9, no server steps": (A, {"decay": 0.9, "server_steps": 0}),
    "mean .9, room 1.5": (A, {"decay": 0.9, "room": 1.5}),
    "FedAvg, server steps": FIRST["FedAvg, server steps"],
    "FedAvg, server steps, mean .9": ("benchmarks.plus.variants:FedAvgAveraged", {"decay": 0.9}),
    "FedAvg, server steps, mean .95": ("benchmarks.plus.variants:FedAvgAveraged", {"decay": 0.95}),
}
K = "benchmarks.plus.variants:Kept"
FIFTH: dict[str, tuple[str, dict[str, Any]]] = {
    "FedSAC+": ("fedsac-plus", {}),
    "kept mean .9": (K, {"decay": 0.9}),
    "kept mean .95": (K, {"decay": 0.95}),
}
S = "benchmarks.plus.variants:ServerOrder"
SIXTH: dict[str, tuple[str, dict[str, Any]]] = {
    "FedSAC+": ("fedsac-plus", {}),
    "order from the other half": (S, {}),
    "order from the other half, room 1.5": (S, {"room": 1.5}),
    "order from the other half, room 1": (S, {"room": 1.0}),
    "FedAvg, server steps": FIRST["FedAvg, server steps"],
}
STUDIES = {
    "first": FIRST,
    "second": SECOND,
    "third": THIRD,
    "fourth": FOURTH,
    "fifth": FIFTH,
    "sixth": SIXTH,
    "rivals": RIVALS,
}
CELLS = [("cifar10", scene) for scene in ("pow", "cla", "dir:1.0", "dir:2.0", "dir:3.0")]
CELLS += [("fashion-mnist", scene) for scene in ("pow", "cla", "dir:1.0", "dir:3.0")]
FIRST_SEED = 100


def config(data: str, scene: str, method: str, options: dict[str, Any], seed: int, rounds: int, device: str) -> Config:
    settings = preset("paper", data, scene) | {"contribution_on": "validation"}
    each = {} if scene.startswith("dir") else {"samples_per_client": 2000}
    place = f"benchmarks.plus.development:{data.replace('-', '_')}"
    return Config(
        data=place, scene=scene, method=method, options=options, seed=seed, clients=10, rounds=rounds, eval_every=10,
        device=device, **settings, **each,
    )  # fmt: skip


def measured(result: Any) -> dict[str, Any]:
    """What one run shows at the end: means over its last five evaluated rounds."""
    c_v, c = np.array(result.contributions.validation), np.array(result.contributions.test)
    evaluated = [record for record in result.records if record["rewards"] is not None][-5:]
    rows = []
    for record in evaluated:
        theta = np.array(record["rewards"])
        best = float(theta.max())
        whole = best if record["global_accuracy"] is None else record["global_accuracy"]
        rows.append(
            {
                "gamma": gamma(c, theta) or 0.0,
                "limit": gamma_limit(c, best) or np.nan,
                "attainable": gamma_attainable(c, c_v, float(whole)) or np.nan,
                "bcf": bcf(c, theta).mean(),
                "best": best,
                "whole": whole,
                "mean": theta.mean(),
                "losers": (theta <= c).sum(),
            }
        )
    means: dict[str, Any] = {key: float(np.nanmean([row[key] for row in rows])) for key in rows[0]}
    # What every one of them follows from.
    return means | {"c": c.tolist(), "c_v": c_v.tolist(), "rewards": [record["rewards"] for record in evaluated]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--study", choices=STUDIES, default="first")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--only", default="")
    parser.add_argument("--join", type=Path, nargs="+", metavar="FILE", help="run nothing; show and join these")
    chosen = parser.parse_args()
    found: dict[str, dict[str, dict[str, float]]] = defaultdict(dict)
    if chosen.join:
        for path in chosen.join:
            found |= json.loads(path.read_text())
        (chosen.out / f"{chosen.study}.json").write_text(json.dumps(found, indent=1))
        table(found)
        return
    cells = [cell for cell in CELLS if chosen.only in f"{cell[0]} {cell[1]}"]
    for data in dict.fromkeys(data for data, _ in cells):
        start = time.time()
        wanted = [
            (name, scene, seed, config(data, scene, *variant, seed, chosen.rounds, chosen.device))
            for _, scene in [cell for cell in cells if cell[0] == data]
            for seed in range(FIRST_SEED, FIRST_SEED + chosen.seeds)
            for name, variant in STUDIES[chosen.study].items()
        ]
        results = run_together([one[-1] for one in wanted])
        for (name, scene, seed, _), result in zip(wanted, results, strict=True):
            found[f"{data} {scene}"].setdefault(name, {})  # type: ignore[arg-type]
            found[f"{data} {scene}"][name][str(seed)] = measured(result)  # type: ignore[assignment]
        chosen.out.mkdir(parents=True, exist_ok=True)
        (chosen.out / f"{chosen.study}.json").write_text(json.dumps(found, indent=1))
        print(f"{data}: {time.time() - start:.0f} s", flush=True)
    table(found)


def table(found: dict[str, Any]) -> None:
    """A line for each cell and variant."""
    keys = ("gamma", "attainable", "limit", "bcf", "best", "whole", "mean", "losers")
    for cell, variants in found.items():
        print(f"{cell:34}" + "".join(f"{key:>11}" for key in keys))
        for name, seeds in variants.items():
            means = {key: np.mean([one[key] for one in seeds.values()]) for key in keys}
            digits = {"gamma": 2, "attainable": 2, "limit": 2, "bcf": 3, "losers": 2}
            print(f"  {name:32}" + "".join(f"{means[key]:11.{digits.get(key, 4)}f}" for key in keys))


main()
