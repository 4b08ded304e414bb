"""A table made to fit a schema: columns by their names, values by what they mean, labels by their names; and everything
that does not fit."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedsac.data.files.labels import label_text
from fedsac.data.files.tables import Table, named_table
from fedsac.data.messages import shown, some
from fedsac.data.schema.cells import values_of
from fedsac.data.schema.problems import Problem, ProblemsError, of_column
from fedsac.data.schema.raw import RawTable, read_raw
from fedsac.models.table import NUMBER, Column, Corrections, TableSchema

LEAST_ROWS = 10  # of a column that is judged by its median


def known_names(schema: TableSchema) -> set[str]:
    """Every column that the schema says something of."""
    own = (name for silo in schema.silos.values() for name in silo.columns)
    return {schema.label, *schema.drop, *own, *(column.name for column in schema.columns)}


def read_fitted(path: Path, schema: TableSchema, silo: str | None = None) -> Table:
    """A file's samples by the schema, with the corrections of this silo; raises with all that does not fit."""
    return fitted(read_raw(path, known_names(schema)), schema, silo)


def fitted(raw: RawTable, schema: TableSchema, silo: str | None = None) -> Table:
    """A table's samples by the schema; raises with all that does not fit."""
    table, problems = fit(raw, schema, silo)
    if problems or table is None:
        raise ProblemsError(problems)
    return table


def fit(
    raw: RawTable, schema: TableSchema, silo: str | None = None, *, new_rows: bool = False
) -> tuple[Table | None, list[Problem]]:
    """A table's samples by the schema, None if something does not fit, and all that does not. `new_rows` are to be
    classified: they need no label, and may have columns that the schema does not know."""
    own = schema.silos.get(silo or "", Corrections())
    raw = raw.renamed(own.columns)
    problems = list(raw.problems) + _columns(raw, schema, new_rows)
    values, count = {}, len(raw.lines)
    for column in schema.columns:
        if column.name not in raw.cells:
            continue
        found, faults = values_of(column, raw.cells[column.name], schema.missing, raw.comma)
        problems += of_column(raw.where, column.name, faults, raw.lines, count)
        values[column.name] = found * own.factors[column.name] if column.name in own.factors else found
        if not new_rows and not faults:
            problems += _out_of_range(raw.where, column, values[column.name], silo)
    labels = None
    if schema.label in raw.cells:
        labels, wrong = _labels(raw, schema, own, silo)
        problems += [] if new_rows else wrong
    if problems:
        return None, problems
    return named_table(schema.inputs(values), labels, schema.features), []


def _columns(raw: RawTable, schema: TableSchema, new_rows: bool) -> list[Problem]:
    """Columns that are missing, and those that the schema does not know."""
    wanted = [column.name for column in schema.columns] + ([] if new_rows else [schema.label])
    problems = [
        Problem(raw.where, f"column {shown(name)}", f"it is missing; the columns are {some(raw.names)}")
        for name in wanted
        if name not in raw.cells
    ]
    known = {*wanted, schema.label, *schema.drop}
    what = "the schema does not know it; name it in drop there, or take it out"
    extra = [] if new_rows else [name for name in raw.names if name not in known]
    return problems + [Problem(raw.where, f"column {shown(name)}", what) for name in extra]


def in_other_units(table: Table, schema: TableSchema) -> list[str]:
    """Columns of new rows, made to fit, that lie where the schema's do not: nothing to refuse, for patients differ, but
    to be said."""
    numbers = [column for column in schema.columns if column.type == NUMBER]
    told = {column.name: _beyond(column, table.x[:, table.features.index(column.name)]) for column in numbers}
    return [f"column {shown(name)}: {what}" for name, what in told.items() if what]


def _beyond(column: Column, values: np.ndarray) -> str | None:
    """What is to be said of a number's column of which half the values lie beyond the schema's range, widened by its
    own width."""
    there = values[~np.isnan(values)]
    if column.type != NUMBER or column.range is None or len(there) < LEAST_ROWS:
        return None
    low, high = column.range
    middle, width = float(np.median(there)), high - low
    if low - width <= middle <= high + width:
        return None
    in_unit = f" {column.unit}" if column.unit else ""
    return (
        f"its median is {middle:.4g}, and in the schema nearly all values lie from {low:g} to {high:g}{in_unit}: other "
        "units?"
    )


def _out_of_range(where: str, column: Column, values: np.ndarray, silo: str | None) -> list[Problem]:
    what = _beyond(column, values)
    if what is None:
        return []
    mend = f'factors = {{"{column.name}" = ...}} under [silos.{silo}]' if silo else "factors for this silo"
    what += f" Write {mend} into the schema, or correct the range there"
    return [Problem(where, f"column {shown(column.name)}", what)]


def _labels(raw: RawTable, schema: TableSchema, own: Corrections, silo: str | None) -> tuple[list[str], list[Problem]]:
    """The labels by the classes' names, and those that are none."""
    spellings = {name: name for name in schema.classes} | schema.aliases | own.labels
    texts = [label_text(cell) for cell in raw.cells[schema.label]]
    labels = [spellings.get(text, text) for text in texts]
    problems = []
    for text, count in Counter(text for text in texts if text not in spellings).items():
        first = raw.lines[texts.index(text)]
        times = "" if count == 1 else f" ({count} times)"
        if not text or text in schema.missing:
            what = f"the label is missing{times}; fill it in or drop the row"
        else:
            section = f"[silos.{silo}.labels]" if silo else "[aliases]"
            what = (
                f"label {shown(text)}{times} is none of {some(schema.classes)}; if it is another spelling of one, say "
                f"so in the schema, under {section}"
            )
        problems.append(Problem(raw.where, f"{first}, column {shown(schema.label)}", what))
    return labels, problems


def plain_problems(raw: RawTable, label: str, features: Sequence[str] | None = None) -> list[Problem]:
    """Everything that keeps a table from being read without a schema; `features` are the columns it has to have."""
    problems = list(raw.problems)
    if label not in raw.cells:
        what = f"there is none of that name for the labels; the columns are {some(raw.names)}; name one with --label"
        problems.append(Problem(raw.where, f"column {shown(label)}", what))
    own = [name for name in raw.names if name != label]
    for name in own:
        found, faults = values_of(Column(name, NUMBER), raw.cells[name], (), raw.comma)
        problems += of_column(raw.where, name, faults, raw.lines, len(found))
    if raw.comma:
        what = "columns are not separated by commas (and numbers may have decimal commas); that takes a schema"
        problems.append(Problem(raw.where, "line 1", what))
    for row, cell in enumerate(raw.cells.get(label, ())):
        if not cell:
            problems.append(Problem(raw.where, f"{raw.lines[row]}, column {shown(label)}", "the label is missing"))
    for name in features or ():
        if name not in own:
            problems.append(Problem(raw.where, f"column {shown(name)}", "it is missing, and the others have it"))
    for name in own if features else ():
        if name not in (features or ()):
            problems.append(Problem(raw.where, f"column {shown(name)}", "the others do not have it; take it out"))
    return problems
