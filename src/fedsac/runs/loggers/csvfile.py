"""Rounds as two tables for a spreadsheet, pandas or R: `rounds.csv` and `clients.csv` in the run's folder.

They are tidy: `rounds.csv` has a row for each round, `clients.csv` a row for each round and client. A column for each
client would be shorter to look at, but a program that reads it must first take headings apart, and a client that joins
later would have no column. As it is, the columns never change, whoever takes part and whatever the metric, which is a
column as well: the files of many runs can be put below each other as they are.
"""

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fedsac.atomic import write_atomic
from fedsac.runs.loggers.folder import folder_of
from fedsac.runs.loggers.numbers import clients_of, fairness, of_clients, scores, traffic
from fedsac.runs.watcher import RunInfo, Watcher

ROUND_COLUMNS = (
    *("round", "gamma", "gamma_limit", "gamma_attainable", "bcf", "alpha_bcf", "metric"),
    *("max_reward", "mean_reward", "min_reward", "mcg", "cgs", "global_model", "bytes_down", "bytes_up"),
)
CLIENT_COLUMNS = ("round", "client", "answered", "reputation", "neurons", "metric", "reward", "reward_validation")


class CsvLogger(Watcher):
    """Writes both files anew when a run begins or goes on, so that a resumed run has every round once, and then appends
    each round's rows in one piece. A number that does not exist is an empty cell."""

    def begin(self, run: RunInfo, records: Sequence[dict[str, Any]]) -> None:
        folder = folder_of(run, "csv")
        rounds = [ROUND_COLUMNS, *(_round(run, record) for record in records)]
        clients = [CLIENT_COLUMNS, *(row for record in records for row in _clients(run, record))]
        write_atomic(folder / "rounds.csv", _lines(rounds), durable=False)
        write_atomic(folder / "clients.csv", _lines(clients), durable=False)

    def round(self, run: RunInfo, record: dict[str, Any]) -> None:
        folder = folder_of(run, "csv")
        _append(folder / "rounds.csv", _lines([_round(run, record)]))
        _append(folder / "clients.csv", _lines(_clients(run, record)))


def _round(run: RunInfo, record: dict[str, Any]) -> Sequence[Any]:
    numbers = {**fairness(record), **scores(record), **traffic(record)}
    cells = {"round": record["round"], "metric": run.config.metric, **numbers}
    return [cells[column] for column in ROUND_COLUMNS]


def _clients(run: RunInfo, record: dict[str, Any]) -> list[Sequence[Any]]:
    lists = ("reputations", "neurons", "rewards", "rewards_validation")
    reputation, neurons, reward, validation = (of_clients(run, record, what) for what in lists)
    answered, metric = set(record["answered"]), run.config.metric
    return [
        (record["round"], i, int(i in answered), reputation[i], neurons[i], metric, reward[i], validation[i])
        for i in clients_of(run, record)
    ]


def _lines(rows: Iterable[Sequence[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def _append(path: Path, lines: bytes) -> None:
    with path.open("ab") as file:
        file.write(lines)
