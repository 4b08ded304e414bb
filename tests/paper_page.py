"""The paper's page read once more, for its tests: the raw runs, the printed numbers, the tables as texts, and how a
number of ours is worked out of the runs of one cell."""

import json
from collections import defaultdict
from functools import cache
from pathlib import Path

import numpy as np
from scipy import stats

from tests.test_claims import shown, titled
from tests.test_results_pages import PAPER_BETA

ROOT = Path(__file__).resolve().parents[1]
PAPER = ROOT / "docs/results/paper"
TEXT = (PAPER / "README.md").read_text()
TABLES = shown("paper/README")
OTHER_BETA, OVER_N, COMMON = ", beta of Tables 2 and 7", ", updates over N", ", common model"
NAMES = {
    "standalone": "Standalone",
    "fedavg": "FedAvg",
    "qffl": "q-FFL",
    "cffl": "CFFL",
    "cgsv": "CGSV",
    "fedave": "FedAVE",
    "fedsac-no-allocation": "w/o allocation",
    "fedsac-no-aggregation": "w/o aggregation",
    "fedsac": "FedSAC",
}
LABELS = {"1": "best last", "2": "best last peak", "7": "fair last", "8": "mean last files"}
LABELS = {**LABELS, "3": LABELS["1"], "5": LABELS["1"], "4": LABELS["2"], "6": LABELS["2"]}

RAW = json.loads((PAPER / "results.json").read_text())
RUNS = defaultdict(dict)  # of (data, clients, scene), method and beta: the run of each seed
for _run in RAW["runs"]:
    _column = _run["data"], _run["clients"], _run["scene"]
    RUNS[_column, _run["method"], _run["beta"]][_run["seed"]] = _run
    RUNS[_column, "standalone", PAPER_BETA[_column[::2]][0]].setdefault(_run["seed"], _run)

PRINTED = defaultdict(dict)  # of a table and column: by row the number, its deviation and the number in brackets
COLUMNS = {}
_printed = json.loads((ROOT / "src/fedsac/paper/printed.json").read_text())
LATER = _printed.pop("standalone_later")
for _name, _part in _printed.items():
    _table = _name.removeprefix("table")
    COLUMNS[_table] = [(data, n, scene) for data, n, scenes in _part["columns"] for scene in scenes]
    for _row, _values in _part["value"].items():
        for _i, _column in enumerate(COLUMNS[_table]):
            _more = (_part[key][_row][_i] if key in _part else None for key in ("std", "low"))
            PRINTED[_table, _column][_row] = (_values[_i], *_more)


def name_of(column):
    """As the page names a column: CIFAR-10 DIR(1.0), 20 clients."""
    return titled(column[0], column[2], column[1])


def number(run, table, label, method="", common=False):
    """A run's number in a table; gamma from the contributions and rewards themselves, to four decimals as all that is
    kept of a run."""
    rewards = run["labels"].get(label, {}).get("rewards")
    if table in "135":
        c = run["contributions"]
        return round(100 * np.corrcoef(c, rewards)[0, 1], 4) if np.ptp(rewards) else None
    if table in "246":
        if method == "standalone":
            return 100 * max(run["contributions"])
        if label == "peak":
            return 100 * run["peak"][common]
        return 100 * (run["labels"][label]["common"] if common else max(rewards))
    if table == "7":
        top = max(rewards) if label == "last" else run["fair"] and run["fair"][1]
        return None if top is None else 100 * top
    return run[{"mean": "megabytes", "last": "counted", "files": "serialised"}[label]]


def lowest(run, label):
    """Table 7's number in brackets."""
    low = min(run["labels"]["last"]["rewards"]) if label == "last" else run["fair"] and run["fair"][2]
    return None if low is None else 100 * low


def split(row):
    """A row's name as the method that it is printed for, the one that was run, whether the other beta, and whether the
    common model."""
    other, common = row.endswith(OTHER_BETA), row.endswith(COMMON)
    name = row.removesuffix(OTHER_BETA).removesuffix(COMMON)
    over_n = name.endswith(OVER_N)
    method = {text: key for key, text in NAMES.items()}[name.removesuffix(OVER_N)]
    return method, "fedsac-over-n" if over_n else method, other, common


def own_runs(table, column, row):
    """The runs of a row by seed; None where the row is the same as the one without the other beta."""
    if table == "7":
        return RUNS[column, "fedsac", float(row.removeprefix("beta "))]
    _, method, other, _ = split(row)
    betas = PAPER_BETA[column[::2]]
    return None if other and len(betas) == 1 else RUNS.get((column, method, betas[-1 if other else 0]), {})


@cache
def values(table, column, row, label):
    """A row's numbers by seed, of the seeds that have one."""
    method, common = ("", False) if table == "7" else split(row)[::3]
    runs = own_runs(table, column, row) or {}
    found = {seed: number(run, table, label, method, common) for seed, run in runs.items()}
    return {seed: value for seed, value in sorted(found.items()) if value is not None}


def mean(table, column, row, label):
    """A row's mean over seeds or, for the label "paper", the printed number; None where there is none."""
    if label == "paper":
        key = row.replace(" ", "=") if table == "7" else split(row)[0]
        return PRINTED[table, column][key][0]
    found = list(values(table, column, row, label).values())
    return float(np.mean(found)) if found else None


def printed_rows(table):
    """The rows that the paper has in a table, as the page names them."""
    keys = PRINTED[table, COLUMNS[table][0]]
    return [key.replace("=", " ") if table == "7" else NAMES[key] for key in keys]


@cache
def rank(table, column, row, label, rivals):
    """1 for the best; Table 8 is better where less was sent."""
    own, sign = mean(table, column, row, label), -1 if table == "8" else 1
    others = [mean(table, column, rival, label) for rival in rivals]
    return None if own is None else 1 + sum(round(sign * (one - own), 4) > 0 for one in others if one is not None)


def rivals_of(table, row):
    """The printed rows that a row, or the row it stands in for, is compared with."""
    own = row if table == "7" else NAMES[split(row)[0]]
    return tuple(name for name in printed_rows(table) if name != own)


def p_value(own, rival):
    """Of the paired t test over the seeds that both have; the sign test where the differences have no spread."""
    seeds = own.keys() & rival.keys()
    if len(seeds) < 2:
        return None
    a, b = (np.array([one[seed] for seed in sorted(seeds)]) for one in (own, rival))
    scale = max(np.abs(a).max(), np.abs(b).max())
    if np.ptp(a - b) <= 1e-9 * scale:
        return 1.0 if abs(np.mean(a - b)) <= 1e-9 * scale else 2.0 ** (1 - len(seeds))
    return float(stats.ttest_rel(a, b).pvalue)


@cache
def verdict(table, column, row, label, rivals):
    """Whether a row is significantly first, beaten or undecided among these, by Holm's step-down over the rivals."""
    own = values(table, column, row, label)
    others = [there for rival in rivals if (there := values(table, column, rival, label))]
    p = [(1.0 if (one := p_value(own, rival)) is None else one) for rival in others]
    sign, signs, rejecting = -1 if table == "8" else 1, [0] * len(p), True
    for k, i in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        rejecting = rejecting and p[i] * (len(p) - k) <= 0.05
        shared = own.keys() & others[i].keys()
        signs[i] = rejecting * sign * int(np.sign(np.mean([own[s] - others[i][s] for s in shared] or [0])))
    return "beaten" if -1 in signs else "first" if all(one == 1 for one in signs) else "undecided"
