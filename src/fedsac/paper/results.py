"""The results that the paper's tables and figures are made from: one compact JSON file.

A finished run is summarised to what a table or figure shows of it, so that the file of a thousand runs stays small
enough to be kept, sent and compared.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedsac.atomic import write_atomic
from fedsac.config import FORMAT_VERSION, check_version
from fedsac.contributions.base import Contributions
from fedsac.core.fairness import bcf
from fedsac.errors import FedsacError
from fedsac.paper.typed import is_of
from fedsac.runs.checkpoint import UNSOUND
from fedsac.runs.labels import LABELS, chosen

FAIR_GAMMA = 95.0  # Table 7 considers rounds with gamma above this


@dataclass(frozen=True)
class ChosenRound:
    """The round of a run that a label (last, selected, best) chooses: fairness, and accuracies on the test set as
    fractions."""

    round: int
    gamma: float | None
    gamma_limit: float | None
    bcf: float
    alpha_bcf: float
    max: float
    mean: float
    min: float
    common: float | None  # accuracy of the global model, if there is one
    rewards: tuple[float, ...]


@dataclass(frozen=True)
class Run:
    """A finished run. `contributions` are standalone accuracies on the test set. `megabytes` is the size of all
    submodels sent to clients in a round, 4 bytes per parameter, mean over rounds; `serialised` the size of the last
    round's submodels as files, and `counted` the size of the same submodels at 4 bytes per parameter."""

    data: str
    scene: str
    clients: int
    method: str
    beta: float
    seed: int
    rounds: int
    lr: float
    local_steps: int
    batch: int
    contributions: tuple[float, ...]
    labels: dict[str, ChosenRound]
    peak: tuple[float, float | None]  # highest test accuracy in any evaluated round: best reward, global model
    fair: tuple[int, float, float] | None  # the best reward in rounds with gamma > 95: round, best and lowest reward
    megabytes: float
    serialised: float
    counted: float
    plateau: tuple[float, float, float]  # mean reward on V after half, three quarters and all of the rounds
    curve: tuple[tuple[int, tuple[float, ...]], ...] | None = None  # (round, rewards) ..., for Figure 5's runs only


@dataclass(frozen=True)
class Results:
    """Runs and how they were made: `made` has fedsac, commit, device, seconds, quick."""

    made: dict[str, Any]
    runs: tuple[Run, ...]

    def save(self, path: Path) -> None:
        """Write the file, one line per run, so that two files can be compared with diff."""
        head = json.dumps({"format_version": FORMAT_VERSION, "made": self.made}, allow_nan=False)
        lines = ",\n".join(
            json.dumps(_compact(asdict(run)), allow_nan=False, separators=(",", ":")) for run in self.runs
        )
        write_atomic(path, f'{head[:-1]}, "runs": [\n{lines}\n]}}\n'.encode())

    @classmethod
    def load(cls, path: Path) -> "Results":
        try:
            read = json.loads(path.read_text())
            check_version(read["format_version"], path)
            results = cls({"rules": 1} | dict(read["made"]), tuple(map(_run, read["runs"])))  # before they were written
            results._check()
            return results
        except FileNotFoundError:
            raise FedsacError(f"{path}: there is no such file") from None
        except (OSError, *UNSOUND) as error:
            raise FedsacError(f"{path} holds no results of fedsac paper ({type(error).__name__})") from None

    def _check(self) -> None:
        """Raise unless every run has what tables and figures are made from, of the type that `Run` says."""
        for run in self.runs:
            counts = {run.clients, len(run.contributions), *(len(one.rewards) for one in run.labels.values())}
            if not is_of(run, Run) or set(run.labels) != set(LABELS) or len(counts) > 1:
                raise ValueError
        if any(not isinstance(value, str | int | float | bool | None) for value in self.made.values()):
            raise ValueError

    @classmethod
    def joined(cls, paths: Sequence[Path]) -> "Results":
        """The runs of several files, made one after another or on several machines; if two files have the same run, the
        later file's is taken."""
        parts = [cls.load(path) for path in paths]
        if len({(bool(part.made.get("quick")), run.rounds) for part in parts for run in part.runs}) > 1:
            raise FedsacError(f"{', '.join(map(str, paths))}: runs of different lengths do not belong on one page")
        if len({part.made["rules"] for part in parts}) > 1:
            raise FedsacError(f"{', '.join(map(str, paths))}: runs under different rules do not belong on one page")
        if len({part.made.get("split seed") for part in parts}) > 1:
            raise FedsacError(f"{', '.join(map(str, paths))}: runs on different splits do not belong on one page")
        runs = {
            (run.data, run.scene, run.clients, run.method, run.beta, run.seed): run
            for part in parts
            for run in part.runs
        }
        return cls(_joined([part.made for part in parts]), tuple(runs.values()))

    def of(self, **wanted: Any) -> list[Run]:
        """The runs with these settings, e.g. of(data="cifar10", scene="pow", method="fedsac", beta=5.0)."""
        return [run for run in self.runs if all(getattr(run, name) == value for name, value in wanted.items())]


