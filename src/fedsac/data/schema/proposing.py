"""A schema proposed from the server's table and, where they lie beside it, those of the silos: what to name, to leave
out and to correct. Nothing is merged silently: all of it is said, and stands in a file that a person reads."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from fedsac.data.evidence import Linear, decades_off
from fedsac.data.files.labels import class_names, label_text
from fedsac.data.messages import shown, some
from fedsac.data.schema.cells import values_of
from fedsac.data.schema.guessing import MAX_ODD, MISSING, ODD_SHARE, guessed
from fedsac.data.schema.raw import RawTable
from fedsac.data.schema.spelling import by_spelling, same_name
from fedsac.errors import FedsacError
from fedsac.models.table import CATEGORY, NUMBER, Column, Corrections, TableSchema

AGREE = 0.75  # of a silo's rows, before labels are told apart by what goes with them


@dataclass
class Proposal:
    """A schema in the making: `notes` on columns, `remarks` on everything that a person should look at."""

    schema: TableSchema
    notes: dict[str, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    def change(self, remark: str, **fields: object) -> None:
        self.schema = replace(self.schema, **fields)  # type: ignore[arg-type]
        self.remarks.append(remark)

    def correct(self, silo: str, remark: str, **parts: dict[str, object]) -> None:
        """Add to what is corrected in a silo."""
        own = self.schema.silos.get(silo, Corrections())
        merged = {part: getattr(own, part) | values for part, values in parts.items()}
        self.change(remark, silos=self.schema.silos | {silo: replace(own, **merged)})


def propose(tables: Mapping[str, RawTable], reference: str, label: str) -> Proposal:
    """A schema fitted on the table `reference`, with what the other tables need to fit it."""
    made = _of_reference(tables[reference], label)
    silos = {name: raw for name, raw in tables.items() if name != reference}
    for name, raw in silos.items():
        _name_columns(made, name, raw)
    _drop_others(made, silos)
    renamed = {name: raw.renamed(_own(made, name).columns) for name, raw in silos.items()}
    for name, raw in renamed.items():
        _odd_cells(made, name, raw)
        _categories(made, name, raw)
        _units(made, name, raw, tables[reference])
    for name, raw in renamed.items():
        _labels(made, name, raw, tables[reference])
    return made


def _of_reference(raw: RawTable, label: str) -> Proposal:
    """What the reference itself says."""
    if label not in raw.cells:
        raise FedsacError(
            f"{raw.where}: no column {shown(label)} for the labels; the columns are {some(raw.names)}; name the one "
            "with --label"
        )
    guesses = {name: guessed(name, cells, raw.comma) for name, cells in raw.cells.items() if name != label}
    columns = tuple(guess.column for guess in guesses.values() if guess.column is not None)
    if not columns:
        why = "; ".join(f"{shown(name)}: {guess.remark}" for name, guess in list(guesses.items())[:3])
        raise FedsacError(f"{raw.where}: no column that a model could use ({why})")
    texts = [text for text in map(label_text, raw.cells[label]) if text and text not in MISSING]
    classes, aliases = by_spelling(texts, ())
    odd = {text for guess in guesses.values() for text in guess.odd}
    schema = TableSchema(
        label=label,
        classes=class_names(classes, f"{raw.where}: {label}"),
        columns=columns,
        missing=(*MISSING, *sorted(odd)),
        drop=tuple(name for name, guess in guesses.items() if guess.column is None),
        aliases=aliases,
    )
    notes = {name: guess.remark for name, guess in guesses.items() if guess.remark}
    remarks = [
        f"column {shown(name)} is {'left out' if guess.column is None else 'kept'}: {guess.remark}"
        for name, guess in guesses.items()
        if guess.remark
    ]
    remarks += [f"{raw.where}: label {shown(text)} is read as {shown(name)}" for text, name in aliases.items()]
    return Proposal(schema, notes, remarks)


def _own(made: Proposal, silo: str) -> Corrections:
    return made.schema.silos.get(silo, Corrections())


def _name_columns(made: Proposal, silo: str, raw: RawTable) -> None:
    """Columns that a silo calls nearly the same."""
    wanted = [made.schema.label, *(column.name for column in made.schema.columns)]
    left = [name for name in raw.names if name not in wanted]
    for name in (name for name in wanted if name not in raw.cells):
        alike = [other for other in left if same_name(other, name)]
        if len(alike) == 1:
            made.correct(silo, f"{silo}: column {shown(alike[0])} is read as {shown(name)}", columns={alike[0]: name})


def _drop_others(made: Proposal, silos: Mapping[str, RawTable]) -> None:
    """Columns that only silos have."""
    for name, raw in silos.items():
        known = {made.schema.label, *made.schema.drop, *_own(made, name).columns}
        known |= {column.name for column in made.schema.columns}
        for extra in (extra for extra in raw.names if extra not in known):
            made.notes[extra] = f"only in {name}"
            what = f"{name}: column {shown(extra)} is left out: the table that the schema is fitted on has none"
            made.change(what, drop=(*made.schema.drop, extra))


def _odd_cells(made: Proposal, silo: str, raw: RawTable) -> None:
    """A few cells of a silo that are no numbers in columns of numbers."""
    for column in made.schema.columns:
        cells = raw.cells.get(column.name, [])
        if column.type != NUMBER or not cells:
            continue
        faults = values_of(column, cells, made.schema.missing, raw.comma)[1]
        odd = sorted({cells[fault.row] for fault in faults})
        if odd and len(faults) <= ODD_SHARE * len(cells) and len(odd) <= MAX_ODD:
            what = f"{silo}: {some(odd)} in column {shown(column.name)} taken for missing"
            made.change(what, missing=(*made.schema.missing, *odd))


def _categories(made: Proposal, silo: str, raw: RawTable) -> None:
    """Categories that a silo has and the schema does not name."""
    columns = []
    for column in made.schema.columns:
        cells = set(raw.cells.get(column.name, [])) - {"", *made.schema.missing}
        unknown = sorted(cells - set(column.categories))
        if column.type == CATEGORY and unknown and not column.others:
            made.remarks.append(
                f"{silo}: {some(unknown)} in column {shown(column.name)} are none of {some(column.categories)}, and "
                "are let through as such (others = true)"
            )
            column = replace(column, others=True)
        columns.append(column)
    made.schema = replace(made.schema, columns=tuple(columns))


def _units(made: Proposal, silo: str, raw: RawTable, reference: RawTable) -> None:
    """Columns of a silo that are a power of ten larger or smaller."""
    for column in made.schema.columns:
        if column.type != NUMBER or column.name not in raw.cells:
            continue
        own, others = _values(made, column, raw), _values(made, column, reference)
        decades = decades_off(own, others)
        if decades is not None:
            what = (
                f"{silo}: column {shown(column.name)} is {10.0**decades:g} times what it is in {reference.where} "
                f"(medians {np.median(own):.4g} and {np.median(others):.4g}) and is multiplied by {10.0**-decades:g}"
            )
            made.correct(silo, what, factors={column.name: 10.0**-decades})


def _values(made: Proposal, column: Column, raw: RawTable) -> np.ndarray:
    values = values_of(column, raw.cells[column.name], made.schema.missing, raw.comma)[0]
    there: np.ndarray = values[~np.isnan(values)]
    return there


def _labels(made: Proposal, silo: str, raw: RawTable, reference: RawTable) -> None:
    """Labels that a silo spells in its own way."""
    texts = [label_text(cell) for cell in raw.cells.get(made.schema.label, [])]
    known = {*made.schema.classes, *made.schema.aliases, "", *made.schema.missing}
    _, aliases = by_spelling([text for text in texts if text not in known], made.schema.classes)
    for text, name in aliases.items():
        what = f"{silo}: label {shown(text)} is read as {shown(name)}, by its spelling"
        made.change(what, aliases=made.schema.aliases | {text: name})
    foreign = sorted(set(texts) - known - set(aliases))
    if foreign:
        _labels_by_evidence(made, silo, raw, reference, foreign)


def _labels_by_evidence(made: Proposal, silo: str, raw: RawTable, reference: RawTable, foreign: list[str]) -> None:
    """Labels that are no spelling of any class, by the class that a model of the reference sees in their rows."""
    classes = made.schema.classes
    x, labels = _inputs(made, reference, None)
    numbers = {name: i for i, name in enumerate(classes)} | {
        t: classes.index(n) for t, n in made.schema.aliases.items()
    }
    kept = [i for i, text in enumerate(labels) if text in numbers]
    model = Linear.fit(x[kept], np.array([numbers[labels[i]] for i in kept]), len(classes))
    own, texts = _inputs(made, raw, silo)
    seen = None if model is None else model.predict(own)
    means, agreed = {}, 0
    for text in foreign:
        rows = [i for i, other in enumerate(texts) if other == text]
        votes = np.bincount(seen[rows], minlength=len(classes)) if seen is not None else np.zeros(len(classes), int)
        means[text], agreed = classes[int(votes.argmax())], agreed + int(votes.max())
    share = agreed / sum(text in means for text in texts)
    if share < AGREE or len(set(means.values())) < len(means):
        made.remarks.append(
            f"{silo}: labels {some(foreign)} are none of {some(classes)}, and nothing tells what they mean: write them "
            f"under [silos.{silo}.labels]"
        )
        return
    read = ", ".join(f"{shown(text)} as {shown(name)}" for text, name in means.items())
    what = (
        f"{silo}: labels are read {read}, since a model of {reference.where} then agrees with {share:.0%} of its rows"
    )
    made.correct(silo, f"{what}: ask whether that is so", labels=dict(means))


def _inputs(made: Proposal, raw: RawTable, silo: str | None) -> tuple[np.ndarray, list[str]]:
    """A table's inputs, as far as its cells are values, and its labels."""
    values = {}
    for column in made.schema.columns:
        cells = raw.cells.get(column.name) or [""] * len(raw.lines)
        values[column.name] = values_of(column, cells, made.schema.missing, raw.comma)[0]
        if silo is not None:
            values[column.name] = values[column.name] * _own(made, silo).factors.get(column.name, 1.0)
    return made.schema.inputs(values), [label_text(cell) for cell in raw.cells[made.schema.label]]
