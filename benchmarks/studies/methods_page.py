"""docs/results/methods.md: every method in every cell, and how often each is significantly first."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.studies.definitions import STUDIES, Cell
from benchmarks.studies.measures import how_made, named, read_cells, rows
from benchmarks.studies.tables import COLUMNS_EXPLAINED, VERDICTS_EXPLAINED, cell_table, markdown, short
from fedsac.runs.comparison import Row, judgements
from fedsac.runs.labels import LABELS

COMMAND = "python -m benchmarks.studies methods OUT --device cuda"
INTRODUCTION = """\
Every method of `fedsac methods` with its default options, Table 9's settings for the data set and scene, contributions
measured on validation data (V), which the server may know. `server-alone`, `fedavg-server`, `fedavg-v-client`,
`fedsac-server` and `fedrac-server` show what V itself is worth, which `fedsac-plus` trains on, too. Hyper-parameters
were not tuned for any cell. CGSV and FedAVE reward by contribution, as in the paper's tables (`reward_by`). SVHN's
images are re-cropped, 30,000 to train with and 10,000 to test.

The raw results are in `docs/results/methods/`; `python -m benchmarks.studies page methods` writes this page from them.
The source that ran is the commit's but for the line that [the paper's tables](paper/README.md) tell of. Eight cells ran
side by side, part of the time beside the last of the paper's runs; `seconds` is the time that passed.
"""


def write(docs: Path) -> list[Path]:
    """The page, from the raw files in docs/methods."""
    cells, heads = read_cells(docs / "methods", "methods")
    tables = {cell: rows(runs, "validation") for cell, runs in cells.items()}
    sharing = [[row for row in table if row.method != "standalone"] for table in tables.values()]
    page = [
        "# Methods, side by side",
        how_made(heads, cells, COMMAND),
        INTRODUCTION.rstrip(),
        *still_to_come(list(cells)),
        f"## How often each is first, of {len(tables)} cells",
        f"{VERDICTS_EXPLAINED}Each entry: first / beaten / undecided; cells in which the method lacks the number are "
        "not counted.",
        counts(list(tables.values())),
        "Without `standalone`, whose clients share nothing, so that its rewards are contributions once more:",
        counts(sharing),
        "## The cells",
        COLUMNS_EXPLAINED.rstrip(),
    ]
    for cell, table in tables.items():
        page += [f"### {named(cell)}", cell_table(table)]
    path = docs / "methods.md"
    path.write_text("\n\n".join(page) + "\n", encoding="utf-8")
    return [path]


def still_to_come(there: Sequence[Cell]) -> list[str]:
    """Which cells of the study are not among these, in words; nothing where none is the study's, as in tries."""
    missing = [cell for cell in STUDIES["methods"].cells if cell not in there]
    if not missing or len(missing) == len(STUDIES["methods"].cells):
        return []
    return [f"Not made yet: {', '.join(named(cell) for cell in missing)}."]


def counts(tables: Sequence[Sequence[Row]]) -> str:
    """For each method: in how many cells it is first, beaten and undecided, in gamma and in the best reward."""
    methods = list(dict.fromkeys(row.method for table in tables for row in table))
    columns = [(key, label) for key in ("gamma", "max") for label in LABELS]
    found: dict[tuple[str, str, str], Counter[str]] = {}
    for table in tables:
        for key, label in columns:
            for method, judged in judgements(table, key, label).items():
                found.setdefault((method, key, label), Counter())[short(judged.verdict)] += 1
    words = ("first", "beaten", "undecided")
    lines = [
        [f"`{method}`", *(" / ".join(str(found[method, *column][word]) for word in words) for column in columns)]
        for method in methods
    ]
    head = [f"{name} {label}" for name in ("gamma", "best reward") for label in LABELS]
    return markdown(["method", *head], lines)
