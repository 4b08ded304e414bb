"""What the pages claim of FedSAC+ with and without server data, of its goal, of cells that are missing and of few
seeds: derived from the raw files once more, in a few lines of their own."""

import csv
import json
import re
from collections import defaultdict
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import fedsac
from tests.test_results_pages import PAPER_BETA, rounded

DOCS = Path(__file__).resolve().parents[1] / "docs"
RESULTS = DOCS / "results"
ON_V = {"server-alone", "fedavg-server", "fedavg-v-client", "fedsac-server", "fedrac-server", "fedsac-plus"}
COMMON = {"fedavg", "fedavg-server", "fedavg-v-client", "qffl"}
SCENES = ("pow", "cla", "dir:1.0", "dir:2.0", "dir:3.0")
NAMES = {"cifar10": "CIFAR-10", "fashion-mnist": "Fashion-MNIST", "svhn": "SVHN"}


def cells(study, clients=10):
    """The last rounds of each cell with so many clients: {(data, scene): {method: {seed: numbers}}}."""
    found = defaultdict(lambda: defaultdict(dict))
    for path in sorted((RESULTS / study).glob("*.json")):
        for run in json.loads(path.read_text())["runs"]:
            if run["clients"] != clients:
                continue
            last, c = run["labels"]["last"], np.array(run["contributions_test"])
            theta = np.array(last["rewards"])
            found[run["data"], run["scene"]][run["method"]][run["seed"]] = {
                "max": 100 * theta.max(),
                "mean": 100 * theta.mean(),
                "global": None if last["global"] is None else 100 * last["global"],
                "gamma": 100 * np.corrcoef(c, theta)[0, 1] if np.ptp(theta) else None,
                "bcf": 100 * np.mean(fedsac.bcf(c, theta)),
                "below": int(np.sum(theta < c)),
                "attainable": fedsac.gamma_attainable(c, run["contributions"], theta.max())
                if run["method"] == "fedsac-plus"
                else None,
            }
    return found


@pytest.fixture(scope="module", params=(("judge", 10), ("judge", 20), ("methods", 10)))
def study(request):
    return *request.param, cells(*request.param)


def titled(data, scene, clients=10):
    own = "" if clients == 10 else f", {clients} clients"
    return f"{NAMES[data]} {scene.upper().replace(':', '(')}" + ")" * (":" in scene) + own


def shown(study):
    """The tables of a page below each heading, with their heads."""
    tables, heading = defaultdict(list), ""
    for is_table, lines in groupby((RESULTS / f"{study}.md").read_text().splitlines(), lambda line: line[:1] == "|"):
        lines = list(lines)
        if is_table:
            rows = [[part.strip() for part in re.sub(r"^\||\|$", "", line).split("|")] for line in lines]
            tables[heading].append((rows[0], rows[2:]))
        heading = next((line.strip("# ") for line in reversed(lines) if line.startswith("#")), heading)
    return tables


def differences(found, own, rival, key):
    """By cell: our number less the rival's, of the seeds that have both."""
    theirs = "global" if key == "max" and rival in COMMON else key
    return {
        cell: [
            a[key] - by[rival][seed][theirs]
            for seed, a in by[own].items()
            if a[key] is not None and by[rival][seed][theirs] is not None
        ]
        for cell, by in found.items()
    }


def verdicts(by_cell):
    """For each cell with at least two seeds the sign of a significant difference, else 0: by Holm's step-down over the
    cells, and without a correction."""
    p = {cell: p_value(np.array(values)) for cell, values in by_cell.items() if len(values) > 1}
    corrected, alone, rejecting = {}, {}, True
    for k, cell in enumerate(sorted(p, key=p.get)):
        rejecting = rejecting and p[cell] * (len(p) - k) <= 0.05
        sign = int(np.sign(np.mean(by_cell[cell])))
        corrected[cell], alone[cell] = sign * rejecting, sign * (p[cell] <= 0.05)
    return corrected, alone


def p_value(values):
    if np.ptp(values) < 1e-9:  # the sign test, where the t test has no spread to go by
        return 1.0 if abs(values.mean()) < 1e-9 else 2.0 ** (1 - len(values))
    return float(stats.ttest_1samp(values, 0).pvalue)


def counted(signs):
    values = list(signs.values())
    return " / ".join(str(values.count(sign)) for sign in (1, -1, 0))


