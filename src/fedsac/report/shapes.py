"""The shapes of a drawing: lines, areas, marks and texts. Lengths are pixels, y grows downwards."""

import math
from dataclasses import dataclass, field

Point = tuple[float, float]

# The last seven are Okabe and Ito's, which colour-blind people can tell apart (black is `ink`); series also differ in
# shape or dashes.
COLOURS = {
    "paper": "#ffffff",
    "grid": "#e2e6ea",
    "soft": "#59636e",
    "ink": "#1c2126",
    "blue": "#0072b2",
    "vermillion": "#d55e00",
    "green": "#009e73",
    "purple": "#cc79a7",
    "sky": "#56b4e9",
    "orange": "#e69f00",
}

# Widths of Helvetica's characters from space to tilde, in thousandths of the size (Adobe's font metrics).
WIDTHS = (
    *(278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278, 556, 556, 556),
    *(556, 556, 556, 556, 556, 556, 556, 278, 278, 584, 584, 584, 556, 1015, 667, 667, 722, 722, 667),
    *(611, 778, 722, 278, 500, 667, 556, 833, 722, 778, 667, 778, 722, 667, 611, 722, 667, 944, 667),
    *(667, 611, 278, 278, 278, 469, 556, 333, 556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500),
    *(222, 833, 556, 556, 556, 556, 333, 500, 278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584),
)


@dataclass(frozen=True)
class Line:
    """A line through all points. `tip` is the tooltip of the whole line, `tips` those of its points."""

    points: tuple[Point, ...]
    colour: str = "ink"
    width: float = 1.0
    dash: tuple[float, ...] = ()
    tip: str = ""
    tips: tuple[str, ...] = ()


@dataclass(frozen=True)
class Area:
    """A filled polygon."""

    points: tuple[Point, ...]
    colour: str = "ink"
    opacity: float = 1.0
    tip: str = ""


@dataclass(frozen=True)
class Mark:
    """A point of one of the shapes in `MARKS`."""

    x: float
    y: float
    shape: str = "circle"
    colour: str = "ink"
    size: float = 4.5
    hollow: bool = False
    tip: str = ""


@dataclass(frozen=True)
class Text:
    """One line of text; `anchor` is start, middle or end, `turned` runs upwards."""

    x: float
    y: float
    text: str
    size: float = 12.0
    anchor: str = "start"
    colour: str = "ink"
    bold: bool = False
    turned: bool = False


Shape = Line | Area | Mark | Text


@dataclass
class Drawing:
    """A drawing. `description` is a text for those who cannot see it; the title is in a strip above the shapes."""

    width: float
    height: float
    title: str
    description: str = ""
    shapes: list[Shape] = field(default_factory=list)

    def add(self, *shapes: Shape) -> None:
        self.shapes.extend(shapes)


def box(x: float, y: float, width: float, height: float) -> tuple[Point, ...]:
    return (x, y), (x + width, y), (x + width, y + height), (x, y + height)


def text_width(text: str, size: float) -> float:
    """The width of a text in Helvetica; characters beyond ASCII count as average, East Asian ones as wide."""
    return sum(map(_width, text)) * size / 1000


def _width(character: str) -> int:
    code = ord(character)
    return WIDTHS[code - 32] if 32 <= code < 127 else 1000 if code > 0x2E7F else 556


def fitted(text: str, size: float, room: float) -> str:
    """The text, cut and ended with an ellipsis if it is wider than `room`."""
    total, kept, end = 0, 0, _width("…")
    for length, character in enumerate(text):  # a foreign one may be of any length: whatever is too long is not read on
        if (total + end) * size / 1000 <= room:
            kept = length
        total += _width(character)
        if total * size / 1000 > room:
            return text[:kept].rstrip() + "…"
    return text


def _star(points: int, inner: float, turn: float = 0.0) -> tuple[Point, ...]:
    angles = [math.pi * (k / points - 0.5) + turn for k in range(2 * points)]
    return tuple(
        ((inner if k % 2 else 1.15) * math.cos(a), (inner if k % 2 else 1.15) * math.sin(a))
        for k, a in enumerate(angles)
    )


_PLUS = tuple(
    (x * 1.1, y * 1.1)
    for x, y in (
        *((-0.36, -1), (0.36, -1), (0.36, -0.36), (1, -0.36), (1, 0.36), (0.36, 0.36)),
        *((0.36, 1), (-0.36, 1), (-0.36, 0.36), (-1, 0.36), (-1, -0.36), (-0.36, -0.36)),
    )
)
# Outlines around the origin; a circle has none.
MARKS: dict[str, tuple[Point, ...]] = {
    "circle": (),
    "square": box(-0.9, -0.9, 1.8, 1.8),
    "up": ((0, -1.15), (1.1, 0.8), (-1.1, 0.8)),
    "diamond": ((0, -1.3), (1.15, 0), (0, 1.3), (-1.15, 0)),
    "down": ((0, 1.15), (-1.1, -0.8), (1.1, -0.8)),
    "plus": _PLUS,
    "cross": tuple(((x + y) * math.sqrt(0.5), (y - x) * math.sqrt(0.5)) for x, y in _PLUS),
    "star": _star(5, 0.5),
}


def outline(mark: Mark) -> tuple[Point, ...]:
    return tuple((mark.x + mark.size * x, mark.y + mark.size * y) for x, y in MARKS[mark.shape])
