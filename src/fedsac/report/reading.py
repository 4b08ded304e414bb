"""Reading runs from their folders for a report, finished or not. The folders are not changed."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedsac.config import Config, check_version, read
from fedsac.contributions.base import Contributions
from fedsac.core.fairness import bcf
from fedsac.core.metrics import display_name
from fedsac.errors import FedsacError
from fedsac.runs.checkpoint import UNSOUND, Checkpoint, peek
from fedsac.runs.comparison import LIST
from fedsac.runs.labels import chosen, judged_again, of_clients
from fedsac.runs.places import DTYPE_BYTES, WARNINGS, is_run

DISAGREE = "its files do not agree on the number of clients; is it damaged?"


@dataclass(frozen=True)
class Run:
    """A run as far as it is committed. `held` [clients, neurons] says which neurons each client holds, `importance`
    [neurons] is that of FedSAC, both after `state_round` rounds; None if the method has none or there is no
    checkpoint."""

    name: str
    config: Config
    finished: bool
    clients: tuple[str, ...]
    contributions: Contributions
    records: tuple[dict[str, Any], ...]
    samples: tuple[int, ...] | None = None
    reputations: tuple[float, ...] | None = None
    reported_on: str = "test"
    state_round: int | None = None
    held: np.ndarray | None = None
    importance: np.ndarray | None = None
    parameters: int | None = None  # of a whole model
    classes: tuple[str, ...] = ()
    confusion: np.ndarray | None = None  # [clients, classes, classes]: samples of a class (rows) taken for another
    warnings: tuple[str, ...] = ()  # about the data

    @property
    def evaluated(self) -> list[dict[str, Any]]:
        return [record for record in self.records if record["rewards"] is not None]

    @property
    def last(self) -> dict[str, Any]:
        """The last round that was evaluated."""
        return self.evaluated[-1]

    @property
    def chosen(self) -> dict[str, dict[str, Any]]:
        return chosen(self.records, self.contributions)

    @property
    def inside_bcf(self) -> list[bool]:
        return [bool(inside) for inside in bcf(self.contributions.test, self.last["rewards"])]

    @property
    def data(self) -> str:
        """The data's name; of a path, which is an absolute one by now, its last part."""
        named = Path(self.config.data)
        return named.name if named.is_absolute() else self.config.data

    @property
    def metric(self) -> str:
        """The metric behind contributions and rewards, as a report spells it."""
        return display_name(self.config.metric)

    @property
    def score(self) -> str:
        """What contributions and rewards are: the metric, and the data it is reported on."""
        return f"{self.reported_on} {self.metric}"

    @property
    def full_bytes(self) -> int | None:
        """Bytes of whole models for all clients, one way."""
        size = DTYPE_BYTES[self.config.dtype]
        return None if self.parameters is None else self.parameters * size * len(self.clients)

    @property
    def saved(self) -> float | None:
        """The share of bytes sent to clients that submodels save against whole models, over all rounds."""
        if self.full_bytes is None:
            return None
        sent = sum(int(record["bytes"]["down"]) for record in self.records)
        return 1 - sent / (self.full_bytes * len(self.records))


def read_runs(paths: Sequence[Path]) -> list[Run]:
    """The runs in these folders, each of which is a run's or a comparison's."""
    runs: list[Run] = []
    for path in paths:
        if (path / LIST).is_file() and not is_run(path):
            runs += [read_run(path / name) for name in _listed(path)]
        else:
            runs.append(read_run(path))
    return runs


def _listed(path: Path) -> list[str]:
    """The names of a comparison's runs."""
    try:
        listed = json.loads((path / LIST).read_text(encoding="utf-8"))
        check_version(listed["format_version"], path / LIST)
        names = list(listed["runs"])
    except (OSError, *UNSOUND):
        names = []
    # Only folders inside this one: a list written by somebody else must not make us read other paths.
    if not names or any(not isinstance(name, str) or Path(name).name != name or len(name) > 200 for name in names):
        raise FedsacError(f"{path} is not a comparison that was begun (it has no sound {LIST})")
    return names


def read_run(path: Path) -> Run:
    """The run in a folder; an unfinished one up to its last commit."""
    if not path.is_dir():
        raise FedsacError(f"{path}: there is no such folder; name one that fedsac run or fedsac compare has left")
    if not is_run(path):
        raise FedsacError(f"{path} is not a run's folder (it has no config.toml of ours)")
    config = Config(**read(path / "config.toml"))
    try:
        newest = peek(path)
        finished = (path / "summary.json").exists()
        run = _finished(path, config, newest) if finished else _unfinished(path, config, newest)
        run = replace(run, warnings=_warnings(path))
        _check(run)
    except FedsacError:
        raise
    except (OSError, *UNSOUND) as error:
        what = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise FedsacError(f"{path}: what lies there is not what a run leaves ({what}); is it damaged?") from None
    return run


def _warnings(path: Path) -> tuple[str, ...]:
    """What the run said about its data, if it said anything."""
    if not (path / WARNINGS).is_file():
        return ()
    return tuple(map(str, json.loads((path / WARNINGS).read_text(encoding="utf-8"))["warnings"]))


