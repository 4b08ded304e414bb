"""The charts in reports and in the paper's figures. Each takes numbers as they are to be shown, returns a drawing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from fedsac.core.fairness import bcf
from fedsac.report.axes import (
    HEIGHT,
    SMALL,
    WIDER,
    WIDTH,
    Frame,
    Key,
    colour,
    dash,
    framed,
    legend,
    shape,
    span,
    spread,
    tick_texts,
    ticks,
)
from fedsac.report.labels import place_labels
from fedsac.report.shapes import Area, Drawing, Line, Mark, Text, box, fitted, text_width

MAX_LINE_POINTS = 300  # more than a line's width in pixels can show
MAX_KEYS = 6  # more lines are named at their ends, and more points beside them: legends of three rows are not read
MAX_NAMED_LINES = 16  # of more lines, only the highest and the lowest are named
LONGEST_NAME, LONGEST_BAR_NAME = 90.0, 150.0  # of a name that is turned, in pixels


@dataclass(frozen=True)
class Series:
    """Points under one name. `tips` replace the points' default tooltips, `labels` are written beside them; a line is
    interrupted at `gaps`, values of x where it has no value.

    Colour and mark depend on a series' position among the others; one without points takes a position but is not drawn.
    """

    name: str
    points: tuple[tuple[float, float], ...]
    tips: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    gaps: tuple[float, ...] = ()


def scatter(title: str, series: Sequence[Series], x_label: str, y_label: str, note: str = "") -> Drawing:
    """Points of several series, each with a colour and a mark of its own: the paper's Figure 3. Many series whose
    points all have their name beside them need no legend."""
    shown = [s for s in series if s.points]
    if len(shown) > MAX_KEYS and all(s.labels == (s.name,) * len(s.points) for s in shown):
        drawing, unnamed = _scatter(title, series, (x_label, y_label), note, keys=False)
        if not unnamed:
            return drawing
    return _scatter(title, series, (x_label, y_label), note, keys=True)[0]


def _scatter(
    title: str, series: Sequence[Series], names: tuple[str, str], note: str, *, keys: bool
) -> tuple[Drawing, int]:
    """The chart, and how many of its labels found no room."""
    said = ", ".join(s.name for s in series if s.points)
    drawing = Drawing(WIDTH, HEIGHT, title, note or f"{names[1]} against {names[0]}: {said}.")
    shown = [Key(s.name, colour(i), shape(i)) for i, s in enumerate(series) if s.points]
    top = legend(drawing, shown if keys else [])
    everything = [point for s in series for point in s.points]
    x, y = (span([point[k] for point in everything]) for k in (0, 1))
    frame = framed(drawing, x, y, names, top=top)
    frame.edge()
    named = []
    for i, s in enumerate(series):
        tips = s.tips or tuple(f"{s.name}: {names[0]} {_v(a)}, {names[1]} {_v(b)}" for a, b in s.points)
        for (a, b), tip in zip(s.points, tips, strict=True):
            drawing.add(Mark(*frame.at(a, b), shape(i), colour(i), 5, tip=tip))
        named += [(*frame.at(*p), label) for p, label in zip(s.points, s.labels, strict=False)]
    return drawing, place_labels(frame, named)


def lines(
    title: str,
    series: Sequence[Series],
    x_label: str,
    y_label: str,
    *,
    direct: bool = True,
    zero: bool = False,
) -> Drawing:
    """A line for each series, named at its right end (`direct`, or very many) or in a legend above; `zero`: y starts
    at 0. Where all have but one value, at the same place, bars."""
    kept = {i: (s.name, _thinned(s.points)) for i, s in enumerate(series) if s.points}
    everything = [point for _, points in kept.values() for point in points]
    if len({x for x, _ in everything}) == 1:
        once = f"{title}: {x_label} {everything[0][0]:g} alone"
        return bars(once, [name for name, _ in kept.values()], {"": [y for _, y in everything]}, y_label)
    direct = direct or len(kept) > MAX_KEYS
    drawing = Drawing(WIDTH, HEIGHT, title, f"{y_label} over {x_label}: {_ends(list(kept.values()))}.")
    top, right = 12.0, 14.0
    if direct:
        right = 22 + min(WIDER * max((text_width(name, SMALL) for name, _ in kept.values()), default=0), 110)
    else:
        top = legend(drawing, [Key(name, colour(i), dash=dash(i, first=True)) for i, (name, _) in kept.items()])
    x, y = _reach([point[0] for point in everything]), span([point[1] for point in everything])
    whole = all(point[0] == round(point[0]) for point in everything)
    y = (0.0, y[1]) if zero else y
    frame = framed(drawing, x, y, (x_label, y_label), top=top, right=right, whole=whole)
    frame.edge()
    for i, (name, points) in kept.items():
        for part in _parts(points, series[i].gaps):
            tips = tuple(f"{name}, {x_label} {a:g}: {_v(b)}" for a, b in part)
            where = tuple(frame.at(a, b) for a, b in part)
            if len(part) == 1:
                drawing.add(Mark(*where[0], shape(i), colour(i), 3, tip=tips[0]))
            else:
                width, dashes = 1.8 if len(kept) < 6 else 1.4, dash(i, first=not direct)
                drawing.add(Line(where, colour(i), width, dashes, tip=tips[-1], tips=tips))
    if direct:
        _name_ends(frame, kept)
    return drawing


def _name_ends(frame: Frame, series: Mapping[int, tuple[str, Sequence[tuple[float, float]]]]) -> None:
    """Write names at the lines' right ends, moved apart; of very many lines, only the highest and the lowest."""
    ends = sorted(series, key=lambda i: series[i][1][-1][1])
    if len(ends) > MAX_NAMED_LINES:
        ends = [ends[0], ends[-1]]
    wanted = [frame.up(series[i][1][-1][1]) for i in ends]
    for i, y in zip(ends, spread(wanted, 13.5, frame.top + 4, frame.bottom), strict=True):
        end = frame.up(series[i][1][-1][1])
        start = frame.across(series[i][1][-1][0]) + 1
        early = start < frame.right - 1  # it has no value at the end: dots, lest they be taken for one
        frame.drawing.add(Line(((start, end), (frame.right + 9, y)), colour(i), 1, (1, 4) if early else ()))
        name = fitted(series[i][0], SMALL, 110)
        frame.drawing.add(Text(frame.right + 12, y + 4, name, SMALL, colour="soft"))


