"""Rows of cells, lighter and darker: which client holds which neurons."""

from collections.abc import Sequence
from itertools import groupby

from fedsac.report.axes import SMALL, WIDTH
from fedsac.report.shapes import Area, Drawing, Text, box, fitted, text_width

HEAD_PIXELS, GAP_PIXELS = 24.0, 6.0  # above the cells, for a group's name; between groups
TIP = "{name}, {group}, columns {first} to {last}: {value:g}"


def heatmap(
    title: str,
    names: Sequence[str],
    values: Sequence[Sequence[float]],
    groups: Sequence[tuple[str, int]],
    tip: str = TIP,
    note: str = "",
    width: float = WIDTH,
    *,
    stacked: bool = False,
) -> Drawing:
    """Rows of values between 0 and 1, darker for higher ones; columns in groups (name of a layer, number of neurons),
    which stand side by side or, where a screen is narrow, `stacked`."""
    tall = min(max(320.0 / max(len(names), 1), 3.0), 15.0 if stacked else 24.0)
    level = HEAD_PIXELS + tall * len(names) + 8
    drawing = Drawing(width, level * (max(len(groups), 1) if stacked else 1), title, note)
    left = 14 + max((text_width(fitted(name, SMALL, 110), SMALL) for name in names), default=0)
    room = width - left - 14
    each = (room - GAP_PIXELS * (len(groups) - 1)) / max(sum(size for _, size in groups), 1)
    x, top, start = left, 0.0, 0
    for k, (group, size) in enumerate(groups):
        wide = room if stacked else each * size
        cells = [row[start : start + size] for row in values]
        _cells(drawing, (x, top + HEAD_PIXELS, wide, tall), names, cells, group, tip)
        if stacked or k == 0:
            _names(drawing, names, left - 6, top + HEAD_PIXELS, tall)
        x, top = (x, top + level) if stacked else (x + wide + GAP_PIXELS, top)
        start += size
    return drawing


def _cells(
    drawing: Drawing,
    where: tuple[float, float, float, float],
    names: Sequence[str],
    values: Sequence[Sequence[float]],
    group: str,
    tip: str,
) -> None:
    """One group: its name and its cells, from left and top, so wide, each row so tall. Neighbours with equal values are
    one rectangle, so that hundreds of neurons that are held or not are a few shapes."""
    left, top, wide, tall = where
    drawing.add(Area(box(left, top, wide, tall * len(names)), "grid", 0.55))
    drawing.add(Text(left, top - 7, fitted(group, SMALL, max(wide + GAP_PIXELS, 40)), SMALL, colour="soft"))
    for row, (name, cells) in enumerate(zip(names, values, strict=True)):
        column, each = 0, wide / max(len(cells), 1)
        for value, run in groupby(cells):
            count = len(list(run))
            if value > 0:
                text = tip.format(name=name, group=group, first=column + 1, last=column + count, value=value)
                corners = box(left + each * column, top + 0.5 + tall * row, each * count, tall - 1)
                drawing.add(Area(corners, "blue", 0.12 + 0.88 * value, tip=text))
            column += count


def _names(drawing: Drawing, names: Sequence[str], right: float, top: float, tall: float) -> None:
    """The rows' names; of those that would overlap, every second, third, ..."""
    skipped = -(-12 // tall)
    for row, name in enumerate(names):
        if row % skipped == 0:
            y = top + 4 + tall * (row + 0.5)
            drawing.add(Text(right, y, fitted(name, SMALL, 110), SMALL, "end", "soft"))
