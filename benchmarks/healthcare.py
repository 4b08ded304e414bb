"""The worked case of docs/healthcare.md over several draws of the patients: is anybody worse off than alone?

    python -m benchmarks.healthcare --seeds 10 --methods fedsac,fedsac-plus

Each seed writes the four hospitals' messy tables anew, proposes a schema with one command, and trains on them. The
table has, for every hospital and method, the mean AUC of its reward and of its model alone, on the test file (`last`),
over the seeds. Seeds from 100 on are for choosing settings; what the page shows are 0 to 9.

    python -m benchmarks.healthcare --proposals 60

counts, over so many draws of the patients, whether the proposed schema fits without a correction, what is warned of
afterwards (nothing is wrong any more), and how often one hospital's labels are found out when they are swapped.
"""

import argparse
import contextlib
import io
import json
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from examples.healthcare import SIZES, write
from fedsac import Config, FedsacError, run_together
from fedsac.cli import main as fedsac
from fedsac.data.catalogue import load
from fedsac.data.concerns import concerns_of

TOLERATED = 0.002  # by which a reward's mean AUC may lie below that of the model alone


def proposed(silos: Path, seed: int) -> None:
    """The messy tables in a folder, with a proposed schema."""
    write(silos, seed)
    with contextlib.redirect_stdout(io.StringIO()):
        if fedsac(["schema", "propose", str(silos), "--label", "diagnosis"]):
            raise SystemExit(f"seed {seed}: no schema")


def proposals(seeds: range) -> str:
    """How proposals and warnings do, in words."""
    fitting = warned = found = others = 0
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            proposed(Path(folder) / "hospitals", seed)
            try:
                data = load(str(Path(folder) / "hospitals"))
            except FedsacError as error:
                print(f"seed {seed}: {error}")
                continue
        fitting, warned = fitting + 1, warned + len(concerns_of(data))
        for name in SIZES:
            y = data.y.copy()
            y[(data.silos or {})[name]] ^= 1
            said = [line for line in concerns_of(replace(data, y=y)) if "swapped" in line]
            own = sum(line.startswith(f"{name}: ") for line in said)
            found, others = found + own, others + len(said) - own
    return (
        f"{fitting} of {len(seeds)} proposals fit; {warned} warnings of sound data; swapped labels found in {found} of "
        f"{fitting * len(SIZES)} cases, and {others} times elsewhere"
    )


def measured(methods: list[str], seeds: range, **settings: object) -> dict[str, dict[str, list[list[float]]]]:
    """By method: `alone` and `reward`, each [seeds][hospitals], AUC on the test file after the last round."""
    with tempfile.TemporaryDirectory() as folder:
        configs = []
        for seed in seeds:
            silos = Path(folder) / f"hospitals-{seed}"
            proposed(silos, seed)
            configs += [
                Config(data=str(silos), method=method, metric="auc", seed=seed, **settings)  # type: ignore[arg-type]
                for method in methods
            ]
        results = run_together(configs)
    found: dict[str, dict[str, list[list[float]]]] = {method: {"alone": [], "reward": []} for method in methods}
    for config, result in zip(configs, results, strict=True):
        by_name = dict(zip(result.clients, zip(result.contributions.test, result.rewards, strict=True), strict=True))
        found[config.method]["alone"].append([by_name[name][0] for name in SIZES])
        found[config.method]["reward"].append([by_name[name][1] for name in SIZES])
    return found


def table(found: dict[str, dict[str, list[list[float]]]]) -> str:
    """Markdown: mean AUC alone and of the reward by hospital, and whether the promise holds."""
    lines = [f"| method | {' | '.join(f'{n} ({size})' for n, size in SIZES.items())} | nobody worse | better |"]
    lines.append("| --- |" + " ---: |" * len(SIZES) + " --- | --- |")
    for method, numbers in found.items():
        alone, reward = (np.mean(numbers[key], 0) for key in ("alone", "reward"))
        cells = [f"{a:.4f} → {r:.4f}" for a, r in zip(alone, reward, strict=True)]
        holds = "yes" if bool((reward >= alone - TOLERATED).all()) else "no"
        lines.append(f"| {method} | {' | '.join(cells)} | {holds} | {int((reward > alone).sum())} of {len(alone)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", default="fedsac,fedsac-plus")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--local-steps", type=int, default=20)
    parser.add_argument("--hidden", type=int, nargs="+", default=[200, 200])
    parser.add_argument("--json", type=Path, metavar="FILE", help="all numbers")
    parser.add_argument("--proposals", type=int, metavar="SEEDS", help="try proposals and warnings instead")
    chosen = parser.parse_args()
    if chosen.proposals is not None:
        print(proposals(range(chosen.proposals)))
        return
    settings = {"rounds": chosen.rounds, "lr": chosen.lr, "local_steps": chosen.local_steps, "threads": 1}
    seeds = range(chosen.first, chosen.first + chosen.seeds)
    found = measured(
        chosen.methods.split(","), seeds, hidden=tuple(chosen.hidden), eval_every=chosen.rounds, **settings
    )
    print(table(found))
    if chosen.json is not None:
        chosen.json.write_text(json.dumps({"seeds": list(seeds), "hospitals": list(SIZES), **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
