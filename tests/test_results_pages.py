"""Numbers on the results pages, derived from the raw files once more, in a few lines of their own."""

import csv
import json
from collections import defaultdict
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import pytest

import fedsac

SCENES = ("pow", "cla", "dir:1.0", "dir:2.0", "dir:3.0")
DOCS = Path(__file__).resolve().parents[1] / "docs"


def tables(page):
    """The tables of a Markdown page: header and rows, as texts."""
    found, lines = [], (DOCS / page).read_text().splitlines()
    for i, line in enumerate(lines):
        if line.startswith(("| --- ", "|---")):
            rows = []
            for row in lines[i + 1 :]:
                if not row.startswith("|"):
                    break
                rows.append([part.strip() for part in row.strip("| ").split(" | ")])
            found.append(([part.strip() for part in lines[i - 1].strip("| ").split(" | ")], rows))
    return found


def raw(name):
    return json.loads((DOCS / "results" / "plus" / f"{name}.json").read_text())


def rounded(text, value):
    """Whether the text is the number, rounded to as many digits as it has."""
    return abs(float(text) - value) <= 0.5 * 10 ** -len(text.partition(".")[2]) + 1e-9


def test_fedsac_plus_by_cell():
    head, rows = tables("fedsac-plus.md")[0]
    cells = raw("second")
    assert len(rows) == len(cells) == 9 and head[1:3] == ["inside BCF", "gamma"]
    for row, (cell, variants) in zip(rows, cells.items(), strict=True):
        data, scene = cell.split()
        assert row[0].lower().replace("-", "") == f"{data} {scene}".replace("-", "").replace(":", "(") + ")" * (
            ":" in cell
        )
        own, fedavg = variants["generous .005, damping 0.5, weigh 0"], variants["FedAvg, server steps"]
        keys = ("bcf", "gamma", "attainable", "limit", "best", None, "mean", "losers")
        for text, key in zip(row[1:], keys, strict=True):
            seeds = fedavg if key is None else own
            assert rounded(text, mean(seed[key or "whole"] for seed in seeds.values())), (cell, key)


def test_fedsac_plus_judged():
    """Means over scenes of means over seeds, from the raw files of the judging."""
    _, rows = tables("fedsac-plus.md")[1]
    names = {"CIFAR-10": "cifar10", "Fashion-MNIST": "fashion-mnist", "SVHN": "svhn"}
    assert [row[0] for row in rows] == list(names)
    for row in rows:
        scenes = []
        for path in sorted((DOCS / "results" / "judge").glob(f"{names[row[0]]}-*.json")):
            runs = [run for run in json.loads(path.read_text())["runs"] if run["clients"] == 10]
            own = [run for run in runs if run["method"] == "fedsac-plus"]
            fedavg = [run["labels"]["last"]["global"] for run in runs if run["method"] == "fedavg-server"]
            last = [(run["contributions_test"], run["labels"]["last"]["rewards"], run["contributions"]) for run in own]
            scenes.append(
                (
                    mean(float(np.mean(fedsac.bcf(c, theta))) for c, theta, _ in last),
                    mean(100 * float(np.corrcoef(c, theta)[0, 1]) for c, theta, _ in last),
                    mean(fedsac.gamma_attainable(c, c_v, max(theta)) for c, theta, c_v in last),
                    mean(max(theta) for _, theta, _ in last),
                    mean(fedavg),
                )
            )
        assert len(scenes) == 5
        for text, value in zip(row[1:], np.mean(scenes, 0), strict=True):
            assert rounded(text, float(value)), row


