"""Draw docs/results/speed.svg from what `python -m benchmarks peers` measured: `python -m benchmarks.chart [FILE]`.

The file (.bench/speed.json by default) is kept beside the picture, so that it can be drawn again.
"""

import json
import shutil
import statistics
import sys
from pathlib import Path
from typing import Any

from benchmarks.peers.compare import OURS, WRITTEN
from fedsac.report.axes import tick_texts, ticks
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


def main() -> None:
    source = Path(sys.argv[1]) if len(sys.argv) > 1 else WRITTEN
    (RESULTS / "speed.svg").write_text(svg(drawn(json.loads(source.read_text()))), encoding="utf-8")
    if source.resolve() != RESULTS / "speed.json":
        shutil.copyfile(source, RESULTS / "speed.json")
    print(f"Drawn to {RESULTS / 'speed.svg'}")


if __name__ == "__main__":
    main()
