"""Writing a drawing as SVG. Colours are names, so that a page can replace them in dark mode: `svg` writes the plain
colour and a class. There are no dates and no random identifiers: the same drawing gives the same bytes."""

import json
import re
from collections.abc import Iterable
from html import escape

from fedsac.report.shapes import COLOURS, Area, Drawing, Line, Point, Shape, Text, fitted, outline

__all__ = ["Drawing", "svg"]

TITLE_HEIGHT_PIXELS = 30  # of the strip with the title, above the drawing
TITLE_SIZE_PIXELS = 15.0
SVG_SIGN = "<!-- Drawn by fedsac. -->\n"  # how files of ours begin


def plain(text: str) -> str:
    """The text without characters that XML does not allow: control characters and lone surrogates."""
    return re.sub("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]", "\ufffd", text)


def _n(value: float) -> str:
    """A number with at most two decimals."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _pairs(points: Iterable[Point]) -> str:
    return " ".join(f"{_n(x)},{_n(y)}" for x, y in points)


def svg(drawing: Drawing, *, title: bool = True) -> str:
    """The drawing as SVG; without `title`, the strip above it is left out (a page has headings of its own)."""
    head = TITLE_HEIGHT_PIXELS if title else 0
    name = escape(plain(f"{drawing.title}. {drawing.description}".strip()), quote=True)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 {-head} {_n(drawing.width)} {_n(drawing.height + head)}" '
        f'role="img" aria-label="{name}" font-family="Helvetica, Arial, sans-serif">',
        f'<rect class="f-paper" y="{-head}" width="{_n(drawing.width)}" height="{_n(drawing.height + head)}" '
        f'fill="{COLOURS["paper"]}"/>',
    ]
    if title:
        parts.append(_svg_shape(title_text(drawing)))
    parts += map(_svg_shape, drawing.shapes)
    return (SVG_SIGN if title else "") + "\n".join([*parts, "</svg>", ""])


def title_text(drawing: Drawing) -> Text:
    """The title, in the strip above the drawing."""
    return Text(
        8, -10, fitted(drawing.title, TITLE_SIZE_PIXELS * 1.06, drawing.width - 16), TITLE_SIZE_PIXELS, bold=True
    )


def _svg_shape(shape: Shape) -> str:
    colour = COLOURS[shape.colour]
    if isinstance(shape, Text):
        place = f'x="{_n(shape.x)}" y="{_n(shape.y)}"'
        if shape.turned:
            place = f'transform="translate({_n(shape.x)} {_n(shape.y)}) rotate(-90)"'
        anchor = "" if shape.anchor == "start" else f' text-anchor="{shape.anchor}"'
        bold = ' font-weight="bold"' if shape.bold else ""
        return (
            f'<text class="f-{shape.colour}" {place} font-size="{_n(shape.size)}"{anchor}{bold} fill="{colour}">'
            f"{escape(plain(shape.text))}</text>"
        )
    stroke = f'class="s-{shape.colour}" fill="none" stroke="{colour}"'
    fill = f'class="f-{shape.colour}" fill="{colour}"'
    if isinstance(shape, Line):
        dash = f' stroke-dasharray="{" ".join(map(_n, shape.dash))}"' if shape.dash else ""
        tips = ""
        if shape.tips:
            # One list for the whole line keeps a page small; the page's script finds the nearest point.
            tips = f' data-tips="{escape(plain(json.dumps(shape.tips, ensure_ascii=False)), quote=True)}"'
        start = f'polyline points="{_pairs(shape.points)}" {stroke} stroke-width="{_n(shape.width)}"{dash}'
        return _tipped(f'{start} stroke-linejoin="round"{tips}', shape.tip)
    if isinstance(shape, Area):
        opacity = "" if shape.opacity == 1 else f' fill-opacity="{_n(shape.opacity)}"'
        return _tipped(f'polygon points="{_pairs(shape.points)}" {fill}{opacity}', shape.tip)
    style = fill
    if shape.hollow:
        style = f'class="s-{shape.colour} f-paper" fill="{COLOURS["paper"]}" stroke="{colour}" stroke-width="1.8"'
    if shape.shape == "circle":
        return _tipped(f'circle cx="{_n(shape.x)}" cy="{_n(shape.y)}" r="{_n(shape.size)}" {style}', shape.tip)
    return _tipped(f'polygon points="{_pairs(outline(shape))}" {style}', shape.tip)


def _tipped(start: str, tip: str) -> str:
    if not tip:
        return f"<{start}/>"
    name, text = start.split(" ", 1)[0], escape(plain(tip), quote=True)
    return f'<{start} data-tip="{text}"><title>{text}</title></{name}>'
