"""Numbers on the results pages, derived from the raw files once more, in a few lines of their own."""

import csv
import itertools
import json
import re
from collections import defaultdict
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import pytest
from scipy.stats import t as student

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
    assert [row[0] for row in rows] == [*names, "CIFAR-10, 20 clients", "Fashion-MNIST, 20 clients"]
    for row in rows:
        name, _, clients = row[0].removesuffix(" clients").partition(", ")
        scenes = []
        for path in sorted((DOCS / "results" / "judge").glob(f"{names[name]}-*.json")):
            runs = [run for run in json.loads(path.read_text())["runs"] if run["clients"] == int(clients or 10)]
            if not runs:
                continue
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


def check_spread(text, values, of):
    """0.91 (0.90 to 0.93, 2/3): the mean, the lowest and the highest, and how many of the seeds have a value."""
    there = [value for value in values if value is not None]
    if not there:
        assert text == "-"
        return
    found = re.fullmatch(r"(\S+) \((\S+) to (\S+?)(?:, (\d)/(\d))?\)", text)
    assert all(map(rounded, found.groups()[:3], (mean(there), min(there), max(there)))), of
    assert [int(n) for n in found.groups()[3:] if n] == ([len(there), len(values)] if len(there) < len(values) else [])


def test_first_order_against_exact_importance():
    rows = next(rows for head, rows in tables("any-network.md") if "Spearman" in head)
    runs = json.loads((DOCS / "results" / "unit-importance.json").read_text())["runs"]
    assert len(rows) == 24 and len(runs) == 3 * 24
    for network, units, steps, *texts in rows:
        own = [run for run in runs if [run["network"], str(run["steps"])] == [network, steps]]
        assert len(own) == 3 and {run["units"] for run in own} == {int(units)}
        for text, key in zip(texts, ("accuracy", "spearman", "same half"), strict=True):
            check_spread(text, [run[key] for run in own], (network, steps, key))


def test_runs_with_networks():
    """Kinds of importance and of batch norm's statistics, from the raw numbers of their runs."""
    runs = json.loads((DOCS / "results" / "network-runs.json").read_text())["runs"]
    by_importance, by_statistics = (
        next(rows for head, rows in tables("any-network.md") if wanted in head)
        for wanted in ("importance", "best alone")
    )
    assert len(by_importance) == 12 and len(by_statistics) == 3

    def check_scores(texts, own, usual):
        assert len(own) == len(usual) == 3
        check_spread(texts[0], [run["gamma"] for run in own], own)
        pairs = [(a["gamma"], b["gamma"]) for a, b in zip(own, usual, strict=True)]
        less = [a - b for a, b in pairs if a is not None and b is not None]
        if len(less) < 2 or not any(less):
            assert texts[1] == "-"
        else:
            reach = student.ppf(0.975, len(less) - 1) * stdev(less) / len(less) ** 0.5
            shown = re.fullmatch(r"(\S+) \[(\S+), (\S+)\]", texts[1]).groups()
            assert all(map(rounded, shown, (mean(less), mean(less) - reach, mean(less) + reach)))
        check_spread(texts[2], [max(run["rewards"]) for run in own], own)
        assert rounded(texts[3], mean(mean(run["rewards"]) for run in own))

    def of(**wanted):
        found = [run for run in runs if wanted.items() <= run.items()]
        return sorted(found, key=lambda run: run["seed"])

    for network, option, *scores, units, parameters in by_importance:
        exact, own = (of(network=network, option=one) for one in ("exact", option))
        check_scores(scores, exact if option == "exact" else own, exact)
        for text, key in ((units, "neurons"), (parameters, "parameters")):
            assert rounded(text, mean(mean(run[key]) / max(run[key]) for run in own)), (network, option, key)
    validation = of(batch_norm="validation")
    for named, alone, *scores in by_statistics:
        own = validation if named == "`validation`" else of(batch_norm=named.strip("`"))
        check_scores(scores, own, validation)
        assert rounded(alone, mean(run["best alone"] for run in own))


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
    for run in (r for r in raw if r["attack"] != "clean" and "wrecked" not in r):
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
        own["over"].append(100 * (max(kept) - min(got[n] for n in good)))
        own["best"].append(100 * (max(was[n] for n in good) - max(got[n] for n in good)))
        own["mean"].append(100 * (mean(was[n] for n in good) - mean(got[n] for n in good)))
        own["one"].append(100 * max(was[n] - got[n] for n in good))
        if run["success"]:
            own["all success"].append(mean(dict(zip(run["clients"], run["success"], strict=True))[n] for n in good))
            own["success"].append(dict(zip(run["clients"], run["success"], strict=True))[max(good, key=got.get)])
        if run["found"] is not None:
            own["recall"].append(len(set(run["found"]) & set(ends)) / len(ends))
            own["false"].append(len(set(run["found"]) & set(good)) / len(good))
    return cells