@pytest.mark.parametrize(
    ("table", "study", "groups", "keys"),
    [
        (2, "first", ("cifar10",), ("bcf", "gamma", "whole", "mean", "losers")),
        (3, "second", ("cifar10", "fashion"), ("bcf", "gamma", "whole")),
        *(
            (table, study, ("cifar10",), ("bcf", "gamma", "attainable", "whole", "mean", "losers"))
            for table, study in ((4, "third"), (5, "fourth"), (6, "fifth"))
        ),
        (7, "sixth", ("fashion",), ("bcf", "gamma", "attainable", "whole", "mean", "losers")),
        (8, "rivals", ("cifar10",), ("bcf", "gamma", "whole", "mean", "losers")),
    ],
)
def test_fedsac_plus_by_variant(table, study, groups, keys):
    _, rows = tables("fedsac-plus.md")[table]
    cells = raw(study)
    assert [row[0] for row in rows] == list(next(iter(cells.values())))
    for row in rows:
        wanted = [(group, key) for group in groups for key in keys]
        for text, (group, key) in zip(row[1:], wanted, strict=True):
            values = [
                mean(seed[key] for seed in variants[row[0]].values())
                for cell, variants in cells.items()
                if cell.startswith(group)
            ]
            assert rounded(text, mean(values)), (row[0], group, key)


PAPER_BETA = {  # of Table 9 and, where they differ, of Tables 2 and 7
    **{("cifar10", scene): beta for scene, beta in zip(SCENES, ((5, 10), (3,), (10,), (2, 5), (10, 5)), strict=True)},
    **{("svhn", scene): (beta,) for scene, beta in zip(SCENES, (5, 3, 5, 10, 5), strict=True)},
    **{("fashion-mnist", scene): (beta,) for scene, beta in zip(SCENES, (10, 1, 10, 20, 25), strict=True)},
}


def paper_number(run, table, label, common):
    """A cell's number in one run; gamma from the contributions and rewards themselves."""
    if table in ("table1", "table3", "table5"):
        c, theta = np.array(run["contributions"]), np.array(run["labels"][label]["rewards"])
        return 100 * np.corrcoef(c, theta)[0, 1] if np.ptp(theta) else None
    if label == "peak":
        return 100 * run["peak"][1 if common else 0]
    return 100 * (run["labels"][label]["common"] if common else max(run["labels"][label]["rewards"]))


@pytest.mark.parametrize("table", ["table1", "table2", "table3", "table4", "table5", "table6"])
def test_the_papers_tables(table):
    runs = json.loads((DOCS / "results/paper/results.json").read_text())["runs"]
    by_cell = defaultdict(list)
    for run in runs:
        by_cell[run["data"], run["clients"], run["scene"], run["method"], run["beta"]].append(run)
    with (DOCS / f"results/paper/{table}.csv").open() as file:
        lines = list(csv.DictReader(file))
    checked = 0
    for line in lines:
        method, _, variant = line["row"].partition(":")
        if method == "standalone":
            continue
        betas = PAPER_BETA[line["data"], line["scene"]]
        beta = betas[-1 if variant == "other-beta" else 0]
        if variant == "other-beta" and len(betas) == 1:
            continue  # the same as without
        cell = by_cell[line["data"], int(line["clients"]), line["scene"], method, beta]
        values = [paper_number(run, table, line["label"], variant == "common") for run in cell]
        values = [value for value in values if value is not None]
        assert len(values) == int(line["seeds_with_it"]), line
        assert float(line["mean"]) == pytest.approx(mean(values), abs=2e-3) if values else line["mean"] == "", line
        if len(values) > 1:
            assert float(line["deviation"]) == pytest.approx(stdev(values), abs=2e-3), line
        checked += 1
    assert checked > 20


def test_first_order_against_exact_importance():
    _, rows = tables("any-network.md")[1]
    found = json.loads((DOCS / "results" / "unit-importance.json").read_text())
    expected = [(name, row) for name, own in found.items() for row in own]
    assert len(rows) == len(expected) == 16
    for texts, (name, row) in zip(rows, expected, strict=True):
        assert texts[0] == name and [int(texts[1]), int(texts[2])] == [row["units"], row["steps"]]
        for text, key in zip(texts[3:], ("accuracy", "spearman", "same half"), strict=True):
            assert rounded(text, row[key]), (name, key)


