"""Names that differ in spelling alone."""

import re
from collections import Counter
from collections.abc import Sequence


def same_name(one: str, two: str) -> bool:
    """Whether two column names differ in case, spaces and marks alone.

    >>> same_name("Mean Radius", "mean_radius"), same_name("radius", "area")
    (True, False)
    """
    return _letters(one) == _letters(two) != ""


def by_spelling(texts: Sequence[str], classes: Sequence[str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """The classes, with those that labels add to none of theirs, and labels that are a class in other letters: in upper
    or lower case, or cut to its beginning. Without `classes`, they are the labels in their commonest spelling.

    >>> by_spelling(["Benign", "benign", "benign", "malignant"], ())
    (('benign', 'malignant'), {'Benign': 'benign'})
    >>> by_spelling(["M", "B", "1"], ["benign", "malignant"])
    (('benign', 'malignant'), {'M': 'malignant', 'B': 'benign'})
    """
    found, aliases = list(classes), {}
    for text, _ in sorted(Counter(texts).items(), key=lambda item: (-item[1], item[0])):
        alike = [name for name in found if name.casefold() == text.casefold()]
        if not alike and classes:
            alike = [name for name in found if _begins(name, text)]
        if text in found:
            continue
        if len(alike) == 1:
            aliases[text] = alike[0]
        elif not classes:
            found.append(text)
    return tuple(found), {text: aliases[text] for text in dict.fromkeys(texts) if text in aliases}


def _begins(name: str, text: str) -> bool:
    """Whether one of two words is the beginning of the other; numbers are no words."""
    short, long = sorted((name.casefold(), text.casefold()), key=len)
    return short != "" and not any(c.isdigit() for c in short) and long.startswith(short)


def _letters(name: str) -> str:
    return re.sub(r"[\W_]+", "", name.casefold())
