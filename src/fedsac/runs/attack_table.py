"""What an attack gains and costs, from its run and the clean run of the same seed; and the table of a study. Loads no
torch."""

import csv
import io
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from fedsac.config import FORMAT_VERSION, RULES, Config
from fedsac.runs.statistics import mean_interval

Summary = dict[str, Any]
Records = Sequence[dict[str, Any]]
STUDY = "attack.json"  # in a study's folder: what is to be done
NAMING = ("refused", "aside", "suspected")  # keys of a round's record that name clients the server distrusts
DETECTED = 0.5  # a client is detected whom the server names in at least this share of the rounds, or removes

# Key, heading, factor and digits. Points are hundredths of the metric.
COLUMNS = (
    ("gain", "gain", 100, 2),
    ("over_lowest", "over lowest", 100, 2),
    ("over_best", "over best", 100, 2),
    ("best_loss", "best's loss", 100, 2),
    ("mean_loss", "mean loss", 100, 2),
    ("success", "success", 1, 3),
    ("recall", "recall", 1, 2),
    ("false_positives", "false pos.", 1, 2),
)
EXPLAINED = (
    "Last round, means over seeds, in points of a hundred. gain: what hostile clients end with, less their rewards in "
    "the clean run, where they are honest; of one party under several names, or of a coalition, the best against the "
    "best. over lowest, over best: the best that a hostile client ends with, less the lowest and the highest honest "
    "reward. best's loss, mean loss: what the best honest reward, and the mean of them, lose against the clean run. "
    "success: the share of probe samples that the best honest client's model takes for what the attack wants. recall, "
    "false pos.: hostile and honest clients whom the server names in at least half of the rounds, or removes; a dash "
    "where nothing is there to find them out."
)


@dataclass(frozen=True)
class Done:
    """An attack's run, its method (with the settings that it was run with beside it) and seed, and the clean run's."""

    attack: str
    method: str
    seed: int
    attacked: tuple[Summary, Records]
    clean: tuple[Summary, Records]


class Wreck(NamedTuple):
    """An attack's run that ended early, since the server's model was none any more: it has no last round."""

    attack: str
    method: str
    seed: int


@dataclass(frozen=True)
class Row:
    """An attack on a method: for each column the seeds' values, None where a number does not exist; and in how many
    seeds the attack has wrecked the model, so that there are none."""

    attack: str
    method: str
    values: dict[str, list[float | None]] = field(default_factory=lambda: {key: [] for key, *_ in COLUMNS})
    wrecked: int = 0

    def mean(self, key: str) -> float | None:
        there = [value for value in self.values[key] if value is not None]
        return float(np.mean(there)) if there else None

    def interval(self, key: str) -> tuple[float, float] | None:
        """The 95 % interval of the mean."""
        return mean_interval(self.values[key])


def rows(done: Sequence[Done], wrecks: Sequence[Wreck], attacks: Iterable[str], methods: Iterable[str]) -> list[Row]:
    """A row for each of these attacks and methods, in their order."""
    count = Counter((one.attack, one.method) for one in wrecks)
    methods = list(methods)
    table = {
        (attack, method): Row(attack, method, wrecked=count[attack, method]) for attack in attacks for method in methods
    }
    for one in done:
        for key, value in measured(one).items():
            table[one.attack, one.method].values[key].append(value)
    return [row for row in table.values() if row.values["gain"] or row.wrecked]


def said_of_wrecks(table: Sequence[Row]) -> list[str]:
    """In words, where an attack has wrecked the model: those runs are in no mean."""
    lines = []
    for row in table:
        if row.wrecked:
            ended = len(row.values["gain"])
            lines.append(
                f"{row.attack} on {row.method}: in {row.wrecked} of {row.wrecked + ended} seeds the model is wrecked "
                f"(its loss is no number any more){'; these are in no mean' if ended else ''}."
            )
    return lines


def measured(one: Done) -> dict[str, float | None]:
    """The columns of one attacked run."""
    (summary, records), (before, _) = one.attacked, one.clean
    every = against_clean(_rewards(summary), _rewards(before), summary["attack"], detected(summary, records))
    return {key: every[key] for key, *_ in COLUMNS}


