"""Numbers on the results pages, derived from the raw files once more, in a few lines of their own."""

import json
from pathlib import Path
from statistics import mean

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"


def tables(page):
    """The tables of a Markdown page: header and rows, as texts."""
    found, lines = [], (DOCS / page).read_text().splitlines()
    for i, line in enumerate(lines):
        if line.startswith("| --- "):
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


@pytest.mark.parametrize(
    ("table", "study", "groups", "keys"),
    [
        (1, "first", ("cifar10",), ("bcf", "gamma", "whole", "mean", "losers")),
        (2, "second", ("cifar10", "fashion"), ("bcf", "gamma", "whole")),
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