def attacked_method(title):
    """The method of a column: FedSAC+, hardened -> fedsac-plus, hardened all; work -> fedsac, hardened work."""
    name, *more = title.replace("*", "").replace(" alone", "").replace("+", "-plus").lower().split(", ")
    if name.startswith(("fed", "cgsv", "cffl", "rffl")):
        known = {"hardened": "hardened all", "missing": "missing"}
        return ", ".join([name, *(known.get(one, f"hardened {one}") for one in more)])
    return f"fedsac, hardened {name}"


def in_bcf(run):
    """The share of clients inside BCF, worked out here."""
    c, theta = run["contributions_test"], run["rewards"]
    inside = [a < b and (a == max(c) or b < (a + max(theta)) / 2) for a, b in zip(c, theta, strict=True)]
    return sum(inside) / len(inside)


def test_attacks_and_defences():
    files = sorted(path for path in (DOCS / "results/attacks").glob("*.json") if path.name != "privacy.json")
    found = tables("results/attacks.md")
    assert files
    for path in files:
        runs = json.loads(path.read_text())["runs"]
        alone = 2 if any(run["method"] == "fedsac, hardened work" for run in runs) else 0  # each defence alone
        cells, own, found = attack_cells(runs), found[: 6 + alone], found[6 + alone :]
        check_clean(own[0][1], runs)
        lost = "best", "mean", "one"
        columns = ("gain",), ("over",), lost, ("success", "all success"), ("recall", "false"), ("gain",), lost
        for keys, (head, rows) in zip(columns[: 5 + alone], own[1:], strict=True):
            assert head[0] == "attack" and rows
            for name, *texts in rows:
                for title, text in zip(head[1:], texts, strict=True):
                    of = name.strip("`"), attacked_method(title)
                    values = [cells[of][key] for key in keys]
                    wrecked = sum((run["attack"], run["method"]) == of for run in runs if "wrecked" in run)
                    text, _, told = text.rpartition(", ") if " wrecked" in text and ", " in text else (text, "", text)
                    assert told == f"{wrecked} wrecked" if wrecked else "wrecked" not in told
                    if not any(values):
                        assert text == (told if wrecked else "-"), (path.name, name, title)
                        continue
                    mean_text, _, more = text.replace(" (", " ± ").rstrip(")").partition(" ± ")
                    for part, of in zip(mean_text.split(" / "), values, strict=True):
                        assert rounded(part, mean(of)), (path.name, name, title, keys)
                    if more and keys == ("over",):
                        assert rounded(more, max(values[0]))
                    elif more:  # half of the 95 % interval, by Student's t
                        reach = student.ppf(0.975, len(values[0]) - 1) * stdev(values[0]) / len(values[0]) ** 0.5
                        assert rounded(more, reach), (path.name, name, title)
    assert not found


def check_clean(rows, runs):
    for title, seeds, gamma, inside, best, average, named in rows:
        method = attacked_method(title)
        own = [run for run in runs if (run["attack"], run["method"]) == ("clean", method)]
        gammas = [100 * np.corrcoef(r["contributions_test"], r["rewards"])[0, 1] for r in own if np.ptp(r["rewards"])]
        expected = [mean(gammas), mean(in_bcf(run) for run in own)]
        expected += [mean(of(run["rewards"]) for run in own) for of in (max, mean)]
        assert len(own) == int(seeds) and all(map(rounded, (gamma, inside, best, average), expected)), title
        watched = own if "missing" in title else [r for r in runs if (r["attack"], r["method"]) == ("claim", method)]
        listed = [run["found"] for run in watched]
        if named == "-":
            assert None in listed
        else:
            assert named == f"{sum(map(len, listed))} of {sum(len(run['clients']) for run in watched)}"


def test_the_price_of_each_defence():
    """A row of docs/hardening.md is of both scenes: four numbers each."""
    rows = next(rows for head, rows in tables("hardening.md") if "POW: gamma" in head)
    several = {"`work`, `originals` (each)": ("work", "originals"), "all": ("all",), "FedSAC": (None,)}
    assert len(rows) == 8
    for title, *texts in rows:
        plus = "-plus" if title.startswith("FedSAC+") else ""
        for kind in several.get(title.replace("+", ""), (title.strip("`").removeprefix("FedSAC+, "),)):
            method = f"fedsac{plus}" if kind in (None, "FedSAC+") else f"fedsac{plus}, hardened {kind}"
            for cell, shown in (("digits-pow", texts[:4]), ("digits-dir-1.0", texts[4:])):
                runs = json.loads((DOCS / "results/attacks" / f"{cell}.json").read_text())["runs"]
                own = [run for run in runs if (run["attack"], run["method"]) == ("clean", method)]
                gammas = [100 * np.corrcoef(r["contributions_test"], r["rewards"])[0, 1] for r in own]
                expected = [mean(gammas), mean(in_bcf(run) for run in own)]
                expected += [mean(of(run["rewards"]) for run in own) for of in (max, mean)]
                assert len(own) == 5 and all(map(rounded, shown, expected)), (title, cell)


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
    for data, noise, seeds, spent, alone, gamma, *texts in by_head["data", "noise"]:
        own = [
            row for row in priced if row["data"] == data and row["noise"] == (None if noise == "none" else float(noise))
        ]
        assert int(seeds) == len(own)
        gammas = [row["gamma"] for row in own]
        reach = student.ppf(0.975, len(own) - 1) * stdev(gammas) / len(own) ** 0.5
        assert all(rounded(*pair) for pair in zip(gamma.split(" ± "), (mean(gammas), reach), strict=True))
        for text, key in zip(texts, ("best", "mean", "best_alone"), strict=True):
            assert rounded(text, mean(row[key] for row in own)), (data, noise, key)
        if noise != "none":
            for text, pick in zip(spent.split(", "), (min, np.median, max), strict=True):
                assert rounded(text, mean(float(pick(row["epsilon"])) for row in own)), (data, noise)
            assert rounded(alone, mean(float(np.median(row["epsilon_alone"])) for row in own))


