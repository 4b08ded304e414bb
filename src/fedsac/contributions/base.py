"""The clients' contributions as numbers, measured or read from a file. Loads no torch."""

import csv
import io
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedsac.errors import FedsacError

STANDALONE = "standalone"


@dataclass(frozen=True)
class Contributions:
    """The score of each client's standalone model, on the validation set and on the test set; the `diverged` clients'
    scores are 0.

    `deciding`: where reputations follow from something else than standalone scores, its values as measured or given.
    `error`: the standard error of each validation score, for the samples that V happens to have; None where unknown.
    """

    validation: tuple[float, ...]
    test: tuple[float, ...]
    diverged: tuple[str, ...] = ()
    deciding: tuple[float, ...] | None = None
    error: tuple[float, ...] | None = None

    def for_method(self, on: str) -> tuple[float, ...]:
        """The contributions c that a method gets: the scores `on` validation or test data, or the deciding values
        scaled to [0, 1]."""
        if self.deciding is not None:
            return in_unit_range(self.deciding)
        return self.test if on == "test" else self.validation


def in_unit_range(values: Sequence[float]) -> tuple[float, ...]:
    """max(0, v_i) / max_k v_k: values of either sign, scaled so that methods can use them (some divide by their sum).

    A negative contribution counts as 0; ratios between the others stay; the best has 1. Where no value is positive, all
    have 1.

    >>> in_unit_range([.25, -.5, .125])
    (1.0, 0.0, 0.5)
    >>> in_unit_range([0., -.5])
    (1.0, 1.0)
    """
    best = max(values)
    return tuple(max(0.0, v) / best if best > 0 else 1.0 for v in values)


def read_given(path: Path, clients: Sequence[str]) -> tuple[float, ...]:
    """Contributions from a file, in the order of `clients`: a .json object {client: number}, or a .csv file with the
    columns client and contribution."""
    try:
        text = path.read_text(encoding="utf-8-sig")  # spreadsheets put a mark in front
    except FileNotFoundError:
        raise FedsacError(f"contributions {path}: there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise FedsacError(f"{path}: cannot be read ({error})") from None
    given = _json(text, path) if path.suffix.lower() == ".json" else _csv(text, path)
    if missing := [name for name in clients if name not in given]:
        raise FedsacError(f"{path} has no contribution of {missing[0]}; it needs one for each of {', '.join(clients)}")
    if extra := [name for name in given if name not in clients]:
        raise FedsacError(f"{path} has a contribution of {extra[0]}, who is no client; they are {', '.join(clients)}")
    return tuple(_number(given[name], name, path) for name in clients)


def _json(text: str, path: Path) -> dict[str, object]:
    try:
        found = json.loads(text, object_pairs_hook=lambda pairs: _each_once(pairs, path))
    except (ValueError, RecursionError) as error:
        raise FedsacError(f"{path}: not JSON ({error})") from None
    if not isinstance(found, dict):
        raise FedsacError(f'{path}: must be an object with a number for each client, as in {{"client-01": 0.5}}')
    return found


def _each_once(pairs: list[tuple[str, object]], path: Path) -> dict[str, object]:
    given: dict[str, object] = {}
    for name, value in pairs:
        if name in given:
            raise FedsacError(f"{path}: {name} is there twice; keep one")
        given[name] = value
    return given


def _csv(text: str, path: Path) -> dict[str, object]:
    rows = csv.DictReader(io.StringIO(text), skipinitialspace=True, strict=True)
    given: dict[str, object] = {}
    try:
        if sorted(rows.fieldnames or ()) != ["client", "contribution"]:
            raise FedsacError(f"{path}: line 1 must name the columns client and contribution, not {rows.fieldnames}")
        for row in rows:
            if None in row:
                raise FedsacError(f"{path}: line {rows.line_num} has more than two cells; keep two")
            if row["client"] in given:
                raise FedsacError(f"{path}: line {rows.line_num}: {row['client']} is there twice; keep one")
            given[row["client"]] = row["contribution"]
    except csv.Error as error:
        raise FedsacError(f"{path}: line {rows.line_num}: {error}") from None
    return given


def _number(value: object, client: str, path: Path) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if isinstance(value, bool) or not math.isfinite(number):
        raise FedsacError(f"{path}: the contribution of {client} must be a number, not {value!r:.60}")
    return number