def _finished(path: Path, config: Config, newest: tuple[Checkpoint, list[dict[str, Any]]] | None) -> Run:
    summary = json.loads((path / "summary.json").read_text(encoding="utf-8"))
    check_version(summary["format_version"], path / "summary.json")
    records = [json.loads(line) for line in (path / "rounds.jsonl").read_text(encoding="utf-8").splitlines()]
    names = tuple(map(str, summary["client_names"]))
    # Earlier versions did not write errors.
    deciding, error = summary["contributions_deciding"], summary.get("contributions_error")
    contributions = Contributions(
        tuple(summary["contributions"]),
        tuple(summary["contributions_test"]),
        tuple(summary["diverged_alone"]),
        None if deciding is None else tuple(deciding),
        None if error is None else tuple(error),
    )
    return Run(
        name=path.resolve().name,
        config=config,
        finished=True,
        clients=names,
        contributions=contributions,
        records=judged_again(of_clients(records, names), contributions, config.contribution_on),
        samples=tuple(summary["samples"]),
        reputations=None if summary["reputations"] is None else tuple(summary["reputations"]),
        reported_on=str(summary["reported_on"]),
        **_confusion(path, names),
        **_state(config, records, newest),
    )


def _confusion(path: Path, clients: tuple[str, ...]) -> dict[str, Any]:
    """The fields of a `Run` that confusion.json has; earlier versions did not write it."""
    if not (path / "confusion.json").exists():
        return {}
    content = json.loads((path / "confusion.json").read_text(encoding="utf-8"))
    check_version(content["format_version"], path / "confusion.json")
    classes = tuple(map(str, content["classes"]))
    if set(content["clients"]) != set(clients):
        raise FedsacError(f"{path.resolve().name}: {DISAGREE}")
    counts = np.array([content["clients"][name] for name in clients])
    if counts.shape != (len(clients), len(classes), len(classes)) or counts.dtype.kind != "i" or counts.min() < 0:
        raise ValueError("confusion.json has no table of counts for each client")
    return {"classes": classes, "confusion": counts}


def _unfinished(path: Path, config: Config, newest: tuple[Checkpoint, list[dict[str, Any]]] | None) -> Run:
    if newest is None:
        raise FedsacError(f"{path}: nothing is committed there yet, or nothing sound is left; there is no report")
    checkpoint, records = newest
    count = len(checkpoint.contributions.test)
    # A checkpoint does not have the clients' names, but the record of a round that all answered has, in order.
    whole = (record["answered"] for record in records if len(record["answered"]) == count)
    names = tuple(map(str, next(whole, [f"client {i + 1}" for i in range(count)])))
    if records and len(records[-1].get("clients", ())) == count:  # a federation's
        names = tuple(records[-1]["clients"])
    return Run(
        name=path.resolve().name,
        config=config,
        finished=False,
        clients=names,
        contributions=checkpoint.contributions,
        records=judged_again(of_clients(records, names), checkpoint.contributions, config.contribution_on),
        **_state(config, records, newest),
    )


def _state(
    config: Config, records: Sequence[dict[str, Any]], newest: tuple[Checkpoint, list[dict[str, Any]]] | None
) -> dict[str, Any]:
    """The fields of a `Run` that come from the newest checkpoint, if there is one."""
    known: dict[str, Any] = {"parameters": _whole_model(config, records)}
    if newest is None:
        return known
    checkpoint, neurons = newest[0], sum(config.hidden)
    # Checkpoints of earlier versions have neurons and importance in the method's state.
    held, importance = (checkpoint.shown.get(n, checkpoint.state.get(n)) for n in ("neurons", "importance"))
    if isinstance(held, np.ndarray) and held.dtype == bool and held.ndim == 2 and held.shape[1] == neurons:
        known |= {"held": held, "state_round": checkpoint.round}
        if isinstance(importance, np.ndarray) and importance.shape == (neurons,) and np.isfinite(importance).all():
            known["importance"] = importance.astype(np.float64)
    return known


def _whole_model(config: Config, records: Sequence[dict[str, Any]]) -> int | None:
    """The number of parameters of a whole model, if any client ever held one."""
    for record in records:
        for neurons, parameters in zip(record["neurons"], record["parameters"], strict=True):
            if neurons == sum(config.hidden):
                return int(parameters)
    return None


def _check(run: Run) -> None:
    """Raise if no round was evaluated, or if the files disagree on the number of clients."""
    if not run.evaluated:
        raise FedsacError(f"{run.name}: no round of this run has been evaluated yet; there is nothing to report")
    count = len(run.clients)
    lists = [run.contributions.test, run.contributions.validation, *(record["rewards"] for record in run.evaluated)]
    optional = (run.samples, run.reputations, run.held, run.contributions.error)
    lists += [part for part in optional if part is not None]
    if any(len(part) != count for part in lists):
        raise FedsacError(f"{run.name}: {DISAGREE}")


def settings(config: Config) -> list[tuple[str, str, str]]:
    """Name, value and meaning of each setting."""
    rows = []
    for option in fields(Config):
        value = getattr(config, option.name)
        if option.name == "options":
            shown = ", ".join(f"{name} = {part}" for name, part in value.items()) or "-"
        elif isinstance(value, tuple):
            shown = ", ".join(map(str, value))
        else:
            shown = "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
        rows.append((option.name, shown, str(option.metadata["help"])))
    return rows