def test_runs_with_networks():
    """Kinds of importance and of batch norm's statistics, from the raw numbers of their runs."""
    found = json.loads((DOCS / "results" / "network-runs.json").read_text())
    by_importance, by_statistics = (
        next(rows for head, rows in tables("any-network.md") if wanted in head)
        for wanted in ("importance", "best alone")
    )
    assert len(by_importance) == 6 and len(by_statistics) == 3

    def held(own, key):
        return mean([mean(run[key]) / max(run[key]) for run in own])

    for texts in by_importance:
        own = [run for run in found["importance"] if [run["network"], run["option"]] == texts[:2]]
        scores = mean([max(run["rewards"]) for run in own]), mean([mean(run["rewards"]) for run in own])
        expected = mean([run["gamma"] for run in own]), *scores, held(own, "units"), held(own, "parameters")
        assert len(own) == 3 and all(map(rounded, texts[2:], expected)), texts
    for texts in by_statistics:
        own = [run for run in found["batch norm"] if f"`{run['batch_norm']}`" == texts[0]]
        gammas = [run["gamma"] for run in own if run["gamma"] is not None]
        assert texts[2].endswith(f" {len(gammas)}/3") or len(gammas) == 3
        scores = mean([max(run["rewards"]) for run in own]), mean([mean(run["rewards"]) for run in own])
        shown = [texts[1], texts[2].split()[0], *texts[3:]]
        assert all(map(rounded, shown, (mean([run["best alone"] for run in own]), mean(gammas), *scores))), texts


def test_units_of_networks_people_use():
    head, rows = tables("results/units.md")[0]
    found = json.loads((DOCS / "results" / "units.json").read_text())
    assert head[:7] == ["network", "parameters", "groups", "units", "in units", "left", "half"]
    assert [row[0] for row in rows] == [one["network"] for one in found] and len(rows) >= 29
    for row, one in zip(rows, found, strict=True):
        numbers = [int(text.replace(",", "")) for text in (row[1], row[2], row[3], row[5])]
        in_units = one["in_units"]
        assert numbers == [one["parameters"], len(one["groups"]), one["units"], one["parameters"] - in_units]
        assert one["units"] == sum(group["units"] for group in one["groups"])
        for text, part in ((row[4], in_units), (row[6], one["with_half_of_the_units"])):
            assert rounded(text.rstrip("%"), 100 * part / one["parameters"]), (row[0], text)
        assert float(row[8]) < 1e-9


def attack_cells(raw):
    """What the tables of an attack study say, from the raw runs: (attack, method) -> lists of values by seed."""
    clean = {
        (r["method"], r["seed"]): dict(zip(r["clients"], r["rewards"], strict=True))
        for r in raw
        if r["attack"] == "clean"
    }
    cells = defaultdict(lambda: defaultdict(list))
    for run in (r for r in raw if r["attack"] != "clean"):
        was, got = clean[run["method"], run["seed"]], dict(zip(run["clients"], run["rewards"], strict=True))
        bad = set(run["attackers"]) | (set(was) - set(got))
        good = [name for name in was if name not in bad]
        kept = run["kept"] or [got[name] for name in run["attackers"]]
        ends = dict(zip(run["attackers"], kept, strict=True))
        if run["one_party"]:
            gain = max(ends.values()) - max(was[name] for name in bad if name in was)
        else:
            gain = mean(ends[name] - was[name] for name in ends)
        own = cells[run["attack"], run["method"]]
        own["gain"].append(100 * gain)
        own["best"].append(100 * (max(was[n] for n in good) - max(got[n] for n in good)))
        own["mean"].append(100 * (mean(was[n] for n in good) - mean(got[n] for n in good)))
        if run["success"]:
            own["success"].append(dict(zip(run["clients"], run["success"], strict=True))[max(good, key=got.get)])
        if run["found"] is not None:
            own["recall"].append(len(set(run["found"]) & set(ends)) / len(ends))
            own["false"].append(len(set(run["found"]) & set(good)) / len(good))
    return cells


