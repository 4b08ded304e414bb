"""Rounds as metrics of an MLflow run; needs the extra `mlflow`.

They go where MLflow itself is told to put them: to the server or the file that `MLFLOW_TRACKING_URI` names, else into
`mlflow.db` in the current folder; below the experiment `MLFLOW_EXPERIMENT_NAME`, else `fedsac`.
"""

import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsac.atomic import write_atomic
from fedsac.config import FORMAT_VERSION, Config
from fedsac.errors import FedsacError
from fedsac.runs.loggers.numbers import tracked
from fedsac.runs.watcher import RunInfo, Watcher
from fedsac.version import __version__

if TYPE_CHECKING:
    from fedsac.runs.result import Result

ID_FILE = "mlflow.json"  # in the run's folder: which MLflow run is its own
LAST = "traffic/bytes_up"  # the last number of every round: an MLflow run that has it has the whole round
METRICS_AT_ONCE, PARAMS_AT_ONCE = 1000, 100  # MLflow's limits
SECONDS_APART = 5.0  # of two messages: each takes a database tens of milliseconds, as long as a small run's round


@dataclass
class _Tracked:
    """An MLflow run, the rounds that it has from earlier processes, and what it is to be sent next."""

    id: str
    rounds: set[int] = field(default_factory=set)
    waiting: list[Any] = field(default_factory=list)
    sent: float = 0.0


class MLflowLogger(Watcher):
    """One MLflow run for each run: settings are its parameters, `summary.json` is its artifact. A resumed run goes on
    with the same one, and sends the rounds that it does not have yet. Rounds arrive some seconds late."""

    def __init__(self) -> None:
        # Unless told so before it is imported, MLflow reports to its makers how it is used.
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        try:
            from mlflow import MlflowClient, entities
            from mlflow.exceptions import MlflowException
        except ImportError as error:
            raise FedsacError(f"the log mlflow needs {error.name}: pip install 'fedsac[mlflow]'") from None
        # A client and ids instead of mlflow.log_metrics, which has one active run at a time.
        self._client, self._entities, self._refused = MlflowClient(), entities, MlflowException
        self._experiment = self._experiment_id(os.environ.get("MLFLOW_EXPERIMENT_NAME", "fedsac"))
        self._runs: dict[tuple[Path | None, str], _Tracked] = {}

    def begin(self, run: RunInfo, records: Sequence[dict[str, Any]]) -> None:
        mine = self._runs[_key(run)] = self._continued(run) or self._created(run)
        params = [self._entities.Param(name, value) for name, value in _params(run.config)]
        for i in range(0, len(params), PARAMS_AT_ONCE):
            self._client.log_batch(mine.id, params=params[i : i + PARAMS_AT_ONCE], synchronous=True)
        for record in records:
            self._add(run, record)
        self._send(mine)

    def round(self, run: RunInfo, record: dict[str, Any]) -> None:
        mine = self._add(run, record)
        if time.monotonic() - mine.sent >= SECONDS_APART:
            self._send(mine)

    def end(self, run: RunInfo, result: "Result") -> None:
        mine = self._runs.pop(_key(run))
        self._send(mine)
        self._client.log_dict(mine.id, result.summary(), "summary.json")
        self._client.set_terminated(mine.id)

    def _experiment_id(self, name: str) -> str:
        if (found := self._client.get_experiment_by_name(name)) is not None:
            return str(found.experiment_id)
        try:
            return str(self._client.create_experiment(name))
        except self._refused:
            if (found := self._client.get_experiment_by_name(name)) is None:
                raise
            return str(found.experiment_id)  # another process was quicker

    def _continued(self, run: RunInfo) -> _Tracked | None:
        """The MLflow run that the folder names, if it is there; it may have been deleted, or be on another server."""
        if run.folder is None or not (run.folder / ID_FILE).exists():
            return None
        id = json.loads((run.folder / ID_FILE).read_text(encoding="utf-8"))["run_id"]
        try:
            there = self._client.get_run(id).info.lifecycle_stage == "active"
        except self._refused as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            there = False
        if not there:
            return None
        self._client.update_run(id, status="RUNNING")
        return _Tracked(id, {metric.step for metric in self._client.get_metric_history(id, LAST)})

    def _created(self, run: RunInfo) -> _Tracked:
        tags = {"fedsac.version": __version__, "fedsac.metric": run.config.metric}
        if run.folder is not None:
            tags["fedsac.folder"] = str(run.folder.resolve())
        id = self._client.create_run(self._experiment, run_name=run.name, tags=tags).info.run_id
        if run.folder is not None:
            text = json.dumps({"format_version": FORMAT_VERSION, "run_id": id}) + "\n"
            write_atomic(run.folder / ID_FILE, text.encode())
        return _Tracked(id)

    def _add(self, run: RunInfo, record: dict[str, Any]) -> _Tracked:
        mine, now = self._runs[_key(run)], int(time.time() * 1000)
        if record["round"] not in mine.rounds:
            numbers = tracked(run, record).items()
            mine.waiting += [self._entities.Metric(_allowed(name), v, now, record["round"]) for name, v in numbers]
        return mine

    def _send(self, mine: _Tracked) -> None:
        metrics, mine.waiting, mine.sent = mine.waiting, [], time.monotonic()
        for i in range(0, len(metrics), METRICS_AT_ONCE):
            self._client.log_batch(mine.id, metrics=metrics[i : i + METRICS_AT_ONCE], synchronous=True)


def _key(run: RunInfo) -> tuple[Path | None, str]:
    return run.folder, run.config.toml()


def _params(config: Config) -> Iterator[tuple[str, str]]:
    """Every setting that has a value, as a text."""
    for option in fields(config):
        value = getattr(config, option.name)
        if option.name == "options":
            yield from ((f"options.{name}", str(chosen)) for name, chosen in value.items())
        elif value is not None:
            yield option.name, ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _allowed(name: str) -> str:
    """A metric's name as MLflow permits it: other characters by their number, so that two clients remain two.

    >>> _allowed("neurons/St. Mary's")
    'neurons/St. Mary_27_s'
    """
    return re.sub(r"[^\w./ -]", lambda odd: f"_{ord(odd[0]):x}_", name)
