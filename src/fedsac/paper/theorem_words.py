"""How the pages on the theorems say a number, a paragraph and a table."""

from collections.abc import Sequence
from textwrap import fill

from fedsac.paper.theorem1 import Count

WIDTH = 120


def of(count: Count) -> str:
    """
    >>> of(Count(pairs=44, reversed=3))
    '3 of 44'
    """
    return f"{count.reversed} of {count.pairs}"


def percent(count: Count) -> str:
    """Exactly 0 is told apart from what is rounded to it.

    >>> percent(Count(pairs=4000, reversed=1)), percent(Count(pairs=4000))
    ('0.0 %', '0 %')
    """
    return f"{100 * count.share:.1f} %" if count.reversed else "0 %"


def vector(values: Sequence[float]) -> str:
    """
    >>> vector([1.0, 0.5])
    '(1, 0.5)'
    """
    return f"({', '.join(f'{value:g}' for value in values)})"


def prose(paragraph: str) -> str:
    return fill(paragraph, WIDTH, break_long_words=False, break_on_hyphens=False)


def points(*texts: str) -> str:
    """A list, one point after the other."""
    return "\n".join(
        fill(f"- {text}", WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        for text in texts
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
