"""From the text of a column's cells to values, by what the schema says of the column."""

import re
from collections.abc import Collection, Sequence
from datetime import datetime
from math import isfinite

import numpy as np

from fedsac.data.messages import shown, some
from fedsac.data.schema.problems import Fault
from fedsac.models.table import CATEGORY, DATE, NUMBER, OTHER, Column, days

_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")


def values_of(
    column: Column, cells: Sequence[str], missing: Collection[str], comma: bool
) -> tuple[np.ndarray, list[Fault]]:
    """The values [n] as `Column.inputs` takes them, and the cells that are none. With `comma`, a column in which no
    cell has a point may have decimal commas."""
    empty = [not cell or cell in missing for cell in cells]
    values = np.full(len(cells), np.nan)
    faults = []
    if column.fill is None:
        what = "the value is missing; fill it in, or give the column a fill in the schema"
        faults = [Fault(i, what) for i, is_empty in enumerate(empty) if is_empty]
    there = [i for i, is_empty in enumerate(empty) if not is_empty]
    texts = [cells[i] for i in there]
    if column.type == NUMBER:
        texts = _with_points(texts, comma)
        whole = _all_numbers(texts)
        if whole is not None:
            values[there] = whole
            return values, faults
    numbers = {name: float(i) for i, name in enumerate(column.categories)}
    for i, text in zip(there, texts, strict=True):
        value = _value(column, text, numbers)
        if isinstance(value, str):
            faults.append(Fault(i, value))
        else:
            values[i] = value
    return values, sorted(faults, key=lambda fault: fault.row)


def _with_points(texts: list[str], comma: bool) -> list[str]:
    """Numbers with a point where, as far as the column shows, a comma stands for it."""
    if not comma or any("." in text for text in texts):
        return texts
    return [text.replace(",", ".") if _DECIMAL_COMMA.fullmatch(text) else text for text in texts]


def _all_numbers(texts: list[str]) -> np.ndarray | None:
    """All at once, which is fast; None if any is no finite number."""
    if any("_" in text for text in texts):
        return None
    try:
        numbers = np.array(texts, dtype=np.float64)
    except ValueError:
        return None
    return numbers if np.isfinite(numbers).all() else None


def _value(column: Column, text: str, numbers: dict[str, float]) -> float | str:
    """The value of a cell, or what is wrong with it."""
    if column.type == NUMBER:
        try:
            number = float(text)
        except ValueError:
            hint = "write a point, or separate columns by ;" if _DECIMAL_COMMA.fullmatch(text) else "write one"
            return f"{shown(text)} is not a number; {hint}, or say in the schema what it is (missing, type, drop)"
        if "_" in text or not isfinite(number):
            return f"{shown(text)} is not a finite number; write one, or name it under missing in the schema"
        return number
    if column.type == DATE:
        try:
            return days(datetime.strptime(text, column.format))
        except ValueError:
            return f"{shown(text)} is no date like {column.format}; write it so, or correct format in the schema"
    if text in numbers:
        return numbers[text]
    # Whole numbers that some programs write as decimals are the same category.
    if text.endswith(".0") and text[:-2] in numbers:
        return numbers[text[:-2]]
    if column.others:
        return OTHER
    mend = "add it to categories, or write others = true" if column.type == CATEGORY else "add it to categories"
    return f"{shown(text)} is none of {some(column.categories)}; correct it, or in the schema {mend}"