def interval(text, values):
    """Whether the text is the values' mean with its 95 % interval."""
    mean, low, high = re.fullmatch(r"([-+.\d]+) \[([-+.\d]+), ([-+.\d]+)\]", text.strip("*")).groups()
    bounds = stats.t.interval(0.95, len(values) - 1, np.mean(values), stats.sem(values))
    return rounded(mean, np.mean(values)) and rounded(low, bounds[0]) and rounded(high, bounds[1])


def test_the_same_data_on_both_sides(study):
    name, clients, found = study
    title = "With the same data, and without" if clients == 10 else f"The same with {clients} clients"
    (_, rows), (head, by_cell) = shown(name)[title]
    methods = {method for by in found.values() for method in by}
    listed = set()
    for kind, difference, number, *texts in rows:
        own, rival = difference.replace("`", "").split(" less ")
        listed.add((own, rival))
        trained = {(True, True): "both train on V", (False, False): "neither trains on V"}
        assert kind == trained.get((own in ON_V, rival in ON_V), "unequal: only ours trains on V")
        assert int(number) == len(found)
        for (mean, counts), key in zip(zip(texts[::2], texts[1::2], strict=True), ("max", "gamma", "bcf"), strict=True):
            values = differences(found, own, rival, key)
            if not any(values.values()):
                assert (mean, counts) == ("-", "-")
                continue
            corrected, alone = verdicts(values)
            assert counts == f"{counted(corrected)} ({counted(alone)})", (difference, key)
            if not all(values.values()):
                assert mean == "-"
            elif len({len(one) for one in values.values()}) > 1:
                assert rounded(mean, np.mean([np.mean(one) for one in values.values()]))
            else:
                assert interval(mean, np.mean(list(values.values()), axis=0)), (difference, key)
    others = methods - ON_V - {"fedsac-plus-no-server", "standalone"}
    assert listed == {
        *(("fedsac-plus", rival) for rival in (methods & ON_V) - {"fedsac-plus"} | others),
        *(("fedsac-plus-no-server", rival) for rival in others),
    }
    named = {titled(*cell, clients): cell for cell in found}
    assert {row[0] for row in by_cell} == set(named)
    for column, difference in enumerate(head[1:], 1):
        own, rival = difference.replace("`", "").split(" less ")
        values = differences(found, own, rival, "max")
        corrected, _ = verdicts(values)
        for row in by_cell:
            assert interval(row[column], values[named[row[0]]]), (row[0], difference)
            assert (row[column][:2] == "**") == bool(corrected[named[row[0]]])


def test_all_cells_are_there(study):
    name, clients, found = study
    assert set(found) == {(data, scene) for data in list(NAMES)[: 3 if clients == 10 else 2] for scene in SCENES}
    seeds = {tuple(sorted(by_seed)) for by in found.values() for by_seed in by.values()}
    assert len(seeds) == 1 and len(seeds.pop()) == 10
    assert len({frozenset(by) for by in found.values()}) == 1
    text = (RESULTS / f"{name}.md").read_text()
    assert "Not made yet" not in text
    if name == "judge":
        rows = re.search(r"Of the methods that train on V the judging lacks (.*?),", text)[1]
        there = {method for by in found.values() for method in by}
        assert set(re.findall(r"`(.*?)`", rows)) == ON_V - there


