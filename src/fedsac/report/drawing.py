"""Writing a drawing as SVG and as PDF.

Colours are names, so that a page can replace them in dark mode: `svg` writes the plain colour and a class. In a PDF a
pixel is three quarters of a point. There are no dates and no random identifiers: the same drawing gives the same bytes.
"""

import json
import re
from collections.abc import Iterable, Sequence
from html import escape

from fedsac.report.shapes import COLOURS, Area, Drawing, Line, Point, Shape, Text, fitted, outline, text_width

__all__ = ["Drawing", "pdf", "svg"]

TITLE_HEIGHT_PIXELS = 30  # of the strip with the title, above the drawing
TITLE_SIZE_PIXELS = 15.0
SVG_SIGN, PDF_SIGN = "<!-- Drawn by fedsac. -->\n", b"%PDF-1.4\n%\xe2\xe3\xcf\xd3 fedsac\n"  # how files of ours begin


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
        parts.append(_svg_shape(_title(drawing)))
    parts += map(_svg_shape, drawing.shapes)
    return (SVG_SIGN if title else "") + "\n".join([*parts, "</svg>", ""])


def _title(drawing: Drawing) -> Text:
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


def pdf(drawing: Drawing) -> bytes:
    """The drawing as a PDF page of its size: vectors, and Helvetica, which every PDF reader has. Characters outside
    Windows-1252 become question marks."""
    height = drawing.height + TITLE_HEIGHT_PIXELS
    shapes = [_pdf_shape(shape) for shape in (_title(drawing), *drawing.shapes)]
    # One matrix flips the page, so that shapes keep their coordinates (y downwards); each text flips itself back.
    drawn = f"0.75 0 0 -0.75 0 {_n(0.75 * drawing.height)} cm 1 J 1 j\n".encode() + b"\n".join(shapes)
    font = "<< /Type /Font /Subtype /Type1 /BaseFont /{} /Encoding /WinAnsiEncoding >>"
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {_n(0.75 * drawing.width)} {_n(0.75 * height)}] /Contents 4 0 R "
        "/Resources << /Font << /F1 5 0 R /F2 6 0 R >> >> >>".encode(),
        f"<< /Length {len(drawn)} >>\nstream\n".encode() + drawn + b"\nendstream",
        font.format("Helvetica").encode(),
        font.format("Helvetica-Bold").encode(),
        b"<< /Title " + _pdf_text(drawing.title) + b" /Producer (fedsac) >>",
    ]
    out, starts = bytearray(PDF_SIGN), []
    for number, content in enumerate(objects, start=1):
        starts.append(len(out))
        out += f"{number} 0 obj\n".encode() + content + b"\nendobj\n"
    table = "".join(f"{start:010d} 00000 n \n" for start in starts)
    size = len(objects) + 1
    out += f"xref\n0 {size}\n0000000000 65535 f \n{table}".encode() + (
        f"trailer\n<< /Size {size} /Root 1 0 R /Info 7 0 R >>\nstartxref\n{len(out)}\n%%EOF\n".encode()
    )
    return bytes(out)


def _pdf_text(text: str) -> bytes:
    coded = re.sub("[\x00-\x1f]", " ", text).encode("cp1252", errors="replace")
    return b"(" + re.sub(rb"([\\()])", rb"\\\1", coded) + b")"


def _pdf_colour(name: str, opacity: float = 1.0) -> str:
    """Red, green and blue of a colour, blended with white by its opacity."""
    parts = (int(COLOURS[name][k : k + 2], 16) / 255 for k in (1, 3, 5))
    return " ".join(_n(1 - opacity * (1 - part)) for part in parts)


def _pdf_path(points: Sequence[Point]) -> str:
    return " ".join(f"{_n(x)} {_n(y)} {'l' if k else 'm'}" for k, (x, y) in enumerate(points))


def _pdf_shape(shape: Shape) -> bytes:
    if isinstance(shape, Text):
        back = text_width(shape.text, shape.size) * {"start": 0, "middle": 0.5, "end": 1}[shape.anchor]
        back *= 1.06 if shape.bold else 1
        x, y = (shape.x, shape.y + back) if shape.turned else (shape.x - back, shape.y)
        matrix = "0 -1 -1 0" if shape.turned else "1 0 0 -1"
        set_up = f"BT {_pdf_colour(shape.colour)} rg /F{2 if shape.bold else 1} {_n(shape.size)} Tf {matrix} {_n(x)} "
        return f"{set_up}{_n(y)} Tm ".encode() + _pdf_text(shape.text) + b" Tj ET"
    if isinstance(shape, Line):
        dash = f"[{' '.join(map(_n, shape.dash))}] 0 d {_n(shape.width)} w"
        return f"{_pdf_colour(shape.colour)} RG {dash} {_pdf_path(shape.points)} S".encode()
    if isinstance(shape, Area):
        return f"{_pdf_colour(shape.colour, shape.opacity)} rg {_pdf_path(shape.points)} f".encode()
    style, paint = f"{_pdf_colour(shape.colour)} rg", "f"
    if shape.hollow:
        style, paint = f"{_pdf_colour('paper')} rg {_pdf_colour(shape.colour)} RG [] 0 d 1.8 w", "b"
    path = _pdf_path(outline(shape)) if shape.shape != "circle" else _pdf_circle(shape.x, shape.y, shape.size)
    return f"{style} {path} {paint}".encode()


def _pdf_circle(x: float, y: float, r: float) -> str:
    k = 0.5523 * r  # four Bezier curves with this handle differ from a circle by less than a thousandth
    parts = [f"{_n(x + r)} {_n(y)} m"]
    for ax, ay, bx, by in ((r, 0, 0, r), (0, r, -r, 0), (-r, 0, 0, -r), (0, -r, r, 0)):
        handles = x + ax + k * bx / r, y + ay + k * by / r, x + bx + k * ax / r, y + by + k * ay / r
        parts.append(" ".join(map(_n, (*handles, x + bx, y + by))) + " c")
    return " ".join(parts)
