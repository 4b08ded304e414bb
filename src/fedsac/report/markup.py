"""The parts of a page as HTML. All text from outside is escaped by `text`."""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files

from fedsac.report.drawing import plain, svg
from fedsac.report.shapes import Drawing
from fedsac.version import __version__

SIGN = "<!doctype html>\n<!-- A report of fedsac. -->\n"  # how our pages begin: only such a file is overwritten


@dataclass(frozen=True)
class Figure:
    """A drawing on a page; `name` is that of its files. One with a `narrow` drawing beside it is as wide as the page,
    and the narrow one stands in its place on a phone."""

    name: str
    drawing: Drawing
    caption: str = ""
    narrow: Drawing | None = None


@dataclass(frozen=True)
class Cell:
    """A table's cell: the text shown, the number to sort by if it is not that text, and a CSS class (good, bad)."""

    shown: str
    value: float | None = None
    tone: str = ""


def text(value: str) -> str:
    return escape(plain(value), quote=True)


def number(value: float | None, digits: int = 2) -> Cell:
    """A cell with a number; None is a dash, which sorts below every number."""
    return Cell("-", float("-inf")) if value is None else Cell(f"{value:.{digits}f}", value)


def signed(value: float, digits: int = 1) -> Cell:
    """A cell with a difference. What rounds to zero has no sign, and is neither good nor bad."""
    shown = f"{value:+.{digits}f}"
    if float(shown) == 0:
        return Cell(shown[1:], value)
    return Cell(shown, value, "good" if value > 0 else "bad")


def table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[Cell | str]], *, sortable: bool = True) -> str:
    """A table as HTML. Columns of `Cell`s are numbers, aligned right; the first cell of a row is its heading."""
    numeric = [all(isinstance(row[k], Cell) for row in rows) for k in range(len(heads))]
    out = ['<div class="scroll" tabindex="0" role="region"', f' aria-label="{text(caption)}">']
    out.append(f"<table{' data-sortable' if sortable else ''}><caption>{text(caption)}</caption><thead><tr>")
    out += [f'<th scope="col"{_class(n)}>{text(head)}</th>' for head, n in zip(heads, numeric, strict=True)]
    out.append("</tr></thead><tbody>\n")
    for row in rows:
        out.append("<tr>")
        for k, cell in enumerate(row):
            tag, scope = ("th", ' scope="row"') if k == 0 else ("td", "")
            if isinstance(cell, str):
                out.append(f"<{tag}{scope}>{text(cell)}</{tag}>")
            else:
                value = "" if cell.value is None else f' data-value="{_sorted_by(cell.value)}"'
                out.append(f"<{tag}{scope}{_class(numeric[k], cell.tone)}{value}>{text(cell.shown)}</{tag}>")
        out.append("</tr>\n")
    return "".join([*out, "</tbody></table></div>\n"])


def _sorted_by(value: float) -> str:
    return "-Infinity" if value == float("-inf") else f"{value:.9g}"


def _class(numeric: bool, tone: str = "") -> str:
    names = " ".join(name for name in ("n" if numeric else "", tone) if name)
    return f' class="{names}"' if names else ""


def figure(shown: Figure) -> str:
    plots = _plot(shown.drawing, "broad" if shown.narrow else "")
    if shown.narrow is not None:
        plots += _plot(shown.narrow, "narrow")
    caption = f"<figcaption>{text(shown.caption)}</figcaption>" if shown.caption else ""
    return (
        f"<figure{_class(False, 'wide' if shown.narrow else '')}><h3>{text(shown.drawing.title)}</h3>"
        f"{plots}{caption}</figure>\n"
    )


def _plot(drawing: Drawing, kind: str) -> str:
    drawn = svg(drawing, title=False).replace("<svg ", '<svg class="chart" tabindex="0" ', 1)
    return f'<div class="{f"plot {kind}".strip()}">{drawn}</div>'


def details(name: str, said: str, content: str) -> str:
    """Something folded away under a line that says what it is: a name, which may be written from right to left, and
    what is said of it."""
    return f"<details><summary><bdi>{text(name)}</bdi>{text(said)}</summary>\n{content}</details>\n"


def section(title: str, *parts: str) -> str:
    return f"<section><h2>{text(title)}</h2>\n{''.join(parts)}</section>\n"


def grid(*parts: str) -> str:
    return f'<div class="grid">\n{"".join(parts)}</div>\n'


def paragraph(content: str, kind: str = "") -> str:
    return f"<p{_class(False, kind)}>{text(content)}</p>\n"


def cards(entries: Sequence[tuple[str, str, str]]) -> str:
    """Headline numbers: name, value, and a remark in smaller type."""
    parts = [
        f"<div><dt>{text(name)}</dt><dd><b>{text(value)}</b><span>{text(remark)}</span></dd></div>\n"
        for name, value, remark in entries
    ]
    return f'<dl class="cards">\n{"".join(parts)}</dl>\n'


def document(title: str, subtitle: str, body: str) -> str:
    """A whole page. Its Content-Security-Policy allows only its own style and script, by their hashes, and loads
    nothing."""
    style, script = (
        files("fedsac.report").joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "page.js")
    )
    policy = f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}"
    return f"""{SIGN}<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{text(title)}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<header><h1>{text(title)}</h1>
<p>{text(subtitle)}</p></header>
<main>
{body}</main>
<footer><p>Written by fedsac {text(__version__)}. Point at a chart, tap it, or focus it and use the arrow keys to read
its values; headings of tables sort them.</p></footer>
<div id="tip" role="status" hidden></div>
<script>{script}</script>
</body>
</html>
"""


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
