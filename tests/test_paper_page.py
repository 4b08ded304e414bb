"""Every number of docs/results/paper/README.md, derived from the raw file of its runs (and from what the paper printed)
once more, in a few lines of the tests' own."""

import csv
import re
from itertools import pairwise

import numpy as np
import pytest

from tests import paper_page as page
from tests.paper_page import COLUMNS, LABELS, NAMES, PRINTED, RAW, TABLES, TEXT, mean, name_of, printed_rows, values
from tests.test_results_pages import rounded

CELL = re.compile(r"(\*\*)?(-?[\d.]+)(?: ±([\d.]+))?(?: \((-?[\d.]+)\))?(?: (\d)/(\d))?(?:\*\*)?( ≠)?")


def section(table):
    return next(tables for title, tables in TABLES.items() if title.startswith(f"Table {table}:"))


def blocks(table):
    """Each table of a section: its columns, its rows with their names filled in."""
    starts = list(dict.fromkeys(column[:2] for column in COLUMNS[table]))
    for (head, rows), start in zip(section(table), starts, strict=True):
        columns = [column for column in COLUMNS[table] if column[:2] == start]
        ours = page.name_of((*start, "")).strip().replace(" ,", ",")
        assert head == [ours, "", *(name_of((start[0], 10, column[2])).split()[-1] for column in columns)]
        named, name = [], ""
        for first, label, *texts in rows:
            name = first or name
            named.append((name, label, texts))
        yield columns, named


def expected_rows(table, columns):
    """The printed rows, each with its variants where there are runs of them."""
    two_betas = any(len(page.PAPER_BETA[column[::2]]) > 1 for column in columns)
    rows = []
    for name in printed_rows(table):
        rows.append(name)
        if name in ("FedAvg", "q-FFL") and table in "26":
            rows.append(name + page.COMMON)
        if name in ("FedSAC", "w/o allocation", "w/o aggregation"):
            rows += [name + page.OTHER_BETA] * two_betas
        if name == "FedSAC":
            rows += [name + page.OVER_N, name + page.OVER_N + page.OTHER_BETA][: 1 + two_betas]
    return rows


def test_how_it_was_made():
    runs = RAW["runs"]
    said = {line[2:].split(": ")[0]: line.split(": ")[1] for line in TEXT.splitlines()[2:11]}
    cells = {(run["data"], run["clients"], run["scene"]) for run in runs}
    methods = {run["method"] for run in runs}
    assert said.pop("runs") == (
        f"{len(runs)}, of {len(methods)} methods in {len(cells)} combinations of data, clients and scene"
    )
    assert said.pop("seeds") == "0, 1, 2, 3, 4; 300 rounds"
    assert {run["seed"] for run in runs} == {0, 1, 2, 3, 4} and {run["rounds"] for run in runs} == {300}
    assert rounded(said.pop("seconds"), RAW["made"]["seconds"])
    assert said == {key: str(RAW["made"][key]) for key in ("rules", "fedsac", "commit", "source", "torch", "device")}


def test_standing_alone_is_the_same_whatever_the_method():
    alone = {}
    for run in RAW["runs"]:
        key = run["data"], run["clients"], run["scene"], run["seed"]
        assert alone.setdefault(key, run["contributions"]) == run["contributions"]
        for label in run["labels"].values():
            assert label["max"] == max(label["rewards"]) and label["min"] == min(label["rewards"])
            assert label["mean"] == pytest.approx(np.mean(label["rewards"]), abs=1e-5)
        assert run["peak"][0] >= max(max(label["rewards"]) for label in run["labels"].values())


@pytest.mark.parametrize("table", list("12345678"))
def test_tables(table):
    moved, cells = dict.fromkeys(LABELS[table].split(), 0), dict.fromkeys(LABELS[table].split(), 0)
    for columns, rows in blocks(table):
        labels = ["paper", *LABELS[table].split()]
        assert [row[:2] for row in rows] == [(r, label) for r in expected_rows(table, columns) for label in labels]
        for row, label, texts in rows:
            for column, text in zip(columns, texts, strict=True):
                check_cell(table, column, row, label, text)
                if label != "paper" and row in printed_rows(table):
                    moved[label] += text.endswith("≠")
                    cells[label] += 1
    legend = TEXT.split(f"## Table {table}:")[1].split("As a file")[0]
    counts = ", ".join(f"{label} {moved[label]} of {n} cells" for label, n in cells.items())
    assert f"than in the paper ({counts})." in legend


