"""The frame of a chart: axes with round ticks, a legend that wraps."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedsac.report.shapes import MARKS, Area, Drawing, Line, Mark, Text, box, fitted, text_width

WIDTH, HEIGHT = 400.0, 300.0  # of a chart, in pixels: hardly more than a phone has, so that its texts stay legible
SMALL, NORMAL = 11.5, 12.5  # font sizes, in pixels
SERIES = ("blue", "vermillion", "green", "purple", "sky", "orange", "ink")  # colours
WIDER = 1.12  # than Helvetica are fonts that a browser may take in its place
DASHES: tuple[tuple[float, ...], ...] = ((), (7, 3), (2, 3), (9, 3, 2, 3))
SHAPES = tuple(MARKS)


def colour(i: int) -> str:
    """The i-th series' colour. There are seven, and eight marks, so that 56 series differ in one of the two."""
    return SERIES[i % len(SERIES)]


def shape(i: int) -> str:
    return SHAPES[i % len(SHAPES)]


def dash(i: int, *, first: bool = False) -> tuple[float, ...]:
    """The i-th line's dashes: they change when the colours repeat or, with `first`, from line to line, so that lines
    on top of each other can be told apart."""
    return DASHES[(i if first else i // len(SERIES)) % len(DASHES)]


def ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """Round numbers in [low, high], about as many as wanted: steps of 1, 2, 2.5 or 5 times a power of ten.

    >>> ticks(0.13, 0.98)
    [0.2, 0.4, 0.6, 0.8]
    """
    if not high > low:
        return [low]
    raw = (high - low) / wanted
    power = 10.0 ** math.floor(math.log10(raw))
    step = min((m * power for m in (1, 2, 2.5, 5, 10)), key=lambda s: abs(math.log(s / raw)))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{k * step:.12g}") for k in range(first, last + 1)]


def tick_texts(values: Sequence[float]) -> list[str]:
    """The numbers as text, all with as many decimals as the most precise one needs.

    >>> tick_texts([0.5, 0.75, 1.0])
    ['0.50', '0.75', '1.00']
    """
    if max(map(abs, values), default=0) >= 1e6:
        return [f"{value:.3g}" for value in values]
    digits = max((len(f"{value:.10g}".partition(".")[2]) for value in values if "e" not in f"{value:.10g}"), default=0)
    return [f"{value:.{digits}f}" for value in values]


def span(values: Sequence[float], room: float = 0.06, least: float = 1e-9) -> tuple[float, float]:
    """The range of an axis: that of the values, and a little room on both sides."""
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    extra = room * (high - low) if high - low > least else max(abs(high) * 0.05, least, 0.5)
    return low - extra, high + extra


@dataclass
class Frame:
    """The plotting area of a chart: the ranges `x` and `y` of its axes, and its sides in pixels of the drawing."""

    drawing: Drawing
    x: tuple[float, float]
    y: tuple[float, float]
    left: float
    top: float
    right: float
    bottom: float

    def across(self, value: float) -> float:
        """The pixel of a value on the x axis."""
        return self.left + (value - self.x[0]) / (self.x[1] - self.x[0]) * (self.right - self.left)

    def up(self, value: float) -> float:
        """The pixel of a value on the y axis."""
        return self.bottom - (value - self.y[0]) / (self.y[1] - self.y[0]) * (self.bottom - self.top)

    def at(self, x: float, y: float) -> tuple[float, float]:
        return self.across(x), self.up(y)

    def x_ticks(self, values: Sequence[float], *, grid: bool = True) -> None:
        for value, text in zip(values, tick_texts(values), strict=True):
            x = self.across(value)
            if grid:
                self.drawing.add(Line(((x, self.top), (x, self.bottom)), "grid"))
            self.drawing.add(Text(x, self.bottom + 17, text, SMALL, "middle", "soft"))

    def y_ticks(self, values: Sequence[float]) -> None:
        for value, text in zip(values, tick_texts(values), strict=True):
            y = self.up(value)
            self.drawing.add(Line(((self.left, y), (self.right, y)), "grid"))
            self.drawing.add(Text(self.left - 7, y + 4, text, SMALL, "end", "soft"))

    def edge(self) -> None:
        """Draw the two axes, on top of grid and areas."""
        corner = ((self.left, self.top), (self.left, self.bottom), (self.right, self.bottom))
        self.drawing.add(Line(corner, "soft"))

    def names(self, x_label: str, y_label: str, below: float = 38) -> None:
        room = self.bottom - self.top + 30
        middle = (self.left + self.right) / 2
        if x_label:
            text = fitted(x_label, NORMAL, 2 * min(middle, self.drawing.width - middle))
            self.drawing.add(Text(middle, self.bottom + below, text, NORMAL, "middle", "soft"))
        text = fitted(y_label, NORMAL, room)
        self.drawing.add(Text(15, (self.top + self.bottom) / 2, text, NORMAL, "middle", "soft", turned=True))


def framed(
    drawing: Drawing,
    x: tuple[float, float],
    y: tuple[float, float],
    names: tuple[str, str],
    *,
    top: float = 12.0,
    right: float = 14.0,
    bottom: float = 48.0,
    whole: bool = False,
) -> Frame:
    """A frame with ticks on both axes; the left margin is as wide as its numbers need. `whole`: only whole numbers on
    the x axis."""
    up = ticks(*y)
    left = 34 + max(text_width(text, SMALL) for text in tick_texts(up))
    frame = Frame(drawing, x, y, left, top, drawing.width - right, drawing.height - bottom)
    frame.x_ticks([value for value in ticks(*x, 6) if not whole or value == round(value)])
    frame.y_ticks(up)
    frame.names(*names)
    return frame


@dataclass(frozen=True)
class Key:
    """An entry of a legend: a mark, a stroke, an area, or several of them."""

    name: str
    colour: str
    shape: str | None = None
    dash: tuple[float, ...] | None = None
    hollow: bool = False
    area: float | None = None  # opacity


def legend(drawing: Drawing, keys: Sequence[Key], left: float = 12.0) -> float:
    """Draw a legend at the top, in rows from left to right; returns the height it took."""
    x, y = left, 12.0
    for key in keys:
        swatch = 12.0 if key.dash is None and key.area is None else 24.0
        name = fitted(key.name, SMALL, drawing.width - left - swatch - 24)
        need = swatch + 5 + WIDER * text_width(name, SMALL) + 14
        if x > left and x + need > drawing.width:
            x, y = left, y + 18
        if key.area is not None:
            drawing.add(Area(box(x, y - 5, swatch, 10), key.colour, key.area))
        if key.dash is not None:
            drawing.add(Line(((x, y), (x + swatch, y)), key.colour, 2, key.dash))
        if key.shape is not None:
            drawing.add(Mark(x + swatch / 2, y, key.shape, key.colour, hollow=key.hollow))
        drawing.add(Text(x + swatch + 5, y + 4, name, SMALL))
        x += need
    return y + 18 if keys else 12.0


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Positions near the wanted ones, at least `gap` apart and inside [low, high], in the same order.

    >>> spread([10, 11, 50], 10, 0, 60)
    [5.5, 15.5, 50.0]
    """
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    groups: list[list[int]] = []

    def start(group: list[int]) -> float:
        middle = sum(wanted[i] for i in group) / len(group)
        length = gap * (len(group) - 1)
        return min(max(middle - length / 2, low), max(high - length, low))

    for i in order:
        groups.append([i])
        # Groups that come too close are joined into one, around the mean of all its members.
        while len(groups) > 1 and start(groups[-2]) + gap * len(groups[-2]) > start(groups[-1]):
            last = groups.pop()
            groups[-1] += last
    positions = [0.0] * len(wanted)
    for group in groups:
        for k, i in enumerate(group):
            positions[i] = start(group) + gap * k
    return positions