def test_the_attacks_of_the_security_page():
    files = sorted(path for path in (DOCS / "results/attacks").glob("*.json") if path.name != "privacy.json")
    found = [(head, rows) for head, rows in tables("security.md") if head[0] == "attack"]
    assert files and len(found) == 4 * len(files)
    titles = {"FedSAC": "fedsac", "FedSAC+": "fedsac-plus"}
    clean = [rows for head, rows in tables("security.md") if head[0] == "method"]
    for number, path in enumerate(files):
        cells = attack_cells(json.loads(path.read_text())["runs"])
        attacks = list(dict.fromkeys(attack for attack, _ in cells))
        for title, seeds, *texts in clean[number]:
            name, _, how = title.strip("*").partition(", ")
            method = titles.get(name, name.lower()) + (f", {how}" if how else "")
            own = [r for r in json.loads(path.read_text())["runs"] if (r["attack"], r["method"]) == ("clean", method)]
            gammas = [
                100 * np.corrcoef(r["contributions_test"], r["rewards"])[0, 1] for r in own if np.ptp(r["rewards"])
            ]
            expected = [mean(gammas), mean(max(r["rewards"]) for r in own), mean(mean(r["rewards"]) for r in own)]
            assert len(own) == int(seeds) and all(map(rounded, texts, expected)), title
        for keys, (head, rows) in zip(
            (("gain",), ("best", "mean"), ("success",), ("recall", "false")), found[4 * number :], strict=False
        ):
            named = [row[0].strip("`") for row in rows]
            assert named == [a for a in attacks if keys != ("success",) or cells[a, "fedsac"]["success"]]
            methods = [title.strip("*").partition(", ")[::2] for title in head[1:]]
            methods = [titles.get(name, name.lower()) + (f", {how}" if how else "") for name, how in methods]
            for attack, row in zip(named, rows, strict=True):
                for method, text in zip(methods, row[1:], strict=True):
                    values = [mean(cells[attack, method][key]) for key in keys if cells[attack, method][key]]
                    assert len(text.split(" / ")) == len(keys) if values else text == "-", (attack, method, text)
                    for part, value in zip(text.split(" / ") if values else (), values, strict=True):
                        assert rounded(part, value), (path.name, attack, method, keys)


def test_privacy_on_the_security_page():
    rows = json.loads((DOCS / "results/attacks/privacy.json").read_text())["runs"]

    def of(key, **wanted):
        return mean(row[key] for row in rows if all(row.get(name) == value for name, value in wanted.items()))

    by_head = {tuple(head[:2]): own for head, own in tables("security.md")}
    noises = sorted({row["noise"] for row in rows if row["kind"] == "membership"}, key=lambda noise: noise or 0)
    assert noises[0] is None and len(noises) > 1
    membership = by_head["from", "attack"]
    assert {(row[0], row[1]) for row in membership} == {
        (row["target"], row["attack"]) for row in rows if row["kind"] == "membership"
    }
    for target, attack, *texts in membership:
        columns = [(key, noise) for noise in noises for key in ("auc", "tpr")]
        for text, (key, noise) in zip(texts, columns, strict=True):
            assert rounded(text, of(key, kind="membership", target=target, attack=attack, noise=noise)), (
                target,
                attack,
            )
    for sent, *texts in by_head["what is sent", "public digits"]:
        columns = [("public", None), *((key, noise) for noise in noises for key in ("recovered", "median"))]
        for text, (key, noise) in zip(texts, columns, strict=True):
            assert float(text) == pytest.approx(
                of(key, kind="inversion", sent=sent, noise=noise), rel=0.051, abs=0.0051
            )
    priced = [row for row in rows if row["kind"] == "price"]
    assert len(by_head["data", "noise"]) == len({(row["data"], row["noise"]) for row in priced})
    for data, noise, spent, alone, *texts in by_head["data", "noise"]:
        own = [
            row for row in priced if row["data"] == data and row["noise"] == (None if noise == "none" else float(noise))
        ]
        for text, key in zip(texts, ("gamma", "best", "mean", "best_alone"), strict=True):
            assert rounded(text, mean(row[key] for row in own)), (data, noise, key)
        if noise != "none":
            for text, pick in zip(spent.split(", "), (min, np.median, max), strict=True):
                assert rounded(text, mean(float(pick(row["epsilon"])) for row in own)), (data, noise)
            assert rounded(alone, mean(float(np.median(row["epsilon_alone"])) for row in own))
