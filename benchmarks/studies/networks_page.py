"""docs/results/networks.md: five methods with convolutional networks, on CIFAR-10."""

from pathlib import Path

from benchmarks.studies.measures import how_made, named, read_cells, rows
from benchmarks.studies.tables import COLUMNS_EXPLAINED, VERDICTS_EXPLAINED, cell_table
from fedsac.errors import FedsacError

STUDIES = {"networks-cnn": "cnn", "networks-resnet18": "resnet18, width 16"}
INTRODUCTION = """\
Networks of `fedsac.models.shipped`: `cnn`, two convolutions of 5 x 5 and two hidden layers, as CGSV and FedAVE use it,
200 rounds; `resnet18:16`, with batch norm, 100 rounds. Twenty steps of plain SGD in a round at a learning rate of .05,
beta as in Table 9, importance every fifth round (exact for `cnn`, first-order for `resnet18`), contributions measured
on validation data. Hyper-parameters were not tuned for any cell or method.

The raw results are in `docs/results/networks-*/`; `python -m benchmarks.studies page networks-cnn` writes this page
from all that are there.
"""


def write(docs: Path) -> list[Path]:
    """The page, from the raw files of the networks that have some."""
    page = ["# Convolutional networks", INTRODUCTION.rstrip(), COLUMNS_EXPLAINED + "\n" + VERDICTS_EXPLAINED.rstrip()]
    there = [study for study in STUDIES if list((docs / study).glob("*.json"))]
    if not there:
        raise FedsacError(f"{docs} has no raw files; make some with python -m benchmarks.studies networks-cnn OUT")
    for study in there:
        cells, heads = read_cells(docs / study, study)
        command = f"python -m benchmarks.studies {study} OUT --device cuda"
        page += [f"## {STUDIES[study]}", how_made(heads, cells, command)]
        for cell, runs in cells.items():
            page += [f"### {STUDIES[study]}: {named(cell)}", cell_table(rows(runs, "validation"))]
    path = docs / "networks.md"
    path.write_text("\n\n".join(page) + "\n", encoding="utf-8")
    return [path]
