"""The paper's Figure 3: fairness against accuracy, one point per method, as an SVG file."""

from collections.abc import Sequence
from html import escape
from typing import Protocol

# Okabe and Ito's colours, which colour-blind people can tell apart; shapes repeat the distinction.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
WIDTH, HEIGHT, LEFT, BOTTOM, RIGHT, TOP = 640, 420, 60, 50, 190, 40


class Point(Protocol):
    """What a row of a comparison has."""

    @property
    def method(self) -> str: ...

    @property
    def label(self) -> str: ...

    def mean(self, key: str) -> float | None: ...


def fairness_against_accuracy(rows: Sequence[Point], title: str, label: str = "last") -> str:
    """Best reward (across) and gamma (up) of each method at one label; the upper right corner is where one wants to be.
    Methods whose gamma does not exist are left out."""
    points = [(row.method, row.mean("max"), row.mean("gamma")) for row in rows if row.label == label]
    drawn = [(name, 100 * x, y) for name, x, y in points if x is not None and y is not None]
    x_axis, y_axis = _axis([x for _, x, _ in drawn]), _axis([y for _, _, y in drawn])
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="24" font-size="14">{escape(title)}: fairness against accuracy ({label})</text>',
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 10}" text-anchor="middle">best reward (%)</text>',
        f'<text transform="translate(16 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)" text-anchor="middle">gamma</text>',
    ]
    for value in _ticks(*x_axis):
        x = _across(value, x_axis)
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke="#ddd"/>')
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{value:g}</text>')
    for value in _ticks(*y_axis):
        y = _up(value, y_axis)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    for i, (name, across, up) in enumerate(drawn):
        mark = _mark(i, _across(across, x_axis), _up(up, y_axis))
        parts.append(f"<g><title>{escape(name)}: best reward {across:.2f} %, gamma {up:.2f}</title>{mark}</g>")
        key = TOP + 10 + 20 * i
        parts.append(_mark(i, WIDTH - RIGHT + 20, key))
        parts.append(f'<text x="{WIDTH - RIGHT + 34}" y="{key + 4}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _axis(values: list[float]) -> tuple[float, float]:
    """A little more than the values span."""
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    room = 0.06 * (high - low) or 1.0
    return low - room, high + room


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers inside, about five of them."""
    step = 10.0 ** len(str(int((high - low) / 5))) / 10 if high - low >= 5 else 1.0
    while (high - low) / step > 6:
        step *= 2
    while (high - low) / step < 3:
        step /= 2
    first = -(-low // step)
    return [(first + k) * step for k in range(int((high - first * step) // step) + 1)]


def _across(value: float, axis: tuple[float, float]) -> float:
    return LEFT + (value - axis[0]) / (axis[1] - axis[0]) * (WIDTH - RIGHT - LEFT)


def _up(value: float, axis: tuple[float, float]) -> float:
    return HEIGHT - BOTTOM - (value - axis[0]) / (axis[1] - axis[0]) * (HEIGHT - BOTTOM - TOP)


def _mark(i: int, x: float, y: float) -> str:
    colour = COLOURS[i % len(COLOURS)]
    if i // len(COLOURS) % 2:
        return f'<rect x="{x - 5:.1f}" y="{y - 5:.1f}" width="10" height="10" fill="{colour}"/>'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" fill="{colour}"/>'