@pytest.mark.parametrize(("number", "clients"), [(0, 10), (1, 20)])
def test_the_goal_in_short(number, clients):
    found = cells("judge", clients)
    _, rows = shown("judge")["FedSAC+, judged"][number]
    ours = {cell: list(by["fedsac-plus"].values()) for cell, by in found.items()}
    less = {
        cell: np.array(values) for cell, values in differences(found, "fedsac-plus", "fedavg-server", "max").items()
    }
    of = {
        cell: {key: np.mean([one[key] for one in own]) for key in ("bcf", "gamma", "attainable")}
        for cell, own in ours.items()
    }
    below = {cell: sum(one["below"] for one in own) for cell, own in ours.items()}
    missed = [
        {cell: (one["bcf"] / 100, "") for cell, one in of.items() if one["bcf"] < 98 - 1e-9},
        {
            cell: (one["attainable"] - one["gamma"], " below")
            for cell, one in of.items()
            if one["attainable"] - one["gamma"] > 0.5
        },
        {cell: (np.mean(values), "") for cell, values in less.items() if np.mean(values) < -0.3},
        {cell: (count, f" of {10 * clients}") for cell, count in below.items() if count},
    ]
    assert [row[0][:11] for row in rows] == [
        "a share of ",
        "gamma at mo",
        "best reward",
        "best reward",
        "no client w",
        "all that is",
    ]
    for row, one in zip([*rows[:3], rows[4]], missed, strict=True):
        assert row[1:3] == ["**not reached**", f"{len(found) - len(one)} of {len(found)}"]
        said = dict(re.fullmatch(r"(.*) \(([^()]*)\)", text).groups() for text in row[3].split("; "))
        assert set(said) == {titled(*cell, clients) for cell in one}
        for cell, (value, words) in one.items():
            number, after = re.fullmatch(r"([-+.\d]+)(.*)", said[titled(*cell, clients)]).groups()
            assert rounded(number, value) and after == words, cell
    assert rows[3][1] == "**not reached**" and interval(rows[3][2], np.mean(list(less.values()), axis=0))
    whole = [cell for cell in found if not any(cell in one for one in missed)]
    assert rows[5][1:3] == ["**not reached**", f"{len(whole)} of {len(found)}"]
    text = (RESULTS / "judge.md").read_text()
    for rival in ("fedavg", "fedsac", "aequa"):
        line = re.search(
            rf"^- {clients} clients, less `{rival}`'s(?: common model)?: (.*?) points; significantly above in (\d+), "
            rf"below in (\d+), undecided in (\d+) of {len(found)} cells\. Inside BCF: (.*) points\.$",
            text,
            re.M,
        )
        values = differences(found, "fedsac-plus-no-server", rival, "max")
        assert interval(line[1], np.mean(list(values.values()), axis=0))
        assert " / ".join(line.groups()[1:4]) == counted(verdicts(values)[0])
        shares = differences(found, "fedsac-plus-no-server", rival, "bcf")
        assert interval(line[5], np.mean(list(shares.values()), axis=0))


def test_gains_on_the_papers_page():
    """MCG and CGS of every row and column of the paper's page, from contributions and rewards of its runs."""
    runs = defaultdict(list)
    for run in json.loads((RESULTS / "paper/results.json").read_text())["runs"]:
        runs[run["data"], str(run["clients"]), run["scene"], run["method"], run["beta"]].append(run)
    with (RESULTS / "paper/gains.csv").open() as file:
        lines = list(csv.DictReader(file))
    seen, by_block = set(), defaultdict(list)
    for line in lines:
        method, _, variant = line["row"].partition(":")
        beta = PAPER_BETA[line["data"], line["scene"]][-1 if variant == "other-beta" else 0]
        own = runs[line["data"], line["clients"], line["scene"], method, beta]
        gained = [100 * (np.array(run["labels"][line["label"]]["rewards"]) - run["contributions"]) for run in own]
        assert len(own) == int(line["seeds"]) == 5
        numbers = {
            "mcg": [one.mean() for one in gained],
            "cgs": [np.sqrt(((one - one.mean()) ** 2).mean()) for one in gained],
        }
        for name, values in numbers.items():
            assert float(line[name]) == pytest.approx(np.mean(values), abs=2e-3), line
            assert float(line[f"{name}_deviation"]) == pytest.approx(np.std(values, ddof=1), abs=2e-3), line
        by_block[line["data"], line["clients"]].append(line)
        seen.add((line["data"], line["clients"], line["scene"], method))
    assert seen >= {key[:4] for key in runs if key[3] != "standalone"}
    blocks = shown("paper/README")["What collaborating gains: MCG and CGS (5 seeds, 300 rounds)"]
    for (head, rows), ((data, clients), block) in zip(blocks, by_block.items(), strict=True):
        assert head[0] == NAMES[data] + ("" if clients == "10" else f", {clients} clients")
        keys = list(dict.fromkeys((line["row"], line["label"]) for line in block))
        assert [label for _, label in keys] == [row[1] for row in rows]
        at = {(line["row"], line["label"], titled(data, line["scene"]).split()[-1]): line for line in block}
        for key, (_, _, *texts) in zip(keys, rows, strict=True):
            for scene, text in zip(head[2:], texts, strict=True):
                line = at.pop((*key, scene), None)
                numbers = () if line is None else list(line.values())[5:9]
                said = re.findall(r"[-+.\d]+", text.replace("±", "")) if line else text
                assert (said == "-") if line is None else all(map(rounded, said, map(float, numbers))), (key, scene)
        assert not at


