"""docs/results/methods.md: every method in every cell, and how often each is significantly first."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.studies.measures import how_made, named, not_made, read_cells, rows
from benchmarks.studies.same_data import section
from benchmarks.studies.tables import COLUMNS_EXPLAINED, VERDICTS_EXPLAINED, cell_table, markdown, short
from fedsac.runs.comparison import Row, judgements
from fedsac.runs.labels import LABELS

COMMAND = "python -m benchmarks.studies methods OUT --device cuda"
INTRODUCTION = """\
Every method of `fedsac methods` with its default options, Table 9's settings for the data set and scene, contributions
measured on validation data (V), which the server may know. **`fedsac-plus` trains on a half of V, most others do not**:
compare it with `fedsac-server`, `fedrac-server`, `fedavg-server` and `fedavg-v-client`, which train on V, too, and the
others with `fedsac-plus-no-server` ([below](#with-the-same-data-and-without)). Hyper-parameters were not tuned for any
cell. CGSV and FedAVE reward by contribution, as in the paper's tables (`reward_by`). SVHN's images are re-cropped,
30,000 to train with and 10,000 to test.

The raw results are in `docs/results/methods/`; `python -m benchmarks.studies page methods` writes this page from them.
The source of the first commit is that commit's but for the line that [the paper's tables](paper/README.md) tell of.
Between the two nothing on this page changed (`python -m benchmarks.same_numbers 9f76b09`: every method, on the digits;
only log losses differ, in their last digits).
Cells shared a GPU with up to 18 others: `seconds`, which adds them up, is no measure of speed.
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
        *not_made("methods", cells),
        f"## How often each is first, of {len(tables)} cells",
        f"{VERDICTS_EXPLAINED}Each entry: first / beaten / undecided; cells in which the method lacks the number are "
        "not counted.\nMethods that train on V (`fedsac-plus`, `server-alone`, `fedavg-v-client` and those in "
        "`-server`) are tested\nagainst those that do not, too, which is an unequal comparison; the equal ones are "
        "[further\ndown](#with-the-same-data-and-without).",
        counts(list(tables.values())),
        "The same without `standalone`. Its clients train alone, and so do those by whose accuracy contributions are "
        "measured: a high gamma says nothing about it.",
        counts(sharing),
        *section(tables),
        "## The cells",
        COLUMNS_EXPLAINED.rstrip(),
    ]
    for cell, table in tables.items():
        page += [f"### {named(cell)}", cell_table(table)]
    path = docs / "methods.md"
    path.write_text("\n\n".join(page) + "\n", encoding="utf-8")
    return [path]


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