def check_cell(table, column, row, label, text):
    where, runs = (table, column, row, label), page.own_runs(table, column, row)
    if runs is None:
        assert text == "=", where
        return
    bold, number, deviation, low, have, of, unlike = CELL.fullmatch(text).groups()
    rivals = page.rivals_of(table, row)
    if label == "paper":
        key = row.replace(" ", "=") if table == "7" else page.split(row)[0]
        value, spread, lowest = PRINTED[table, column][key]
        assert (float(number), deviation and float(deviation)) == (value, round(spread, 1) if spread else None), where
        assert (low and float(low)) == lowest and not unlike, where
    else:
        found = values(table, column, row, label)
        assert rounded(number, np.mean(list(found.values()))), where
        spread = np.std(list(found.values()), ddof=1)
        if table == "7":
            lows = [page.lowest(run, label) for seed, run in runs.items() if seed in found]
            assert deviation is None and rounded(low, np.mean(lows)), where
        else:
            assert low is None and (rounded(deviation, spread) if deviation else spread == 0), where
        assert len(runs) == 5 and (have, of) == ((None, None) if len(found) == 5 else (f"{len(found)}", "5")), where
        ranks = [page.rank(table, column, row, which, rivals) for which in ("paper", label)]
        assert bool(unlike) == (ranks[0] != ranks[1]), where
    assert bool(bold) == (page.rank(table, column, row, label, rivals) == 1), where


@pytest.mark.parametrize("table", list("12345678"))
def test_files_of_tables(table):
    """The same as a file: every line, with the rows of Standalone; and that no line is missing."""
    with (page.PAPER / f"table{table}.csv").open() as file:
        lines = list(csv.DictReader(file))
    at = set()
    for line in lines:
        column = line["data"], int(line["clients"]), line["scene"]
        key, _, variant = line["row"].partition(":")
        row = key.replace("=", " ") if table == "7" else NAMES.get(key, "FedSAC" + page.OVER_N)
        row += {"": "", "common": page.COMMON, "other-beta": page.OTHER_BETA}[variant]
        at.add((column, row, line["label"]))
        found, runs = values(table, column, row, line["label"]), page.own_runs(table, column, row)
        assert (len(runs), len(found)) == (int(line["seeds"]), int(line["seeds_with_it"])), line
        numbers = [np.mean([*found.values()]), np.std([*found.values()], ddof=1)]
        if table == "7":
            numbers.append(np.mean([page.lowest(run, line["label"]) for seed, run in runs.items() if seed in found]))
        texts = [line[name] for name in ("mean", "deviation", "lowest")]
        assert [float(text) for text in texts if text] == pytest.approx(numbers, rel=1e-5, abs=1e-9), line
        printed = PRINTED[table, column][key if table == "7" else page.split(row)[0]]
        texts = [line[name] for name in ("printed", "printed_deviation", "printed_lowest")]
        assert tuple(float(text) if text else None for text in texts) == printed, line
        rivals = page.rivals_of(table, row)
        ranks = [page.rank(table, column, row, which, rivals) for which in (line["label"], "paper")]
        assert [int(line["rank"]), int(line["printed_rank"])] == ranks and line["quick"] == "0", line
    wanted = {
        (column, row, label)
        for columns, _ in blocks(table)
        for row in expected_rows(table, columns)
        for column in columns
        for label in LABELS[table].split()
        if page.own_runs(table, column, row) is not None
    }
    assert at == wanted and len(lines) == len(at)


def test_table_9():
    names = {"learning rate": "lr", "local steps": "local_steps", "batch size": "batch", "beta": "beta"}
    batch = {"cifar10": 32, "fashion-mnist": 32, "svhn": 64}  # from the table's caption
    with (page.PAPER / "table9.csv").open() as file:
        lines = {(line["data"], 10, line["scene"], line["row"]): line for line in csv.DictReader(file)}
    for columns, rows in blocks("9"):
        for row, label, texts in rows:
            for column, text in zip(columns, texts, strict=True):
                runs = [run for run in RAW["runs"] if (run["data"], run["clients"], run["scene"]) == column]
                line = lines[(*column, names.get(row, row))]
                assert line["printed" if label == "paper" else "mean"] == text.replace(", ", " ").strip("-")
                if row not in names:
                    assert row == page.OTHER_BETA[2:]
                    betas = {*page.PAPER_BETA[column[::2]][1:], *([10] if column[2] == "dir:1.0" else [])}
                    assert text == (f"{min(betas)}" if betas else "-")
                elif label == "paper" and row != "batch size":
                    assert float(text) == PRINTED["9", column][names[row]][0]
                elif label == "paper":
                    assert int(text) == batch[column[0]]
                else:
                    own = [run for run in runs if run["method"] == "fedsac"] if row == "beta" else runs
                    assert [float(one) for one in text.split(", ")] == sorted({run[names[row]] for run in own})


