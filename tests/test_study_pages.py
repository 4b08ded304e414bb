"""Numbers on the pages of the studies, tiny ones, made-up ones and those in docs, derived from the raw files once more,
in a few lines of their own."""

import json
import re
from collections import Counter
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
from scipy import special, stats

import fedsac
from benchmarks.studies import raw
from fedsac import Config
from tests.test_results_pages import rounded
from tests.tiny_studies import PAGES, made_in

DOCS = Path(__file__).resolve().parents[1] / "docs" / "results"
LABELS = ("last", "selected", "best")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Where the pages are: those of tiny studies, and of numbers that were never measured."""
    tiny, made_up = tmp_path_factory.mktemp("tiny"), tmp_path_factory.mktemp("made-up")
    for name in ("methods", "judge"):
        (made_up / name).mkdir()
        for k, scene in enumerate(("cla", "dir:1.0")):
            write_made_up(made_up / name, scene, np.random.default_rng(k))
        PAGES[name].write(made_up)
    return {"tiny": made_in(tiny), "made up": made_up, "docs": DOCS}


def write_made_up(folder, scene, draw):
    """Six seeds, in which methods differ significantly, rewards tie with contributions, and a gamma does not exist."""
    runs = []
    for seed in range(6):
        c = np.sort(draw.integers(300, 500, 4)) / 1000
        best = c.max() + 0.1 + 0.01 * draw.random()
        rewards = {
            "fedsac-plus": (c + (c + best) / 2) / 2,
            "fedavg-server": best - 0.02 * draw.random(4),
            "standalone": np.where(np.arange(4) == 1, c, c + draw.normal(0, 0.01, 4)),
            "server-alone": np.full(4, best),
        }
        rewards["fedsac-plus"][-1] = best + 0.005
        if seed == 2:
            rewards["fedavg-server"][:] = best
        if scene == "cla":
            rewards["server-alone"][0] -= 0.001
        for method, theta in rewards.items():
            about = {"data": "cifar10", "scene": scene, "clients": 4, "method": method, "seed": seed}
            common = {} if method == "standalone" else {"global": best}
            labels = {
                label: {"round": 3 - k, "rewards": [*theta[:-1], theta[-1] - k / 50], "global": None} | common
                for k, label in enumerate(LABELS)
            }
            known = (c + draw.normal(0, 0.01, 4)).tolist()
            scores = {"contributions": known, "contributions_test": c.tolist(), "megabytes": seed + 1.0}
            runs.append(about | scores | {"labels": labels})
    configs = [Config(data="cifar10", scene=scene, clients=4)]
    raw.write(folder / f"{scene[:3]}.json", raw.head(folder.name, configs), {"seconds": 1.0}, runs)


def is_raw(path):
    return '"study"' in path.read_text()[:200]


IN_DOCS = [name for name in PAGES if any(map(is_raw, (DOCS / name).glob("*.json")))]


def places(name):
    return ["tiny", *(["made up"] if name != "long" else []), *(["docs"] if name in IN_DOCS else [])]


def page(folder, name):
    """The tables below each heading of a page, as rows of texts without the head; and the runs of each cell."""
    tables, heading = {}, ""
    for is_table, lines in groupby((folder / f"{name}.md").read_text().splitlines(), lambda line: line[:1] == "|"):
        lines = list(lines)
        if is_table:
            rows = [[part.strip() for part in line.strip("| ").split(" | ")] for line in lines[2:]]
            tables.setdefault(heading, []).append(rows)
        heading = next((line.strip("# ") for line in reversed(lines) if line.startswith("#")), heading)
    runs = [run for path in (folder / name).glob("*.json") for run in json.loads(path.read_text())["runs"]]
    return tables, {title: [r for r in runs if titled(r) == title] for title in dict.fromkeys(map(titled, runs))}


def titled(run):
    data = {"cifar10": "CIFAR-10", "fashion-mnist": "Fashion-MNIST", "svhn": "SVHN"}.get(run["data"], run["data"])
    scene, _, alpha = run["scene"].upper().partition(":")
    clients = "" if run["clients"] == 10 else f", {run['clients']} clients"
    return f"{data} {scene}" + (f"({alpha})" if alpha else "") + clients


NUMBERS = {}


def number(run, label, column):
    """A column of a page, of one run at one label; computed once."""
    key = id(run["labels"]), label, column
    if key not in NUMBERS:
        NUMBERS[key] = computed(run, label, column), run  # kept, so that no other run has its place in memory
    return NUMBERS[key][0]


def computed(run, label, column):
    c, theta, known = (
        np.array(values)
        for values in (run["contributions_test"], run["labels"][label]["rewards"], run["contributions"])
    )
    top = theta.max()
    inside = [low < x and (x < (low + top) / 2 or low == c.max()) for low, x in zip(c, theta, strict=True)]
    ways = {
        "gamma": lambda: 100 * np.corrcoef(c, theta)[0, 1] if np.ptp(theta) and np.ptp(c) else None,
        "attainable": lambda: fedsac.gamma_attainable(c, known, top),  # has tests of its own
        "limit": lambda: fedsac.gamma_limit(c, top),
        "bcf": lambda: np.mean(inside),
        "max": lambda: top,
        "mean": lambda: theta.mean(),
        "gain": lambda: theta.mean() - c.mean(),
        "spread": lambda: np.sqrt(np.mean((theta - c - (theta - c).mean()) ** 2)),
        "lose": lambda: np.sum(theta <= c),
        "below": lambda: np.sum(theta < c),
        "global": lambda: run["labels"][label]["global"],
        "megabytes": lambda: run["megabytes"],
    }
    return ways[column]()


def by_method(runs, label, column):
    """Of each method, the number of each seed."""
    found = {}
    for run in runs:
        found.setdefault(run["method"], {})[run["seed"]] = number(run, label, column)
    return found


def check(text, values):
    """A text is the mean of the values, with its 95 % interval if it shows one and k/n where some are missing."""
    there = [value for value in values if value is not None]
    if not there:
        assert text == "-"
        return
    text = text.strip("*")
    if len(there) < len(values):
        text, _, counted = text.rpartition(" ")
        assert counted == f"{len(there)}/{len(values)}"
    mean, _, interval = text.partition(" [")
    assert rounded(mean, np.mean(there)), (text, there)
    if interval:
        half = special.stdtrit(len(there) - 1, 0.975) * standard_error(there)
        bounds = np.mean(there) - half, np.mean(there) + half
        assert all(rounded(t, b) for t, b in zip(interval.strip("]").split(", "), bounds, strict=True)), (text, there)


def verdicts(found):
    """Each method's verdict: paired t tests, Holm's correction over its rivals."""
    said = {}
    for method, own in found.items():
        tested = []
        for rival, other in found.items():
            differences = [own[s] - other[s] for s in own if own[s] is not None and s in other and other[s] is not None]
            if rival != method and any(value is not None for value in other.values()):
                tested.append((p_value(np.array(differences)), np.mean(differences) if differences else 0.0))
        tested.sort(key=lambda pair: 1.0 if pair[0] is None else pair[0])
        rejected, still = [], True
        for k, (p, difference) in enumerate(tested):
            still = still and p is not None and p * (len(tested) - k) <= 0.05
            rejected += [difference] if still else []
        beaten = any(difference < 0 for difference in rejected)
        first = len(rejected) == len(tested)
        said[method] = "beaten" if beaten else "first" if first else "undecided"
        if all(p is None for p, _ in tested):
            said[method] = "-"
    return said


def p_value(differences):
    if len(differences) < 2:
        return None
    if np.ptp(differences) < 1e-9:
        return 1.0 if abs(differences.mean()) < 1e-9 else 2.0 ** (1 - len(differences))
    return 2 * special.stdtr(len(differences) - 1, -abs(differences.mean()) / standard_error(differences))


def standard_error(values):
    return np.std(values, ddof=1) / np.sqrt(len(values))


CELL_COLUMNS = [
    *(("gamma", label) for label in LABELS),
    *((key, "last") for key in ("attainable", "limit", "bcf")),
    *(("max", label) for label in LABELS),
    *((key, "last") for key in ("global", "mean", "gain", "spread", "lose", "megabytes")),
]


def check_cell(rows, runs):
    """The table of one cell with all methods."""
    found = {column: by_method(runs, column[1], column[0]) for column in CELL_COLUMNS}
    assert [row[0].strip("`") for row in rows] == list(found["gamma", "last"])
    judged = [verdicts(found[key, "last"]) for key in ("gamma", "max")]
    for name, *texts, gamma_verdict, reward_verdict in rows:
        method = name.strip("`")
        for text, column in zip(texts, CELL_COLUMNS, strict=True):
            check(text, list(found[column][method].values()))
        assert [gamma_verdict, reward_verdict] == [one[method] for one in judged]
        assert [texts[0][:2] == "**", texts[6][:2] == "**"] == [one[method] == "first" for one in judged]


@pytest.mark.parametrize("place", places("methods"))
def test_the_methods_page(place, folders):
    tables, cells = page(folders[place], "methods")
    for title, runs in cells.items():
        check_cell(tables[title][0], runs)
    counted = tables[f"How often each is first, of {len(cells)} cells"]
    for rows, without in zip(counted, ((), ("standalone",)), strict=True):
        for position, (key, label) in enumerate((key, label) for key in ("gamma", "max") for label in LABELS):
            total = {row[0].strip("`"): Counter() for row in rows}
            for runs in cells.values():
                kept = [run for run in runs if run["method"] not in without]
                for method, verdict in verdicts(by_method(kept, label, key)).items():
                    total[method][verdict] += 1
            for row in rows:
                words = [total[row[0].strip("`")][word] for word in ("first", "beaten", "undecided")]
                assert row[1 + position] == " / ".join(map(str, words))


@pytest.mark.parametrize("place", places("judge"))
def test_the_judges_page(place, folders):
    tables, cells = page(folders[place], "judge")
    goals = {row[0]: row[1:] for row in tables["The goal, cell by cell"][0]}
    assert set(goals) == set(cells)
    reached, differences = {}, {}
    for title, runs in cells.items():
        check_cell(tables[title][0], runs)
        clients = runs[0]["clients"]
        met, difference = check_goal(goals[title], runs)
        reached.setdefault(clients, []).append([*met, all(met)])
        differences.setdefault(clients, []).append(difference)
    check_frontier(tables["The frontier"][0], cells)
    said = re.findall(
        r"- (\d+) clients, (\d+) cells: inside BCF reached in (\d+), gamma in (\d+), best reward in (\d+) by.*? above "
        r"-0.3 in (\d+), below it in (\d+)\), nobody worse off in (\d+), all four in (\d+)\..*: ([-+.\d]+) points",
        (folders[place] / "judge.md").read_text(),
    )
    assert [int(group[0]) for group in said] == list(reached)
    for clients, count, bcf, gamma, reward, above, below, nobody, everything, mean in said:
        own = differences[int(clients)]
        assert int(count) == len(own)
        sums = np.sum(reached[int(clients)], axis=0).tolist()
        assert [int(n) for n in (bcf, gamma, reward, nobody, everything)] == sums
        bounds = [stats.t.interval(0.95, len(one) - 1, np.mean(one), stats.sem(one)) for one in own if np.ptp(one)]
        assert int(above) == sum(low > -0.3 for low, _ in bounds) and int(below) == sum(
            high < -0.3 for _, high in bounds
        )
        assert rounded(mean, np.mean([np.mean(one) for one in own]))


def check_goal(texts, runs):
    """One cell against the goal: which of its four parts are met, and our best rewards less FedAvg's common models."""
    ours = {run["seed"]: run for run in runs if run["method"] == "fedsac-plus"}
    theirs = {run["seed"]: run["labels"]["last"] for run in runs if run["method"] == "fedavg-server"}
    share, gamma, attainable, best, below = (
        [number(run, "last", key) for run in ours.values()] for key in ("bcf", "gamma", "attainable", "max", "below")
    )
    tops = {seed: max(run["labels"]["last"]["rewards"]) for seed, run in ours.items()}
    to_common = [100 * (tops[seed] - theirs[seed]["global"]) for seed in ours]
    to_copies = [100 * (tops[seed] - max(theirs[seed]["rewards"])) for seed in ours]
    less = [a - g for a, g in zip(attainable, gamma, strict=True) if a is not None and g is not None]
    met = [
        bool(np.mean(share) >= 0.98),
        bool(less and np.mean(less) <= 0.5),
        bool(np.mean(to_common) >= -0.3),
        sum(below) == 0,
    ]
    marks = []
    for column in (0, 3):  # a number and whether it is enough
        texts[column], mark = texts[column].rsplit(" ", 1)
        marks.append(mark)
    marks.append(texts.pop(6))
    assert marks == ["yes" if holds else "no" for holds in met[:3]]
    assert texts.pop() == f"{sum(below)} of {len(ours) * runs[0]['clients']}"
    for text, values in zip(texts, (share, gamma, attainable, less, best, to_common, to_copies), strict=True):
        check(text, values)
    return met, to_common


