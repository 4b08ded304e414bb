"""From the labels in a file (text or whole numbers) to class numbers 0, 1, ..."""

import re
from collections.abc import Iterable

import numpy as np

from fedsac.data.messages import shown
from fedsac.errors import FedsacError

_INTEGER = re.compile(r"[+-]?[0-9]{1,4000}")  # Python refuses to read longer ones
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
    unique = set(labels)
    if len(unique) < 2:
        raise FedsacError(f"{where}: every label is {shown(next(iter(unique)))}; give samples of at least 2 classes")
    if all(_INTEGER.fullmatch(text) for text in unique):
        return tuple(sorted(unique, key=lambda text: (int(text), text)))
    return tuple(sorted(unique))


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
