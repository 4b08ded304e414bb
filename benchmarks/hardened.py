"""What hardened mode costs and what it stops: `python -m benchmarks.hardened OUT [--data digits] [--device cuda]`.

Three parts, each with and without defences, on the same seeds and splits, at the last round:
  price      clean runs without, with each defence alone and with all of them; also with 30 % of the clients missing at
             random in every round
  alone      each defence alone against the attacks that it is meant for
  together   all attacks (`fedsac attack`) against all defences
Interrupted, the same command goes on; every run is a file in OUT/DATA. It ends with OUT/DATA.json, from which
`python -m benchmarks.hardened OUT --data DATA --show` prints the tables of docs/results/hardened.md again. `--parts`,
`--defences` and `--attacks` carry out a part of it; `--method fedsac-plus` does it with another method, in
OUT/fedsac-plus.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedsac import Config, FedsacError
from fedsac.atomic import write_atomic
from fedsac.config import ALL, DEFENCES
from fedsac.paper.settings import preset
from fedsac.runs.attack_table import Done, measured
from fedsac.runs.start import run_together

SCENES = ("pow", "dir:1.0")
AT_ONCE = 40  # runs in a stack
ABSENT = "absent:0.3"
MEANT_FOR = {  # attacks that a defence is meant for
    "work": ("zero", "late-switch"),
    "originals": ("borrow", "borrow-noised", "launder", "launder-distilled", "sybils"),
    "bounds": ("rescale",),
    "robust": ("rescale", "sign-flip", "alie", "sole-holder@top"),
    "slow-order": ("hoard",),
}
ATTACKS = (
    *("zero", "stale", "random", "delta", "disguise", "late-switch"),
    *("lazy", "part-time", "replay"),
    *("borrow", "borrow-noised", "borrow-distilled", "borrow-global"),
    *("launder", "launder-tuned", "launder-distilled", "inflate", "slander"),
    *("hoard", "hoard-together", "regrow", "sybils", "cut-up", "merge"),
    *("label-flip", "backdoor", "sign-flip", "rescale", "alie", "ipm", "mimic"),
    *("label-flip@top", "backdoor@top", "sign-flip@top", "rescale@top", "alie@top", "ipm@top", "sole-holder@top"),
)
NONE = "none"
OURS = "fedsac"
PARTS = ("price", "together", "alone")
POINTS, SHARES = ("gain", "over_lowest", "best_loss"), ("success", "recall", "false_positives")
FEDAVG = ("label-flip", "backdoor", "label-flip@top", "backdoor@top")  # whose success is compared with FedAvg's


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", default="digits")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--hidden", default="64,64")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--method", default=OURS)
    parser.add_argument("--parts", default=",".join(PARTS), help="price, together, alone")
    parser.add_argument("--defences", default=",".join((NONE, *DEFENCES, ALL)), help="of `price`")
    parser.add_argument("--attacks", default=",".join(ATTACKS), help="of `together`")
    parser.add_argument("--show", action="store_true", help="print the tables of what is there")
    chosen = parser.parse_args()
    folder = chosen.out if chosen.method == OURS else chosen.out / chosen.method
    results = folder / f"{chosen.data}.json"
    if not chosen.show:
        collect(chosen, results)
    for line in tables(json.loads(results.read_text())):
        print(line)


def collect(chosen: argparse.Namespace, results: Path) -> None:
    """Carry out what is missing, and put everything into one file; after each part, so that a part can be read."""
    folder = results.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    defences, attacks = chosen.defences.split(","), chosen.attacks.split(",")
    for part in chosen.parts.split(","):
        planned = [
            _planned(part, scene, base_config(chosen, scene), chosen.seeds, folder, defences, attacks)
            for scene in SCENES
        ]
        # In turn: what is there after an interruption is there for all scenes.
        _carry_out(folder, [job for both in zip(*planned, strict=True) for job in both])
        runs = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
        settings = {name: getattr(chosen, name) for name in ("data", "method", "seeds", "rounds", "clients", "hidden")}
        write_atomic(results, (json.dumps(settings | {"runs": runs}) + "\n").encode())


def base_config(chosen: argparse.Namespace, scene: str) -> Config:
    settings = {"data": chosen.data, "scene": scene, "clients": chosen.clients, "device": chosen.device}
    settings |= {"method": chosen.method}
    if chosen.data != "digits":
        settings |= preset("paper", chosen.data, scene) | {"contribution_on": "validation"}
    hidden = tuple(int(n) for n in chosen.hidden.split(","))
    return Config(**settings | {"rounds": chosen.rounds, "hidden": hidden, "eval_every": chosen.rounds})


def _planned(
    part: str,
    scene: str,
    base: Config,
    seeds: int,
    folder: Path,
    defences: Sequence[str],
    attacks: Sequence[str],
) -> Iterator[tuple[str, Config]]:
    """The runs of a part, by name: scene, attack, method, defence and seed."""
    cells: list[tuple[str, str, str]] = []
    if part == "price":
        cells += [("clean", base.method, defence) for defence in defences]
        cells += [(ABSENT, base.method, defence) for defence in (NONE, ALL) if defence in defences] + [
            ("clean", "fedavg", NONE)
        ]
    elif part == "alone":
        cells += [(a, base.method, d) for defence, named in MEANT_FOR.items() for a in named for d in (NONE, defence)]
    else:
        cells += [(attack, base.method, defence) for attack in attacks for defence in (NONE, ALL)]
        cells += [(attack, "fedavg", NONE) for attack in FEDAVG if attack in attacks]
    for seed in range(base.seed, base.seed + seeds):  # outermost: what is there after an interruption has equal seeds
        for attack, method, defence in dict.fromkeys(cells):
            config = base.replace(method=method, seed=seed, hardened=None if defence == NONE else defence)
            kind, _, who = attack.partition("@")
            if attack == ABSENT:
                config = config.replace(behaviour=ABSENT)
            elif attack != "clean":
                top = _top(folder, scene, method, seed) if who else None
                config = config.replace(attack=kind, attackers=top)
            yield _name(scene, attack, method, defence, seed), config


def _name(scene: str, attack: str, method: str, defence: str, seed: int) -> str:
    return "--".join([scene, attack, method, defence, f"seed{seed}"]).replace(":", "-")


def _top(folder: Path, scene: str, method: str, seed: int) -> str:
    """The client with the highest contribution: the clean run has been carried out before."""
    path = folder / f"{_name(scene, 'clean', method, NONE, seed)}.json"
    summary = json.loads(path.read_text())["summary"]
    name: str = summary["client_names"][int(np.argmax(summary["contributions"]))]
    return name


def _carry_out(folder: Path, jobs: Sequence[tuple[str, Config]]) -> None:
    """Carry out runs that have no file yet, side by side."""
    todo = [(name, config) for name, config in jobs if not (folder / f"{name}.json").exists()]
    for start in range(0, len(todo), AT_ONCE):
        part = todo[start : start + AT_ONCE]
        print(f"{folder.name}: {len(todo) - start} runs to do; next {part[0][0]}", file=sys.stderr, flush=True)
        try:
            done = run_together([config for _, config in part])
        except FedsacError:  # one that overflowed must not cost the others theirs
            done = [_alone(config) for _, config in part]
        for (name, config), result in zip(part, done, strict=True):
            write_atomic(folder / f"{name}.json", (json.dumps(_kept(name, config, result)) + "\n").encode())


def _alone(config: Config) -> Any:
    try:
        return run_together([config])[0]
    except FedsacError as error:
        return str(error)


def _kept(name: str, config: Config, result: Any) -> dict[str, Any]:
    """What is kept of a run."""
    _, attack, method, defence, _ = name.split("--")
    about = {"scene": config.scene, "attack": attack, "method": method, "defence": defence, "seed": config.seed}
    if isinstance(result, str):
        return about | {"error": result}
    suspects = [
        {"refused": sorted(r.get("refused", {})), "suspected": sorted(r.get("suspected", {}))} for r in result.records
    ]
    wanted = ("client_names", "contributions", "contributions_test", "rewards", "inside_bcf", "results", "attack")
    summary = {key: value for key, value in result.summary().items() if key in wanted}
    return about | {"summary": summary, "rounds": suspects}


def tables(results: dict[str, Any]) -> Iterator[str]:
    """The tables, as Markdown."""
    runs = [run for run in results["runs"] if "error" not in run]
    method = results.get("method", OURS)
    for scene in SCENES:
        own = [run for run in runs if run["scene"] == scene]
        yield from ("", f"### {results['data']}, {scene}: price", "", *_price(own, method))
        yield from ("", f"### {results['data']}, {scene}: each defence alone", "")
        yield from _effects(
            own, method, [(a, d) for defence, named in MEANT_FOR.items() for a in named for d in (NONE, defence)]
        )
        yield from ("", f"### {results['data']}, {scene}: all of them", "")
        yield from _effects(own, method, [(attack, defence) for attack in ATTACKS for defence in (NONE, ALL)])


def _of(runs: Sequence[Any], attack: str, defence: str, method: str) -> list[Any]:
    wanted = attack.replace(":", "-"), defence, method
    return [run for run in runs if (run["attack"], run["defence"], run["method"]) == wanted]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _price(runs: Sequence[Any], method: str) -> Iterator[str]:
    """Clean runs, last round: means over seeds."""
    head = ("clean run", "gamma", "BCF", "best reward", "mean reward", "honest ones suspected in half of the rounds")
    yield from (_line(head), _line(["---"] * len(head)))
    cells = [("clean", NONE), *(("clean", name) for name in (*DEFENCES, ALL)), (ABSENT, NONE), (ABSENT, ALL)]
    for attack, defence in cells:
        if own := _of(runs, attack, defence, method):
            rewards = np.array([run["summary"]["rewards"] for run in own])
            gammas = [run["summary"]["results"]["last"]["gamma"] for run in own]
            inside = np.mean([run["summary"]["inside_bcf"] for run in own])
            named = [_suspected(run, name) for run in own for name in run["summary"]["client_names"]]
            yield _line(
                [
                    defence if attack == "clean" else f"30 % missing, {defence}",
                    f"{np.mean(gammas):.2f}",
                    f"{100 * inside:.0f} %",
                    f"{rewards.max(1).mean():.4f}",
                    f"{rewards.mean():.4f}",
                    f"{sum(named)} of {len(named)}",
                ]
            )


def _suspected(run: Any, client: str) -> bool:
    return 2 * sum(client in (*r["refused"], *r["suspected"]) for r in run["rounds"]) >= len(run["rounds"])


def _effects(runs: Sequence[Any], ours: str, cells: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Attacks, last round: means over seeds, and the highest of them where that is asked for; in points and shares."""
    head = ("attack", "defence", "gain (highest)", "over lowest (highest)", "best's loss (highest)", "mean loss")
    yield from (_line([*head, "success", "recall", "false pos."]), _line(["---"] * (len(head) + 3)))
    with_fedavg = [(a, d, m) for a, d in cells for m in (ours, "fedavg") if m == ours or d == NONE]
    for attack, defence, method in dict.fromkeys(with_fedavg):
        values: dict[str, list[float]] = {}
        for run in _of(runs, attack, defence, method):
            for clean in (c for c in _of(runs, "clean", defence, method) if c["seed"] == run["seed"]):
                both = ((one["summary"], one["rounds"]) for one in (run, clean))
                for key, value in measured(Done(attack, method, run["seed"], *both)).items():
                    if value is not None:
                        values.setdefault(key, []).append(value)
        if values:
            points = [f"{100 * np.mean(values[k]):+.1f} ({100 * np.max(values[k]):+.1f})" for k in POINTS]
            shares = [f"{np.mean(values[k]):.2f}" if k in values else "-" for k in SHARES]
            who = defence if method == ours else f"{method}, {defence}"
            yield _line([attack, who, *points, f"{100 * np.mean(values['mean_loss']):+.1f}", *shares])


if __name__ == "__main__":
    main()
