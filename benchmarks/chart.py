"""Draw docs/results/speed.svg and growth.svg from what the benchmarks `peers` and `growth` measured last:
`python -m benchmarks.chart`. The measured numbers are kept beside the pictures, so that they can be drawn again.
"""

import json
import math
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import growth
from benchmarks.peers import compare
from benchmarks.peers.compare import OURS
from fedsac.report.axes import tick_texts, ticks
from fedsac.report.charts import Series, lines
from fedsac.report.drawing import svg
from fedsac.report.shapes import Area, Drawing, Line, Text, box, text_width

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"
WIDTH, BAR, GAP, SMALL = 760.0, 18.0, 8.0, 12.0
HEAD, AFTER = 34.0, 150.0  # above a panel's bars; right of the longest one, for its text


def best(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each name the way of sharing the cores that took the least; ours first, then by time."""
    kept: dict[str, dict[str, Any]] = {}
    for row in sorted(rows, key=lambda row: statistics.median(row["seconds"])):
        kept.setdefault(row["name"], row)
    return sorted(kept.values(), key=lambda row: row["name"] != OURS)


def drawn(rows: list[dict[str, Any]]) -> Drawing:
    panels = {features: best([row for row in rows if row["features"] == features]) for features in _features(rows)}
    longest = max(max(row["seconds"]) for panel in panels.values() for row in panel)
    left = 20 + max(text_width(row["name"], SMALL) for panel in panels.values() for row in panel)
    scale = (WIDTH - left - AFTER) / longest
    height = sum(HEAD + len(panel) * (BAR + GAP) for panel in panels.values()) + 44
    said = "; ".join(f"{features} features: {_spoken(panel)}" for features, panel in panels.items())
    drawing = Drawing(WIDTH, height, "Seconds a round of FedAvg, ten clients of 2000 samples", said + ".")
    marks = ticks(0, longest)
    for mark, text in zip(marks, tick_texts(marks), strict=True):
        x = left + mark * scale
        drawing.add(Line(((x, 12), (x, height - 34)), "grid"), Text(x, height - 18, text, SMALL, "middle", "soft"))
    top = 0.0
    for features, panel in panels.items():
        drawing.add(Text(8, top + HEAD - 12, f"{features} features", SMALL, bold=True))
        top = _bars(drawing, panel, top + HEAD, left, scale)
    drawing.add(Text(8, height - 2, "Bars: median. Lines: from the fastest round to the slowest.", 11, colour="soft"))
    return drawing


def _features(rows: list[dict[str, Any]]) -> list[int]:
    return sorted({row["features"] for row in rows})


def _bars(drawing: Drawing, panel: list[dict[str, Any]], top: float, left: float, scale: float) -> float:
    """One bar for each row, and where the next panel begins."""
    ours = statistics.median(panel[0]["seconds"])
    for row in panel:
        median, low, high = (f(row["seconds"]) for f in (statistics.median, min, max))
        said = f"{median:.2f} s" if row["name"] == OURS else f"{median:.2f} s, {median / ours:.1f} times ours"
        middle, colour = top + BAR / 2, "blue" if row["name"] == OURS else "sky"
        tip = f"{row['name']} {row['version']}, {row['way']}: {said}"
        drawing.add(
            Text(left - 8, middle + 4, row["name"], SMALL, "end", bold=row["name"] == OURS),
            Area(box(left, top, median * scale, BAR), colour, tip=tip),
            Line(((left + low * scale, middle), (left + high * scale, middle)), "ink"),
            Text(left + max(high, median) * scale + 8, middle + 4, said, SMALL, colour="soft"),
        )
        top += BAR + GAP
    return top


def _spoken(panel: list[dict[str, Any]]) -> str:
    return ", ".join(f"{row['name']} {statistics.median(row['seconds']):.2f} s" for row in panel)


def curves(rows: list[dict[str, Any]]) -> Drawing:
    """Time against size, both as powers of ten: a cost that grows as its work does rises by one for every one."""
    names = dict.fromkeys(row["what"] for row in rows)
    series = [
        Series(
            name,
            tuple((math.log10(row["number"]), math.log10(row["seconds"])) for row in rows if row["what"] == name),
        )
        for name in names
    ]
    return lines("How time grows", series, "log10 of the number", "log10 of the seconds", direct=False)


def draw(name: str, source: Path, drawing: Callable[[list[dict[str, Any]]], Drawing]) -> None:
    kept = RESULTS / f"{name}.json"
    if source.exists():
        kept.write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    if not kept.exists():
        print(f"{name}: nothing has been measured yet")
        return
    (RESULTS / f"{name}.svg").write_text(svg(drawing(json.loads(kept.read_text(encoding="utf-8")))), encoding="utf-8")
    print(f"Drawn to {RESULTS / f'{name}.svg'}")


def main() -> None:
    draw("speed", compare.WRITTEN, drawn)
    draw("growth", growth.WRITTEN, curves)


if __name__ == "__main__":
    main()