def test_what_fedsac_plus_claims_with_and_without_server_data():
    text = re.sub(r"\s+", " ", (DOCS / "fedsac-plus.md").read_text())
    said = re.findall(
        r"- `(fedsac-plus[-a-z]*)` less `([-a-z]+)`: (\S+ \[.*?\]) points, above in (\d+) of (\d+) cells, "
        r"below in (\d+)(?:; without the correction above in (\d+), below in (\d+))?",
        text,
    )
    judged = cells("judge")
    assert len(said) == 6
    for own, rival, mean, above, number, below, *uncorrected in said:
        where = cells("methods") if rival == "fedsac-server" else judged  # which the judging does not have
        assert int(number) == len(where) == 15
        values = differences(where, own, rival, "max")
        assert interval(mean, np.mean(list(values.values()), axis=0)), rival
        corrected, alone = (list(signs.values()) for signs in verdicts(values))
        assert [int(above), int(below)] == [corrected.count(1), corrected.count(-1)]
        assert uncorrected == ["", ""] or [int(n) for n in uncorrected] == [alone.count(1), alone.count(-1)]
    above_aequa = {
        cell
        for cell, values in differences(judged, "fedsac-plus-no-server", "aequa", "max").items()
        if np.mean(values) > 0
    }
    assert {scene for _, scene in above_aequa} == {"cla"} and "(above in CLA alone)" in text
    fashion = [by for (data, _), by in judged.items() if data == "fashion-mnist"]
    for name, method in (
        ("has", "server-alone"),
        ("FedSAC", "fedsac"),
        ("Aequa", "aequa"),
        ("`fedsac-plus-no-server`", "fedsac-plus-no-server"),
    ):
        number = re.search(rf"What the data is worth by itself:.*?{name} \(?(\.\d+)", text)[1]
        assert rounded(number, np.mean([np.mean([one["max"] for one in by[method].values()]) for by in fashion]) / 100)


def test_what_the_reading_changes():
    runs = json.loads((RESULTS / "readings.json").read_text())["runs"]
    titles = {"FedRAC": "fedrac", "IAFL": "iafl", "FedAVE, `reward_by = own`": "fedave"}
    lines = (DOCS / "conformance.md").read_text().partition("## What the reading changes")[2].splitlines()
    rows = [[part.strip() for part in line.strip("| ").split(" | ")] for line in lines if line.startswith("| ")][2:]
    rows = rows[: next(k for k, row in enumerate(rows) if row[0] == "quantity")]
    assert len(rows) == 24
    differences = {}
    for title, number, *texts, difference in rows:
        name, _, scene = title.rpartition(", ")
        scene = {"POW": "pow", "DIR(1.0)": "dir:1"}[scene]
        own = {
            reading: {
                run["seed"]: run[number]
                for run in runs
                if (run["method"], run["scene"], run["reading"]) == (titles[name], scene, reading)
            }
            for reading in ("paper", "code")
        }
        for text, values in zip(texts, own.values(), strict=True):
            there = [value for value in values.values() if value is not None]
            text, _, count = text.partition("] ")
            assert len(values) == 10 and count == ("" if len(there) == 10 else f"{len(there)}/10")
            assert interval(text.rstrip("]") + "]", there)
        pairs = [(own["code"][seed], own["paper"][seed]) for seed in range(10)]
        values = np.array([a - b for a, b in pairs if a is not None and b is not None])
        assert interval(difference, values) if np.ptp(values) > 1e-9 else float(difference) == values.mean()
        differences[title, number] = values, difference[:2] == "**"
    corrected, _ = verdicts({key: values for key, (values, _) in differences.items()})
    assert {key for key, sign in corrected.items() if sign} == {key for key, (_, bold) in differences.items() if bold}
    assert [key for key, (_, bold) in differences.items() if bold] == [("FedRAC, DIR(1.0)", "mean reward")]


