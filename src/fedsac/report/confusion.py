"""Which classes each client's model takes for which, as tables on a page."""

import numpy as np

from fedsac.report.markup import Cell, details, number, paragraph, table
from fedsac.report.reading import Run

MAX_CLASSES = 20  # that a table on a page has room for
MAX_LISTED = 12  # clients; of more the whole list is folded


def confusion_tables(run: Run) -> str:
    """A table for each client, folded under a line that says the gist; nothing where the run has no counts."""
    if run.confusion is None:
        return ""
    if len(run.classes) > MAX_CLASSES:
        return paragraph(f"With {len(run.classes)} classes, the tables are in confusion.json alone.", "note")
    parts = [
        details(name, f": {gist(run.classes, counts)}", _table(run.classes, counts))
        for name, counts in zip(run.clients, run.confusion, strict=True)
    ]
    test = "validation data" if run.reported_on == "validation" else "test set"
    said = (
        f"Of the models that clients are paid, on the {test}: a row for each true class, a column for what its samples "
        "are taken for. recall: the share of a class that is recognised; precision: the share of what is taken for it "
        "that is of it."
    )
    tables = "".join(parts)
    if len(parts) > MAX_LISTED:
        tables = details(f"{len(parts)} clients", "", tables)
    return paragraph(said, "note") + tables


def gist(classes: tuple[str, ...], counts: np.ndarray) -> str:
    """The share that is recognised, and the most frequent mistake.

    >>> gist(("ill", "well"), np.array([[2, 3], [1, 14]]))
    '80.0 % right; most often ill taken for well (3 of 5)'
    """
    wrong = counts * (1 - np.eye(len(counts), dtype=counts.dtype))
    right = 100 * float(np.trace(counts)) / max(1, int(counts.sum()))
    if not wrong.any():
        return f"{right:.1f} % right"
    true, taken = divmod(int(wrong.argmax()), len(counts))
    often = f"{classes[true]} taken for {classes[taken]} ({wrong[true, taken]} of {counts[true].sum()})"
    return f"{right:.1f} % right; most often {often}"


def _table(classes: tuple[str, ...], counts: np.ndarray) -> str:
    rows: list[list[Cell | str]] = []
    for k, true in enumerate(classes):
        cells = [_count(int(value), right=k == j) for j, value in enumerate(counts[k])]
        rows.append([true, *cells, _share(counts[k, k], counts[k].sum())])
    precision = [_share(counts[k, k], counts[:, k].sum()) for k in range(len(classes))]
    rows.append(["precision %", *precision, Cell("")])
    return table("True classes, and what they are taken for", ("", *classes, "recall %"), rows, sortable=False)


def _count(value: int, *, right: bool) -> Cell:
    return Cell(str(value) if value or right else "·", value, "" if not value else "good" if right else "bad")


def _share(part: int, whole: int) -> Cell:
    return number(None if not whole else 100 * part / whole, 1)