def against_clean(
    paid: Mapping[str, float], was: Mapping[str, float], outcome: Mapping[str, Any], named: Collection[str] | None
) -> dict[str, float | None]:
    """What an attack came to: rewards by client in its run, in their order, and in the clean run of the same seed; the
    `outcome` says who was hostile and what they kept; `named`: whom the server distrusts, if anything could make it."""
    hostile: list[str] = outcome["attackers"]
    kept = outcome["kept"] or [paid[name] for name in hostile]
    # Who is behind them: also those who joined under another's name.
    parties = [name for name in was if name in hostile or name not in paid]
    if outcome["one_party"]:
        gain = max(kept) - max(was[name] for name in parties)
    else:
        gain = float(np.mean([have - was[name] for name, have in zip(hostile, kept, strict=True)]))
    honest = [name for name in was if name not in parties]
    best, losses = max(honest, key=paid.__getitem__), [was[name] - paid[name] for name in honest]
    success = None if outcome["success"] is None else dict(zip(paid, outcome["success"], strict=True))
    return {
        "gain": gain,
        "over_lowest": max(kept) - min(paid[name] for name in honest),
        "over_best": max(kept) - paid[best],
        "best_loss": max(was[name] for name in honest) - paid[best],
        "mean_loss": float(np.mean(losses)),
        "one_loss": max(losses),
        "success": None if success is None else success[best],
        "mean_success": None if success is None else float(np.mean([success[name] for name in honest])),
        "recall": None if named is None else sum(name in named for name in hostile) / len(hostile),
        "false_positives": None if named is None else sum(name in named for name in honest) / len(honest),
    }


def detected(summary: Summary, records: Records) -> set[str] | None:
    """The clients whom the server distrusts in the end; None where nothing could make it distrust anybody."""
    counts: dict[str, int] = {}
    for record in records:
        for name in {name for key in NAMING for name in record.get(key, ())}:
            counts[name] = counts.get(name, 0) + 1
    removed = set(summary["attack"]["removed"])
    if not summary["attack"]["defended"] and not counts:
        return None
    return removed | {name for name, count in counts.items() if count >= DETECTED * len(records)}


def written(base: Config, done: Sequence[Done], table: Sequence[Row], wrecks: Sequence[Wreck] = ()) -> dict[str, str]:
    """The files of a study: results.json with every number, results.csv with the table."""
    whole = {
        "format_version": FORMAT_VERSION,
        "rules": RULES,
        **{name: getattr(base, name) for name in ("data", "scene", "clients", "rounds", "metric", "split_seed")},
        "label": "last",
        "seeds": sorted({one.seed for one in done} | {one.seed for one in wrecks}),
        "rows": [{"attack": row.attack, "method": row.method, "wrecked": row.wrecked, **row.values} for row in table],
        "runs": [_raw(one) for one in done],
        "wrecks": [one._asdict() for one in wrecks],
    }
    return {"results.json": json.dumps(whole, allow_nan=False) + "\n", "results.csv": _csv(table)}


def read_rows(results: dict[str, Any]) -> list[Row]:
    """The table again, from results.json."""
    keys = [key for key, *_ in COLUMNS]
    return [
        Row(row["attack"], row["method"], {key: list(row[key]) for key in keys}, int(row.get("wrecked", 0)))
        for row in results["rows"]  # those of an earlier version know of no wrecks
    ]


def _raw(one: Done) -> dict[str, Any]:
    summary, records = one.attacked
    clean = one.clean[0]
    named = {key: sum(len(record.get(key, ())) for record in records) for key in NAMING}
    found = detected(summary, records)
    return {
        **{"attack": one.attack, "method": one.method, "seed": one.seed},
        **{key: summary["attack"][key] for key in ("attackers", "one_party", "kept", "success", "removed")},
        "found": None if found is None else sorted(found),
        "named": {key: count for key, count in named.items() if count},
        "clients": summary["client_names"],
        "rewards": summary["rewards"],
        "contributions": summary["contributions"],
        "clean": {
            **{"clients": clean["client_names"], "rewards": clean["rewards"]},
            **{"contributions": clean["contributions"], "contributions_test": clean["contributions_test"]},
        },
        "measured": measured(one),
    }


def _csv(table: Sequence[Row]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    keys = [key for key, *_ in COLUMNS]
    writer.writerow(
        ["attack", "method", *(f"{key}{part}" for key in keys for part in ("", "_low", "_high")), "seeds", "wrecked"]
    )
    for row in table:
        numbers: list[float | None] = []
        for key in keys:
            numbers += [row.mean(key), *(row.interval(key) or (None, None))]
        shown = ["" if n is None else f"{n:.6g}" for n in numbers]
        writer.writerow([row.attack, row.method, *shown, len(row.values["gain"]), row.wrecked])
    return text.getvalue()


def _rewards(summary: Summary) -> dict[str, float]:
    return dict(zip(summary["client_names"], summary["rewards"], strict=True))