# The claims: each as a function of a column, a label and whether with the other beta, that says whether it holds, with
# the text of its numbers.


def beta_row(name, column, other):
    """FedSAC's row, or an ablation's, with the other beta where that differs."""
    reads = name in ("FedSAC", "w/o allocation", "w/o aggregation")
    return name + page.OTHER_BETA if other and reads and len(page.PAPER_BETA[column[::2]]) > 1 else name


def first(table, rivals=None):
    def judge(column, label, other):
        own = beta_row("FedSAC", column, other)
        others = rivals or page.rivals_of(table, "FedSAC")
        sign, ours = -1 if table == "8" else 1, mean(table, column, own, label)
        top = max((one for one in others if mean(table, column, one, label) is not None), key=theirs(column, label))
        best = mean(table, column, top, label)
        name = "FedAvg's common model" if rivals else top
        text = f"FedSAC {ours:.2f}, " + (f"least of the others {best:.2f}" if sign < 0 else f"{name} {best:.2f}")
        return sign * ours > sign * best, text, page.verdict(table, column, own, label, tuple(others))

    def theirs(column, label):
        return lambda one: (-1 if table == "8" else 1) * mean(table, column, one, label)

    return judge


def near(table, row):
    def judge(column, label, other):
        own = mean(table, column, beta_row(row, column, other), "last" if label == "alone" else label)
        paper = mean(table, column, row, "paper")
        if table == "8":
            more = 100 * (own / paper - 1)
            return abs(more) <= 5, f"{own:.2f}, printed {paper:.2f} ({more:+.1f} %)", None
        return abs(own - paper) <= 3 + 1e-6, f"{own:.2f}, printed {paper:.2f} ({own - paper:+.2f})", None

    return judge


def order(table):
    def judge(column, label, other):
        ours = {name: mean(table, column, beta_row(name, column, other), label) for name in printed_rows(table)}
        paper = {name: mean(table, column, name, "paper") for name in ours}
        ours, paper = (dict(sorted(one.items(), key=lambda item: -item[1])) for one in (ours, paper))
        text = " > ".join(f"{name} {value:.2f}" for name, value in ours.items())
        return list(ours) == list(paper), f"{text}, printed {' > '.join(paper)}", None

    return judge


def lowest_beta(column, label, other):
    means = {row: mean("7", column, row, label) for row in printed_rows("7")}
    lowest, *others = means.values()
    text = ", ".join(f"{row}: {value:.2f}" for row, value in means.items())
    rivals = page.rivals_of("7", "beta 2")
    return lowest > max(others), text, page.verdict("7", column, "beta 2", label, rivals)


def falling(column, label, other):
    lows = {}
    for row in printed_rows("7"):
        found = [page.lowest(run, label) for run in page.own_runs("7", column, row).values()]
        lows[row] = np.mean([one for one in found if one is not None])
    text = ", ".join(f"{row}: {value:.2f}" for row, value in lows.items())
    return all(a > b for a, b in pairwise(lows.values())), text, None


def alone_later(column):
    """Clients alone, seed by seed, and the later list: k-th best by k-th best where classes are dealt by chance."""
    listed = page.LATER[f"{column[0]} {column[2]}"]
    runs = page.own_runs("2", column, "Standalone").values()
    sort = sorted if column[2].startswith("dir") else list
    return 100 * np.array([sort(run["contributions"]) for run in runs]), 100 * np.array(sort(listed))


def later_best(column, label, other):
    ours, listed = alone_later(column)
    own, paper = ours.max(1).mean(), listed.max()
    return abs(own - paper) <= 3 + 1e-6, f"{own:.2f}, printed {paper:.2f} ({own - paper:+.2f})", None