def contribution_reward(
    title: str, names: Sequence[str], contributions: Sequence[float], rewards: Sequence[float], unit: str = " (%)"
) -> Drawing:
    """Contribution c across, reward theta up, and the band of BCF, from theta = c to theta = (c + max theta) / 2, which
    the best contributor alone may leave at the top."""
    inside, best, most = bcf(contributions, rewards).tolist(), max(rewards), max(contributions)
    note = f"{sum(inside)} of {len(names)} clients are inside the band of bounded collaborative fairness."
    drawing = Drawing(WIDTH, HEIGHT + 30, title, note)
    keys = [
        Key("inside BCF", "blue", "circle"),
        Key("outside", "vermillion", "diamond", hollow=True),
        Key("BCF: between c and (c + best) / 2", "green", area=0.18),
        Key("reward = c", "soft", dash=(5, 4)),
    ]
    top = legend(drawing, keys)
    x, y = span(contributions, 0.1), span([*rewards, *contributions], 0.06)
    frame = framed(drawing, x, y, (f"contribution c{unit}", f"reward{unit}"), top=top)
    # The band ends where the bounds meet, at c = best, and at the frame.
    low, high = max(x[0], y[0]), min(x[1], best)
    if high > low:
        corners = ((low, low), (high, high), (high, (high + best) / 2), (low, (low + best) / 2))
        drawing.shapes.insert(0, Area(tuple(frame.at(*corner) for corner in corners), "green", 0.18))  # below the grid
    ends = max(x[0], y[0]), min(x[1], y[1])
    drawing.add(Line((frame.at(ends[0], ends[0]), frame.at(ends[1], ends[1])), "soft", 1, (5, 4)))
    frame.edge()
    points = []
    for name, c, theta, good in zip(names, contributions, rewards, inside, strict=True):
        bounds = f"BCF {_v(c)} to {_v((c + best) / 2)}" if c < most else f"BCF above {_v(c)}: contributes most"
        tip = f"{name}: contribution {_v(c)}, reward {_v(theta)}; {'inside' if good else 'outside'} {bounds}"
        kind = ("circle", "blue") if good else ("diamond", "vermillion")
        drawing.add(Mark(*frame.at(c, theta), *kind, 5, hollow=not good, tip=tip))
        points.append((*frame.at(c, theta), name))
    place_labels(frame, points)
    return drawing


