"""Tables inside pages that are written by hand: what stands between two marks is made anew."""

from collections.abc import Iterable
from pathlib import Path

from fedsac.atomic import write_atomic
from fedsac.errors import FedsacError


def write_between(page: Path, name: str, lines: Iterable[str]) -> Path:
    """Put lines between the page's marks of this name. Returns the page."""
    text, marks = page.read_text(), (f"<!-- {name} -->", f"<!-- /{name} -->")
    before, begun, rest = text.partition(marks[0])
    _, ended, after = rest.partition(marks[1])
    if not begun or not ended:
        raise FedsacError(f"{page} has no marks {' and '.join(marks)}")
    between = "\n".join(lines).strip()
    write_atomic(page, f"{before}{marks[0]}\n\n{between}\n\n{marks[1]}{after}".encode())
    return page