def later_each(column, label, other):
    apart = np.abs(np.subtract(*(one.mean(0) if one.ndim > 1 else one for one in alone_later(column))))
    text = f"mean difference {apart.mean():.2f}, largest {apart.max():.2f}"
    return apart.mean() <= 3 + 1e-6, text, None


LATER = [(*key.split()[:1], 10, key.split()[1]) for key in page.LATER]
BEST, PEAK, FAIR, SENT = "best last", "best last peak", "fair last", "mean last"
CLAIMS = {  # the columns, labels, judge, and whether it depends on FedSAC's beta
    "FedSAC has the highest gamma (Table 1)": (COLUMNS["1"], BEST, first("1"), True),
    "FedSAC's best client has the highest accuracy (Table 2)": (COLUMNS["2"], PEAK, first("2"), True),
    "FedSAC's best client is above FedAvg's common model (not a claim of the paper)": (
        COLUMNS["2"],
        PEAK,
        first("2", ["FedAvg" + page.COMMON]),
        True,
    ),
    "FedSAC's gamma is within 3 points of the printed one (Table 1)": (COLUMNS["1"], BEST, near("1", "FedSAC"), True),
    "Standalone's best accuracy is within 3 points of the printed one (Table 2)": (
        COLUMNS["2"],
        "alone",
        near("2", "Standalone"),
        False,
    ),
    "Standalone's best accuracy is within 3 points of the authors' later lists": (LATER, "alone", later_best, False),
    "Standalone, on average over the clients, is within 3 points of the authors' later lists": (
        LATER,
        "alone",
        later_each,
        False,
    ),
    "The ablations' gammas are ordered as printed (Table 3)": (COLUMNS["3"], BEST, order("3"), True),
    "The ablations' accuracies are ordered as printed (Table 4)": (COLUMNS["4"], PEAK, order("4"), True),
    "More clients: FedSAC has the highest gamma (Table 5)": (COLUMNS["5"], BEST, first("5"), True),
    "More clients: FedSAC's best client has the highest accuracy (Table 6)": (COLUMNS["6"], PEAK, first("6"), True),
    "The lowest beta has the best accuracy (Table 7)": (COLUMNS["7"], FAIR, lowest_beta, False),
    "The lowest reward falls as beta grows (Table 7)": (COLUMNS["7"], FAIR, falling, False),
    "FedSAC sends what is printed, within 5 % (Table 8)": (COLUMNS["8"], SENT, near("8", "FedSAC"), True),
    "FedSAC sends less than every other method (Table 8)": (COLUMNS["8"], SENT, first("8"), True),
}


def judged(claim, other):
    """By label: of each column whether it holds, the numbers and the verdict."""
    columns, labels, judge, reads_beta = CLAIMS[claim]
    if other and not reads_beta:
        return {}
    return {label: {column: judge(column, label, other) for column in columns} for label in labels.split()}


def counts(by_label):
    return ", ".join(f"{label} {sum(one[0] for one in by.values())} of {len(by)}" for label, by in by_label.items())


def test_in_how_many_cells_claims_hold():
    (head, counted), (_, tested) = TABLES["The paper's claims: in how many cells they hold"]
    assert head[1:] == ["with Table 9's beta", "with the beta of Tables 2 and 7"]
    assert [row[0] for row in counted] == list(CLAIMS)
    with_verdicts = []
    for claim, *texts in counted:
        found = [judged(claim, other) for other in (False, True)]
        assert texts == [counts(by_label) or "-" for by_label in found], claim
        if all(one[2] for one in next(iter(found[0].values())).values()):
            verdicts = []
            for by_label in found:
                many = {label: [one[2] for one in by.values()] for label, by in by_label.items()}
                parts = [
                    f"{label}: " + ", ".join(f"{all_.count(v)} {v}" for v in ("first", "beaten", "undecided"))
                    for label, all_ in many.items()
                ]
                verdicts.append("; ".join(parts) or "-")
            with_verdicts.append([claim, *verdicts])
    assert tested == with_verdicts


