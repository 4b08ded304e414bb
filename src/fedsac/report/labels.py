"""Names beside points: the best has one in any case, none covers another, and one that stands apart is tied to its
point."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from itertools import product

from fedsac.report.axes import SMALL, WIDER, Frame
from fedsac.report.shapes import Line, Shape, Text, fitted, text_width

Box = tuple[float, float, float, float]
Named = tuple[float, float, str]  # a place and the name that belongs there
Attempt = tuple[list[Shape], int]  # what to draw, and how many points stay unnamed
Write = Callable[[Named, str], bool]  # writes a name with that anchor, if there is room

MAX_TIED = 24  # of more points, only those that stand out have a name further off: ties would cover the chart
CROWD_PIXELS = 30.0  # within which two neighbours are a crowd
LONGEST_PIXELS = 110.0  # of a name
# Where a name may stand beside its point: right, left, above, below, and the corners.
BESIDE = (
    *((9, 4, "start"), (-9, 4, "end"), (0, -10.5, "middle"), (0, 18.5, "middle")),
    *((7, -7.5, "start"), (7, 15.5, "start"), (-7, -7.5, "end"), (-7, 15.5, "end")),
)
TIE_PIXELS = (20, 30, 42, 56, 72, 90, 110, 135, 160)  # lengths of ties that are tried
TIE_ANGLES = tuple(
    math.radians(angle)
    for angle in (
        *(-30, -150, 30, 150, -60, -120, 60, 120, -90, 90),
        *(-15, -165, 15, 165, -45, -135, 45, 135, -75, -105, 75, 105),
    )
)


def place_labels(frame: Frame, points: Sequence[Named]) -> int:
    """Write names beside points (in pixels), beginning with those that stand out. A name without room there stands
    further off, tied to its point by a thin line. Returns how many points stay unnamed."""
    order = sorted(points, key=lambda point: (point[1], -point[0]))
    standing_out = {order[0], order[-1], max(order), min(order)} if order else set()
    order.sort(key=lambda point: point not in standing_out)
    if len(points) > MAX_TIED:
        best = _attempt(frame, order, standing_out, 30)
    else:
        # Names close to the points of a crowd wall in the others: it is tried how far off they should begin.
        tried = (_attempt(frame, order, set(order), least) for least in (30, 56, 90))
        best = min(_until_all_are_named(tried), key=lambda attempt: attempt[1])
    frame.drawing.add(*best[0])
    return best[1]


def _until_all_are_named(attempts: Iterable[Attempt]) -> Iterator[Attempt]:
    for attempt in attempts:
        yield attempt
        if attempt[1] == 0:
            return


def _attempt(frame: Frame, points: Sequence[Named], tied: Set[Named], least: float) -> Attempt:
    """Names in this order, those in `tied` at any distance; in a crowd, ties of the length `least` are tried first."""
    taken, ties = _Taken(), _Taken()  # ties may cross each other, but nothing else
    for x, y, _ in points:
        taken.add((x - 6, y - 6, x + 6, y + 6))
    shapes: list[Shape] = []

    def write(at: Named, anchor: str) -> bool:
        return _write(frame, shapes, (taken, ties), at, anchor)

    unnamed = 0
    for point in points:
        others = [other for other in points if other[:2] != point[:2]] if len(points) <= MAX_TIED else []
        crowded = point in tied and sum(math.dist(point[:2], other[:2]) < CROWD_PIXELS for other in points) > 2
        unnamed += not (
            (not crowded and _beside(write, point, others))
            or (point in tied and _tied(shapes, write, taken, ties, point, least if crowded else 0))
            or (crowded and _beside(write, point, others))
        )
    return shapes, unnamed


def _beside(write: Write, point: Named, others: Sequence[Named]) -> bool:
    """Whether there was room beside the point, and nearer to it than to any of the others."""
    x, y, name = point
    for dx, dy, anchor in BESIDE:
        at = (x + dx, y + dy, name)
        place = _box(at, anchor)
        if all(_away(place, point) + 1 < _away(place, other) for other in others) and write(at, anchor):
            return True
    return False


def _away(place: Box, point: Named) -> float:
    """How far a point is from a box."""
    x, y, _ = point
    return math.hypot(max(place[0] - x, x - place[2], 0), max(place[1] - y, y - place[3], 0))


def _box(at: Named, anchor: str) -> Box:
    """What a name there covers."""
    x, y, name = at
    width = WIDER * text_width(fitted(name, SMALL, LONGEST_PIXELS), SMALL)
    left = x - {"start": 0, "middle": 0.5, "end": 1}[anchor] * width
    return left, y - 9.5, left + width, y + 1.5


def _tied(shapes: list[Shape], write: Write, taken: "_Taken", ties: "_Taken", point: Named, least: float) -> bool:
    """Ties of the length `least` and more are tried before shorter ones."""
    x, y, name = point
    for length, angle in product(sorted(TIE_PIXELS, key=lambda length: length < least), TIE_ANGLES):
        across, down = math.cos(angle), math.sin(angle)
        steps = [9 + 3 * k for k in range(int((length - 9) / 3) + 1)]
        path = [(x + s * across - 1, y + s * down - 1, x + s * across + 1, y + s * down + 1) for s in steps]
        if any(taken.meets(place) for place in path[2:]):  # the first steps lead out of a crowd's marks
            continue
        end = (x + length * across, y + length * down)
        anchor = "middle" if abs(across) < 0.1 else "start" if across > 0 else "end"
        aside = 0 if anchor == "middle" else math.copysign(3, across)
        below = 4.0 if aside else 13.0 if down > 0 else -3.0
        if write((end[0] + aside, end[1] + below, name), anchor):
            for place in path:
                ties.add(place)
            shapes.append(Line(((x + 6 * across, y + 6 * down), end), "soft", 0.8))
            return True
    return False


def _write(frame: Frame, shapes: list[Shape], occupied: tuple["_Taken", "_Taken"], at: Named, anchor: str) -> bool:
    """Write a name there, unless it would leave the frame or cover something."""
    place = left, top, right, bottom = _box(at, anchor)
    inside = left >= frame.left + 2 and right <= frame.right and top >= frame.top and bottom <= frame.bottom
    if not inside or any(taken.meets(place) for taken in occupied):
        return False
    occupied[0].add(place)
    shapes.append(Text(at[0], at[1], fitted(at[2], SMALL, LONGEST_PIXELS), SMALL, anchor, "soft"))
    return True


class _Taken:
    """Boxes that are occupied, indexed by the squares of a grid that they touch: with thousands of points, a new box
    must not be compared with all others."""

    SQUARE_PIXELS = 32

    def __init__(self) -> None:
        self._squares: dict[tuple[int, int], list[Box]] = defaultdict(list)

    def add(self, place: Box) -> None:
        for square in self._touched(place):
            self._squares[square].append(place)

    def meets(self, a: Box) -> bool:
        near = (b for square in self._touched(a) for b in self._squares.get(square, ()))
        return any(a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3] for b in near)

    def _touched(self, place: Box) -> Iterator[tuple[int, int]]:
        left, top, right, bottom = (int(side // self.SQUARE_PIXELS) for side in place)
        return product(range(left, right + 1), range(top, bottom + 1))