def test_what_is_said_of_twenty_clients_and_of_the_rule():
    text = re.sub(r"\s+", " ", (DOCS / "fedsac-plus.md").read_text())
    found = cells("judge", 20)
    corrected = verdicts(differences(found, "fedsac-plus-no-server", "fedsac", "max"))[0]
    below = {cell for cell, sign in corrected.items() if sign < 0}
    assert below == {("cifar10", "pow"), ("fashion-mnist", "pow"), ("fashion-mnist", "dir:1.0")}
    above = [cell for cell, sign in corrected.items() if sign > 0]
    assert f"below FedSAC in {len(below)} cells" in text and f"above in {len(above)};" in text
    to_aequa = differences(found, "fedsac-plus-no-server", "aequa", "max")
    seeds = np.mean(list(to_aequa.values()), axis=0)
    low, high = stats.t.interval(0.95, len(seeds) - 1, seeds.mean(), stats.sem(seeds))
    assert low < 0 < high and rounded(re.search(r"distance from Aequa, (-\.\d+) points", text)[1], seeds.mean())
    signs = verdicts(to_aequa)[0]
    assert {scene for (_, scene), sign in signs.items() if sign > 0} == {"cla"}
    assert sum(sign < 0 for sign in signs.values()) == int(re.search(r"below in the other (\d+)\)", text)[1])
    assert "98 and 94 % are inside BCF" in re.sub(r"\s+", " ", (DOCS.parent / "README.md").read_text())
    for data, share in (("cifar10", "98"), ("fashion-mnist", "94")):
        own = [mean_of(by["fedsac-plus"], "bcf") for (there, _), by in found.items() if there == data]
        assert rounded(share, np.mean(own))


def test_the_comparison_in_the_readme():
    """Every number of the table, means over a data set's scenes, and what is said of it."""
    text = (DOCS.parent / "README.md").read_text()
    found = cells("judge")
    lines = [
        line.strip("| ").split(" | ") for line in text.splitlines() if re.match(r"\| `(fed|aequa)[-a-z]*` \| \d", line)
    ]
    assert len(lines) == 5
    for name, *columns in lines:
        method = name.strip("`")
        for column, key in zip(columns, ("bcf", "gamma", "attainable", "max", "mean", "global"), strict=True):
            if key == "attainable" or column == "the best reward":
                continue  # the first is judge.md's, which is tested; the second is tested below
            for said, data in zip(column.split(", "), NAMES, strict=True):
                own = [mean_of(by[method], key) for (there, _), by in found.items() if there == data]
                assert len(own) == 5 and rounded(said, np.mean(own)), (method, key, data)
        if columns[-1] == "the best reward":
            for data in NAMES:
                own = [
                    mean_of(by[method], key)
                    for key in ("max", "global")
                    for (there, _), by in found.items()
                    if there == data
                ]
                assert abs(np.mean(own[:5]) - np.mean(own[5:])) < 0.1
    text = re.sub(r"\s+", " ", text)
    studied = cells("methods")
    added = {key: differences(studied, "fedsac-plus", "fedsac-server", key) for key in ("max", "bcf", "gamma", "mean")}
    assert interval(re.search(r"the same training \((.*?)\)", text)[1], np.mean(list(added["max"].values()), axis=0))
    signs = {key: list(verdicts(values)[0].values()) for key, values in added.items()}
    assert signs["bcf"] == [1] * 15
    assert [signs["gamma"].count(sign) for sign in (1, -1, 0)] == [1, 1, 13]
    said = re.search(r"is (\d+) points \[(\d+), (\d+)\] more of the clients inside BCF", text).groups()
    assert bracketed(said, added["bcf"])
    assert bracketed(
        re.search(r"the cells \((\S+) \[([\d.]+), ([\d.]+)\], but above in one", text).groups(), added["gamma"]
    )
    assert bracketed(re.search(r"mean reward, (-[\d.]+) points \[(-[\d.]+), (-[\d.]+)\]", text).groups(), added["mean"])
    aequa = re.search(r"ends ([\d.]+) points \[([\d.]+), ([\d.]+)\] below Aequa's", text).groups()
    less = differences(found, "fedsac-plus-no-server", "aequa", "max")
    assert bracketed(aequa, {cell: [-one for one in values] for cell, values in less.items()})


def mean_of(by_seed, key):
    return np.mean([numbers[key] for numbers in by_seed.values()])


def bracketed(said, by_cell):
    """Whether these are the mean over the cells and its 95 % interval over the seeds."""
    values = np.mean(list(by_cell.values()), axis=0)
    bounds = stats.t.interval(0.95, len(values) - 1, values.mean(), stats.sem(values))
    return all(map(rounded, said, (values.mean(), *bounds)))