def test_where_claims_fail():
    text = TEXT.split("### Where claims fail")[1].split("### Cells whose rank")[0]
    said = {}
    for part in re.split(r"\n\*\*", text)[1:]:
        claim, lines = part.split("** fails in\n\n")
        said[claim] = lines.strip().splitlines()
    listed = re.findall(r"^  - (.*): ((?:[a-z]+ \d+ of \d+(?:, )?)+)$", TEXT, re.M)
    assert sorted(claim for claim, _ in listed) == sorted(CLAIMS)
    assert all(held == counts(judged(claim, False)) for claim, held in listed)
    every = TEXT.split("- in every cell that was run:\n")[1].split("- in some cells:")[0]
    assert re.findall(r"- (.*): ", every) == [claim for claim in CLAIMS if claim not in said]
    for claim, lines in said.items():
        fails = {column: [] for column in CLAIMS[claim][0]}
        own, theirs = judged(claim, False), judged(claim, True)
        for label in own:
            for column in fails:
                differs = len(page.PAPER_BETA[column[::2]]) > 1
                for found, more in ((own, ""), (theirs if differs else {}, page.OTHER_BETA)):
                    if found and not found[label][column][0]:
                        fails[column].append(f"{label}{more}: {found[label][column][1]}")
        assert lines == [f"- {name_of(column)}; {'; '.join(one)}" for column, one in fails.items() if one], claim


def test_ranks_distances_and_settled_runs():
    (_, rows) = TABLES["Cells whose rank in their column is not the paper's"][0]
    assert [row[0] for row in rows] == [f"Table {n}" for n in range(1, 9)]
    for name, *texts in rows:
        marks = re.findall(
            r"(?:best|last|mean|fair) \d+ of \d+(?= cells)", TEXT.split(f"## {name}:")[1].split("\n## ")[0]
        )
        assert [mark.split(" ", 1)[1] for mark in marks] == texts  # which test_tables has checked
    for table in "1256":
        title = next(
            title for title in TABLES if title.startswith(f"Distance from the printed numbers: Table {table},")
        )
        (_, rows) = TABLES[title][0]
        every = dict.fromkeys(row for columns, _ in blocks(table) for row in expected_rows(table, columns))
        assert sorted((row[0], row[1]) for row in rows) == sorted((r, x) for r in every for x in LABELS[table].split())
        for row, label, within, average, largest in rows:
            pairs = [(mean(table, column, row, label), mean(table, column, row, "paper")) for column in COLUMNS[table]]
            apart = [abs(a - b) for a, b in pairs if a is not None]
            assert within == f"{sum(one <= 3 + 1e-6 for one in apart)} of {len(apart)}", (table, row, label)
            assert rounded(average, np.mean(apart)) and rounded(largest, max(apart)), (table, row, label)
    (_, rows) = TABLES["Had training settled?"][0]
    keys = {text: key for key, text in NAMES.items()}
    assert {keys.get(row[0], row[0]) for row in rows} == {run["method"] for run in RAW["runs"]}
    for name, settled, quarter, half in rows:
        found = np.array([run["plateau"] for run in RAW["runs"] if run["method"] == keys.get(name, name)])
        late, long = found[:, 2] - found[:, 1], found[:, 2] - found[:, 0]
        assert settled == f"{np.sum(late <= 0.005 + 5e-7)} of {len(found)}", name
        assert rounded(quarter, np.median(late)) and rounded(half, np.median(long)), name


def test_where_the_paper_contradicts_itself():
    said = re.findall(r"^- .*$", TEXT.split("### Where the paper contradicts itself")[1].split("###")[0], re.M)
    expected = []
    for column in COLUMNS["7"]:
        beta9, *other = page.PAPER_BETA[column[::2]]
        by_beta = {int(key.split("=")[1]): value[0] for key, value in PRINTED["7", column].items()}
        in2 = PRINTED["2", column]["fedsac"][0]
        if other:
            assert by_beta[other[0]] == in2 != by_beta[beta9]
            expected.append(
                f"- {name_of(column)}: Table 9 names beta {beta9}, at which Table 7 has {by_beta[beta9]:.2f}; Table 2 "
                f"has {in2:.2f}, as Table 7 has at beta {other[0]}."
            )
    for table in "123456":
        for column in COLUMNS[table]:
            row = {key: value[0] for key, value in PRINTED[table, column].items()}
            top = max(row, key=row.get)
            if top != "fedsac":
                expected.append(
                    f"- Table {table}, {name_of(column)}: FedSAC's {row['fedsac']:.2f} is marked as best; "
                    f"{NAMES[top]} has {row[top]:.2f}."
                )
    assert said == expected
    notes = TEXT.split("## Table 9:")[1].split("As a file")[0].splitlines()
    assert [line for line in notes if "Table 9 names" in line] == expected[:3]