def clients_by_method(
    title: str,
    names: Sequence[str],
    contributions: Sequence[float],
    rewards: Mapping[str, Sequence[float]],
    y_label: str = "test accuracy (%)",
    width: float = WIDTH,
    own: Mapping[str, Sequence[float]] | None = None,
) -> Drawing:
    """Clients in the order of their contributions (a stroke), with a mark for each method's reward: Figures 4 and 6.
    Where contributions differ between the methods, each has strokes of its `own`, and the order is of their means."""
    order = sorted(range(len(names)), key=lambda i: contributions[i])
    note = f"Contribution and rewards of {len(names)} clients by {', '.join(rewards)}."
    drawing = Drawing(width, HEIGHT + 10 + max(18.0 * (len(rewards) // MAX_KEYS - width // WIDTH), 0), title, note)
    keys = [Key(name, colour(i), shape(i)) for i, name in enumerate(rewards)]
    said = "alone (contribution)" if own is None else "alone (contribution), in each one's colour"
    top = legend(drawing, [Key(said, "ink", dash=()), *keys])
    strokes = {"": contributions} if own is None else own
    y = span([value for those in (strokes, rewards) for values in those.values() for value in values])
    frame = _columns(drawing, [names[i] for i in order], y, y_label, top)
    slot = (frame.right - frame.left) / max(len(names), 1)
    step = min(8.0 if own is None else 14.0, 0.8 * slot / max(len(rewards), 1))  # strokes show beside their marks
    for place, i in enumerate(order):
        x = frame.across(place)
        if own is None:
            level, tip = frame.up(contributions[i]), f"{names[i]}, alone: {_v(contributions[i])}"
            drawing.add(Line(((x - 0.42 * slot, level), (x + 0.42 * slot, level)), "ink", 2, tip=tip))
        for k, (method, values) in enumerate(rewards.items()):
            aside = x + step * (k - (len(rewards) - 1) / 2)
            if own is not None:
                level, tip = frame.up(own[method][i]), f"{names[i]}, {method}, alone: {_v(own[method][i])}"
                drawing.add(Line(((aside - 0.48 * step, level), (aside + 0.48 * step, level)), colour(k), 2, tip=tip))
            tip = f"{names[i]}, {method}: {_v(values[i])}"
            drawing.add(Mark(aside, frame.up(values[i]), shape(k), colour(k), 3.8, tip=tip))
    return drawing


def bars(title: str, names: Sequence[str], values: Mapping[str, Sequence[float | None]], y_label: str) -> Drawing:
    """A bar for each name and group, starting at 0; none where there is no number. Names may be long: where they are
    turned, the drawing is higher."""
    taller = max(0.0, min(LONGEST_BAR_NAME, _widest(names)) - LONGEST_NAME)
    drawing = Drawing(WIDTH, HEIGHT + taller, title, f"{y_label} of {len(names)}: {', '.join(values)}.")
    several = len(values) > 1
    top = legend(drawing, [Key(group, colour(k), "square") for k, group in enumerate(values)] if several else [])
    everything = [value for group in values.values() for value in group if value is not None]
    reach = max([*everything, 0.0]) * 1.05, min([*everything, 0.0]) * 1.05
    frame = _columns(drawing, names, (reach[1], reach[0] or 1.0), y_label, top, LONGEST_BAR_NAME)
    slot = (frame.right - frame.left) / max(len(names), 1)
    width = 0.72 * slot / max(len(values), 1)
    for k, (group, heights) in enumerate(values.items()):
        for place, (name, value) in enumerate(zip(names, heights, strict=True)):
            if value is None:
                continue
            left = frame.across(place) - 0.36 * slot + k * width
            tip = f"{name}, {group}: {_v(value)}" if several else f"{name}: {_v(value)}"
            corners = box(left, frame.up(max(value, 0)), width, abs(frame.up(value) - frame.up(0)))
            drawing.add(Area(corners, colour(k), tip=tip))
    return drawing


def _columns(
    drawing: Drawing,
    names: Sequence[str],
    y: tuple[float, float],
    y_label: str,
    top: float,
    longest: float = LONGEST_NAME,
) -> Frame:
    """A frame with a column for each of `names`; a prefix that all names share is written once, below, and names that
    do not fit side by side are turned."""
    names, common = _shortened(names)
    up = ticks(*y)
    left = 34 + max(text_width(text, SMALL) for text in tick_texts(up))
    slot = (drawing.width - 14 - left) / max(len(names), 1)
    widest = min(_widest(names), longest)
    turned = _widest(names) > slot - 4
    bottom = (28.0 if not turned else 14 + WIDER * widest) + (20 if common else 0)
    frame = Frame(drawing, (-0.5, len(names) - 0.5), y, left, top, drawing.width - 14, drawing.height - bottom)
    frame.y_ticks(up)
    skipped = -(-13 // slot) if turned else 1
    for place, name in enumerate(names):
        x = frame.across(place)
        if turned and place % skipped == 0:
            drawing.add(Text(x + 4, frame.bottom + 6, fitted(name, SMALL, longest), SMALL, "end", "soft", turned=True))
        elif not turned:
            drawing.add(Text(x, frame.bottom + 17, name, SMALL, "middle", "soft"))
    frame.names(common, y_label, below=bottom - 10)
    frame.edge()
    return frame


def _widest(names: Sequence[str]) -> float:
    return max((text_width(name, SMALL) for name in names), default=0.0)


def _shortened(names: Sequence[str]) -> tuple[list[str], str]:
    """Names without the prefix that all share, and the prefix: client-01 and client-02 are 01 and 02, and client."""
    first, last = min(names, default=""), max(names, default="")  # a prefix that these two share, all share
    same = next((k for k, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), 0)
    cut = max(first.rfind(mark, 0, same) for mark in "-_ ") + 1
    return [name[cut:] for name in names], first[:cut].rstrip("-_ ")


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most `MAX_LINE_POINTS` of the points, evenly spaced, with the first and the last."""
    if len(points) <= MAX_LINE_POINTS:
        return list(points)
    return [points[round(k * (len(points) - 1) / (MAX_LINE_POINTS - 1))] for k in range(MAX_LINE_POINTS)]


def _parts(points: Sequence[tuple[float, float]], gaps: Sequence[float]) -> list[list[tuple[float, float]]]:
    """A line's points, split where a gap lies between two of them."""
    parts: list[list[tuple[float, float]]] = [[points[0]]]
    for before, point in pairwise(points):
        if any(before[0] < gap < point[0] for gap in gaps):
            parts.append([])
        parts[-1].append(point)
    return parts


def _reach(values: Sequence[float]) -> tuple[float, float]:
    """The range of the x axis: exactly that of the values, so that lines begin at the axis."""
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    return (low, high) if high > low else (low - 1, high + 1)


def _v(value: float) -> str:
    return f"{value:.2f}"


def _ends(series: Sequence[tuple[str, Sequence[tuple[float, float]]]]) -> str:
    shown = [f"{name} ends at {_v(points[-1][1])}" for name, points in series[:MAX_NAMED_LINES]]
    return "; ".join(shown) + (" ..." if len(series) > MAX_NAMED_LINES else "")