def check_frontier(rows, cells):
    """Means over the cells of a data set and number of clients."""
    for name, *texts in rows:
        data, clients, method = name.split(", ")
        group = [runs for title, runs in cells.items() if title.startswith(f"{data} ")]
        group = [runs for runs in group if runs[0]["clients"] == int(clients)]
        for text, key in zip(texts, ("gamma", "attainable", "bcf", "max", "global", "mean", "lose"), strict=True):
            seeds = [by_method(runs, "last", key)[method.strip("`")].values() for runs in group]
            means = [np.mean(there) for values in seeds if (there := [v for v in values if v is not None])]
            assert rounded(text, np.mean(means)) if len(means) == len(group) else text == "-", (name, key)


@pytest.mark.parametrize("place", places("long"))
def test_the_page_of_long_runs(place, folders):
    tables, cells = page(folders[place], "long")
    for title, runs in cells.items():
        single, chosen = tables[title]
        for name, t, *texts in single:
            own = [run for run in runs if run["method"] == name.strip("`")]
            for text, key in zip(texts, ("gamma", "bcf", "best", "mean", "global"), strict=True):
                check_spread(text, [run["curve"][key][run["curve"]["round"].index(int(t))] for run in own])
            if int(t) == own[0]["curve"]["round"][-1]:  # the curve ends with the last round's rewards
                check(texts[0].partition(" [")[0], [number(run, "last", "gamma") for run in own])
                check(texts[1].partition(" [")[0], [number(run, "last", "bcf") for run in own])
        for name, *texts in chosen:
            own = [run for run in runs if run["method"] == name.strip("`")]
            columns = [(key, label) for key in ("gamma", "max") for label in LABELS]
            for text, (key, label) in zip(texts, columns, strict=False):
                check(text, [number(run, label, key) for run in own])
            for text, label in zip(texts[6:], ("selected", "best"), strict=False):
                check_spread(text, [run["labels"][label]["round"] for run in own])
            check_spread(texts[8], [max(run["curve"]["best"]) for run in own])


def check_spread(text, values):
    """A text is the mean of the values, and in brackets the lowest and the highest."""
    there = [value for value in values if value is not None]
    mean, _, ends = text.partition(" [")
    check(mean if ends or len(there) == len(values) else text, values if not ends else there)
    if ends:
        lowest, highest = ends.partition("]")[0].split(", ")
        assert rounded(lowest, min(there)) and rounded(highest, max(there))
