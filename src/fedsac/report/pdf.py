"""Writing a drawing as PDF, by fpdf2: vectors, and text in fonts of this machine, of which the glyphs that are used are
embedded. There are no dates and no random identifiers: with the same fonts the same drawing gives the same bytes."""

import re
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from fedsac.errors import FedsacError
from fedsac.report.drawing import TITLE_HEIGHT_PIXELS, plain, title_text
from fedsac.report.fonts import BOLD, PLAIN, characters_of, font_named, fonts_for
from fedsac.report.shapes import COLOURS, Area, Drawing, Line, Mark, Text, outline, text_width

if TYPE_CHECKING:
    from fpdf import FPDF

POINTS_PER_PIXEL = 0.75
HEAD = b"%PDF-1.7\n%\xe6\xf3\xe1\xe3\n"  # how PDFs of ours begin: the second line is free, but for bytes above 127
HEADS = (HEAD, b"%PDF-1.4\n%\xe2\xe3\xcf\xd3 fedsac\n")  # and how those of earlier versions did
BASELINE = 0.3  # of a font's size: fpdf2's cells have it so far below their middle


def available() -> bool:
    """Whether what writes PDFs is installed."""
    return find_spec("fpdf") is not None


def pdf(drawing: Drawing) -> bytes:
    """The drawing as a PDF page of its size; an error where no font has one of its characters."""
    if not available():
        raise FedsacError("a .pdf is written by fpdf2: pip install fpdf2; the .svg has the same")
    from fpdf import FPDF

    size = drawing.width * POINTS_PER_PIXEL, (drawing.height + TITLE_HEIGHT_PIXELS) * POINTS_PER_PIXEL
    page = FPDF(unit="pt", format=size)
    page.set_margin(0)
    page.c_margin = 0
    page.set_auto_page_break(False)
    page.alias_nb_pages("")  # names may be "{nb}"
    page.set_title(_one_line(drawing.title))
    page.set_producer("fedsac")
    page.set_creation_date(datetime(2000, 1, 1, tzinfo=UTC))
    page.pdf_version = "1.7"
    page.add_page()
    texts = [shape for shape in drawing.shapes if isinstance(shape, Text)]
    writer = _Texts(page, [title_text(drawing), *texts])
    for shape in (title_text(drawing), *drawing.shapes):
        writer.write(shape) if isinstance(shape, Text) else _draw(page, shape)
    content = bytes(page.output())
    return HEAD + content[len(HEAD) :]


class _Texts:
    """Writes texts, each in a font that has its characters."""

    def __init__(self, page: "FPDF", texts: list[Text]) -> None:
        self._page = page
        self._embedded = (regular := font_named(PLAIN)) is not None
        if regular is not None:
            page.add_font("plain", fname=regular)
            page.add_font("plain", style="B", fname=font_named(BOLD) or regular)
            page.set_text_shaping(True)
        self._add_others(texts, frozenset() if regular is None else characters_of(regular))

    def _add_others(self, texts: list[Text], known: frozenset[int]) -> None:
        """Add fonts for what the plain one lacks; where there is none, every reader's Helvetica has Western letters."""
        others: list[Any] = []
        for shape in texts:
            text = _one_line(shape.text)
            lacking = {c for c in text if ord(c) not in known and (self._embedded or not _is_western(c))}
            others += [font for font in fonts_for(lacking, text) if font not in others] if lacking else []
        for k, font in enumerate(others):
            self._page.add_font(f"other{k}", fname=font)
        if others:
            self._page.set_text_shaping(True)
            self._page.set_fallback_fonts([f"other{k}" for k in range(len(others))], exact_match=False)

    def write(self, shape: Text) -> None:
        page, text = self._page, _one_line(shape.text)
        if not text.strip():
            return
        points = shape.size * POINTS_PER_PIXEL
        western = not self._embedded and all(map(_is_western, text))
        family = "helvetica" if western or not self._embedded else "plain"
        page.set_font(family, style="B" if shape.bold else "", size=points)
        page.set_text_color(COLOURS[shape.colour])
        page.set_stretching(100)
        # Where the font is wider than what the drawing was laid out by, it is narrowed.
        room = text_width(text, shape.size) * (1.06 if shape.bold else 1) * POINTS_PER_PIXEL
        width = page.get_string_width(text)
        if width > room > 0:
            page.set_stretching(100 * room / width)
            width = page.get_string_width(text)
        x, y = shape.x * POINTS_PER_PIXEL, (shape.y + TITLE_HEIGHT_PIXELS) * POINTS_PER_PIXEL
        back = width * {"start": 0.0, "middle": 0.5, "end": 1.0}[shape.anchor]
        with page.rotation(90 if shape.turned else 0, x, y):
            page.x, page.y = x - back, y - BASELINE * points  # `set_xy` counts what is negative from the other side
            page.cell(w=width, h=0, text=text)


def _draw(page: "FPDF", shape: Line | Area | Mark) -> None:
    with page.new_path() as path:
        style = path.style
        style.auto_close = False
        style.fill_color = style.stroke_color = None
        if isinstance(shape, Line):
            style.stroke_color, style.stroke_width = COLOURS[shape.colour], shape.width * POINTS_PER_PIXEL
            style.stroke_join_style = style.stroke_cap_style = "round"
            style.stroke_dash_pattern = [length * POINTS_PER_PIXEL for length in shape.dash] or None
            _outline(path, shape.points, closed=False)
            return
        style.fill_color = _blended(shape.colour, shape.opacity if isinstance(shape, Area) else 1.0)
        if isinstance(shape, Mark) and shape.hollow:
            style.fill_color, style.stroke_color = COLOURS["paper"], COLOURS[shape.colour]
            style.stroke_width = 1.8 * POINTS_PER_PIXEL
        if isinstance(shape, Mark) and shape.shape == "circle":
            path.circle(*_at((shape.x, shape.y)), shape.size * POINTS_PER_PIXEL)
        else:
            _outline(path, outline(shape) if isinstance(shape, Mark) else shape.points, closed=True)


def _outline(path: Any, points: tuple[tuple[float, float], ...], *, closed: bool) -> None:
    path.move_to(*_at(points[0]))
    for point in points[1:]:
        path.line_to(*_at(point))
    if closed:
        path.close()


def _at(point: tuple[float, float]) -> tuple[float, float]:
    return point[0] * POINTS_PER_PIXEL, (point[1] + TITLE_HEIGHT_PIXELS) * POINTS_PER_PIXEL


def _blended(name: str, opacity: float) -> str:
    """A colour on white paper, so that nothing need be transparent."""
    parts = (int(COLOURS[name][k : k + 2], 16) for k in (1, 3, 5))
    return "#" + "".join(f"{round(255 - opacity * (255 - part)):02x}" for part in parts)


def _one_line(text: str) -> str:
    return re.sub("[\x00-\x1f\x7f\u2028\u2029]", " ", plain(text)).replace("\ufffd", "?")


def _is_western(character: str) -> bool:
    try:
        character.encode("latin-1")
    except UnicodeEncodeError:
        return False
    return True
