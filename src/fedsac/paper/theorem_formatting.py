"""Numbers, paragraphs and tables as text, for the pages on the theorems."""

from collections.abc import Sequence
from textwrap import fill

from fedsac.paper.theorem1 import Count

LINE_CHARACTERS = 120


def count_text(count: Count) -> str:
    """The number of reversed pairs, and of all.

    >>> count_text(Count(pairs=44, reversed=3))
    '3 of 44'
    """
    return f"{count.reversed} of {count.pairs}"


def percent(count: Count) -> str:
    """The share of reversed pairs; exactly 0 differs from a share that is rounded to 0.

    >>> percent(Count(pairs=4000, reversed=1)), percent(Count(pairs=4000))
    ('0.0 %', '0 %')
    """
    return f"{100 * count.share:.1f} %" if count.reversed else "0 %"


def vector(values: Sequence[float]) -> str:
    """A vector in round brackets.

    >>> vector([1.0, 0.5])
    '(1, 0.5)'
    """
    return f"({', '.join(f'{value:g}' for value in values)})"


def paragraph(text: str) -> str:
    """A paragraph with its lines filled."""
    return fill(text, LINE_CHARACTERS, break_long_words=False, break_on_hyphens=False)


def bullets(*texts: str) -> str:
    """A Markdown list, its lines filled."""
    return "\n".join(
        fill(f"- {text}", LINE_CHARACTERS, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        for text in texts
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