def test_who_is_taken_for_the_owner_of_a_model():
    rows = json.loads((DOCS / "results/owners.json").read_text())["runs"]
    page = (DOCS / "hardening.md").read_text()
    table = page[page.index("<!-- owners -->") : page.index("<!-- /owners -->")]
    shown = [re.findall(r"(\d+\.\d) \((\d+\.\d)\)", line) for line in table.splitlines()]
    shown = [[(float(a), float(b)) for a, b in line] for line in shown if line]
    found = []
    for data in ("digits", "fashion-mnist", "fashion-mnist, lr .1"):
        for scene, held in itertools.product(("iid", "pow", "cla", "dir:1.0"), ("all", "hardened")):
            own = [r for r in rows if r["data"] == data and r["held"] == held and r["scene"] == scene]
            assert len({r["seed"] for r in own}) == len(own) == 3 and {r["pairs"] for r in own} == {132}
            sums = np.sum([[r["fits"], r["whole_steps"]] for r in own], 0)
            found.append(sums.T / (3 * 132) * 100)
    assert np.array(shown).shape == np.array(found).shape == (24, 5, 2)
    assert np.array(shown) == pytest.approx(np.array(found), abs=0.05001)


def test_speed_of_networks():
    """Every cell, ratios from the milliseconds; what was aimed at, and what the page says of it."""
    runs = json.loads((DOCS / "results" / "network-speed.json").read_text())["runs"]
    rows = next(rows for head, rows in tables("any-network.md") if "one by one, ms" in head)
    assert len(rows) == len(runs)
    ratios = {}
    for run, (network, precision, members, plain, stack, ratio, memory, time, bytes_, *limits) in zip(
        runs, rows, strict=True
    ):
        each = run["milliseconds a model-step"]
        assert [network, precision.rstrip(" *"), members] == [
            f"`{run['network']}`",
            run["precision"],
            f"{run['members']}",
        ]
        assert precision.endswith("*") == run["client of MPS"]
        assert rounded(plain, each["one by one"]) and rounded(stack, each["stack"])
        assert abs(float(ratio) - each["one by one"] / each["stack"]) < 0.06
        assert rounded(memory, run["peak GPU megabytes a member"])
        assert abs(float(time) - each["stack of halves"] / each["stack"]) < 0.006
        assert rounded(bytes_, run["half of the units: share of the bytes"])
        for text, share in zip(limits, run["share of the limit"].values(), strict=True):
            assert rounded(text.rstrip("%"), 100 * share)
        ratios[run["network"], run["precision"], run["members"]] = float(ratio)
    text = (DOCS / "any-network.md").read_text()
    said = re.search(
        r"missed for 10 \(([\d.]+)\), for 50 by little \(([\d.]+)\) and for `resnet18` \(([\d.]+); in bf16", text
    )
    own = "torch's own"
    wanted = [("cnn", own, 10), ("cnn", own, 50), ("resnet18", own, 50)]
    assert [float(one) for one in said.groups()] == [ratios[key] for key in wanted]
    assert [ratios[key] >= aim for key, aim in zip(wanted, (20, 28, 3), strict=True)] == [False] * 3
    assert ratios["cnn", own, 350] >= 33 and ratios["resnet18", "bf16", 50] == 3.3


def test_how_much_longer_exact_importance_takes():
    runs = json.loads((DOCS / "results" / "unit-importance.json").read_text())["runs"]
    took = defaultdict(list)
    for run in runs:
        took[run["network"].split(",")[0].split(" ")[0]].append(run["times longer"])
    text = re.sub(r"\s+", " ", (DOCS / "any-network.md").read_text())
    said = re.search(
        r"took (\d+) to (\d+) times as long for `cnn`, (\d+) to (\d+) for the ResNet, (\d+) to (\d+) for the ViT, "
        r"(\d+) to (\d+) for the text transformer, and (\d+) to (\d+) where there are few units",
        text,
    ).groups()
    few = took["resnet18-gn"] + took["LoRA"]
    wanted = [took["cnn"], took["resnet18"], took["ViT"], took["text"], few]
    for low, high, values in zip(said[::2], said[1::2], wanted, strict=True):
        assert rounded(low, min(values)) and rounded(high, max(values))