def _joined(made: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """How several results were made: seconds summed; other values that differ joined by commas."""
    joined = dict(made[0])
    for name in dict.fromkeys(name for one in made for name in one):
        values = list(dict.fromkeys(one[name] for one in made if one.get(name) is not None))
        if name == "seconds":
            joined[name] = round(sum(one.get(name, 0) for one in made), 1)
        elif len(values) > 1:
            joined[name] = ", ".join(map(str, values))
    return joined


def summarise(folder: Path, config: Any, *, curve: bool) -> Run:
    """The summary of a finished run, from its folder; with `curve`, the rewards of every evaluated round."""
    summary = json.loads((folder / "summary.json").read_text())
    records = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    contributions = Contributions(tuple(summary["contributions"]), tuple(summary["contributions_test"]))
    evaluated = [record for record in records if record["rewards"] is not None]
    fair = max(
        ((r["accuracy"]["max"], r["round"], r["accuracy"]["min"]) for r in evaluated if (r["gamma"] or 0) > FAIR_GAMMA),
        default=None,
    )
    common = [r["global_accuracy"] for r in evaluated if r["global_accuracy"] is not None]
    on_v = [float(np.mean(r["rewards_validation"])) for r in evaluated]
    return Run(
        data=config.data,
        scene=config.scene,
        clients=config.clients,
        method=config.method,
        beta=config.beta,
        seed=config.seed,
        rounds=config.rounds,
        lr=config.lr,
        local_steps=config.local_steps,
        batch=config.batch,
        contributions=contributions.test,
        labels={label: _chosen_round(chosen(records, contributions)[label]) for label in LABELS},
        peak=(max(r["accuracy"]["max"] for r in evaluated), max(common, default=None)),
        fair=None if fair is None else (fair[1], fair[0], fair[2]),
        megabytes=float(np.mean([r["bytes"]["down"] for r in records])) / 1e6,
        serialised=summary["reward_bytes"]["serialised"] / 1e6,
        counted=summary["reward_bytes"]["counted"] / 1e6,
        plateau=(on_v[(len(on_v) - 1) // 2], on_v[3 * (len(on_v) - 1) // 4], on_v[-1]),
        curve=tuple((r["round"], tuple(r["rewards"])) for r in evaluated) if curve else None,
    )


def _chosen_round(record: dict[str, Any]) -> ChosenRound:
    return ChosenRound(
        record["round"],
        record["gamma"],
        record["gamma_limit"],
        record["bcf"],
        record["alpha_bcf"],
        record["accuracy"]["max"],
        record["accuracy"]["mean"],
        record["accuracy"]["min"],
        record["global_accuracy"],
        tuple(record["rewards"]),
    )


def _compact(value: Any) -> Any:
    """Numbers rounded to six significant digits: more than any table shows, and a third of the size."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _compact(part) for key, part in value.items() if part is not None or key != "curve"}
    return [_compact(part) for part in value] if isinstance(value, list | tuple) else value


def _run(read: dict[str, Any]) -> Run:
    def tuples(value: Any) -> Any:
        return tuple(map(tuples, value)) if isinstance(value, list) else value

    plain = {key: tuples(value) for key, value in read.items() if key != "labels"}

    def inside(rewards: Sequence[float]) -> float:
        """The share of clients inside BCF by the present definition: files of earlier versions have another."""
        return float(bcf(plain["contributions"], rewards).mean())

    labels = {
        label: ChosenRound(**{key: tuples(value) for key, value in picked.items()} | {"bcf": inside(picked["rewards"])})
        for label, picked in read["labels"].items()
    }
    return Run(**plain, labels=labels)
