"""From the labels in a file (text or whole numbers) to class numbers 0, 1, ..."""

import re
from collections import Counter
from collections.abc import Iterable

import numpy as np

from fedsac.data.messages import shown
from fedsac.errors import FedsacError

_INTEGER = re.compile(r"[+-]?[0-9]{1,4000}")  # Python refuses to read longer ones
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")
MAX_NUMBERED_CLASSES = 20  # more different numbers look like a quantity, if they have fractions or hardly recur
LEAST_PER_CLASS = 5  # samples of a class, on average, below which they hardly recur
_INTEGER_WITH_POINT = re.compile(r"([+-]?[0-9]+)\.0*")


def label_text(label: str) -> str:
    """A label in the spelling that labels are compared in: stripped of spaces, and 3.0 written as 3.

    Many programs write a column of whole numbers with a missing value as decimals; the same class must not have two
    names in two silos.
    """
    text = label.strip()
    integer = _INTEGER_WITH_POINT.fullmatch(text)
    return integer[1] if integer else text


def label_texts(labels: np.ndarray, where: str) -> list[str]:
    """The labels in an array as text. They may be whole numbers, strings or booleans; none may be empty."""
    if labels.dtype.kind == "f":
        if np.isfinite(labels).all() and (labels != np.floor(labels)).any():
            _refuse_quantity(Counter(map(str, labels.tolist())), where)
        if (bad := np.flatnonzero(~np.isfinite(labels) | (labels != np.floor(labels)))).size:
            i = int(bad[0])
            raise FedsacError(
                f"{where}, row {i} (counting from 0): label {labels[i]} is not a whole number; "
                "number the classes or name them"
            )
        return [str(int(v)) for v in labels.tolist()]
    if labels.dtype.kind == "S":
        try:
            labels = np.char.decode(labels, "utf-8")
        except UnicodeDecodeError as err:
            raise FedsacError(f"{where}: labels are bytes that are not UTF-8; save them as text") from err
    if labels.dtype.kind not in "biuU":
        raise FedsacError(f"{where}: labels are {labels.dtype}; write whole numbers or text")
    texts = [label_text(str(v)) for v in labels.tolist()]
    if "" in texts:
        raise FedsacError(f"{where}, row {texts.index('')} (counting from 0): the label is empty; fill it in")
    return texts


def class_names(labels: Iterable[str], where: str) -> tuple[str, ...]:
    """The classes that occur, sorted: as numbers if all are whole numbers, else as text."""
    counts = Counter(labels)
    unique = set(counts)
    if len(unique) < 2:
        raise FedsacError(f"{where}: every label is {shown(next(iter(unique)))}; give samples of at least 2 classes")
    _refuse_quantity(counts, where)
    if all(_INTEGER.fullmatch(text) for text in unique):
        return tuple(sorted(unique, key=lambda text: (int(text), text)))
    return tuple(sorted(unique))


def _refuse_quantity(counts: Counter[str], where: str) -> None:
    """Raise where labels look like a quantity, as in regression: many different numbers, with fractions or of which
    hardly any recurs."""
    if len(counts) <= MAX_NUMBERED_CLASSES or not all(map(_NUMBER.fullmatch, counts)):
        return
    samples = counts.total()
    fraction = next((text for text in counts if not _INTEGER.fullmatch(text)), None)
    if fraction is None and samples >= LEAST_PER_CLASS * len(counts):
        return
    evidence = f"{len(counts)} different numbers in {samples} samples" + (f", as {fraction}" if fraction else "")
    raise FedsacError(
        f"{where}: the label has {evidence}: that is a quantity (regression), and fedsac learns classes; name the "
        "ranges that matter (low, high) in a column of its own, or write such classes as text (c17)"
    )


def encode(labels: list[str], classes: tuple[str, ...], where: str, known: str = "the training data") -> np.ndarray:
    """The class numbers of labels, [n] int64; a label that is not in `classes` is an error that names its row.

    `known` says in that error where `classes` come from.
    """
    number = {name: i for i, name in enumerate(classes)}
    try:
        return np.fromiter((number[text] for text in labels), np.int64, len(labels))
    except KeyError:
        row = next(i for i, text in enumerate(labels) if text not in number)
        raise FedsacError(
            f"{where}, row {row} (counting from 0): label {shown(labels[row])} does not occur in {known}; "
            "remove these samples or add the class to training"
        ) from None
