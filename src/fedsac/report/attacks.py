"""The page about a study of attacks: a table of everything, and for each attack a picture."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedsac.core.metrics import display_name
from fedsac.doors import ATTACKS
from fedsac.errors import FedsacError
from fedsac.report.charts import bars
from fedsac.report.markup import Cell, Figure, document, figure, number, paragraph, section, signed, table
from fedsac.runs.attack_table import COLUMNS, EXPLAINED, Row, read_rows, said_of_wrecks

SHOWN = (
    ("gain", "adversary's gain"),
    ("best_loss", "loss of the best honest reward"),
    ("mean_loss", "mean honest loss"),
)


def read(folder: Path) -> dict[str, Any]:
    """What a finished study has found."""
    try:
        found: dict[str, Any] = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise FedsacError(
            f"{folder}: this study has no results yet; go on with fedsac attack --resume {folder}"
        ) from None
    return found


def page(folder: Path) -> tuple[str, list[Figure]]:
    """The page, and the figures on it: one for each attack."""
    results = read(folder)
    rows = read_rows(results)
    drawn = [_figure(attack, [row for row in rows if row.attack == attack]) for attack in _attacks(rows)]
    title = f"Attacks on {results['data']}, {results['scene'] or 'pow'}"
    count = len(results["seeds"])
    subtitle = (
        f"{results['rounds']} rounds, {count} seed{'s' if count > 1 else ''}, last round, scored by "
        f"{display_name(results['metric'])}"
    )
    wrecks = [paragraph(text, "note") for text in said_of_wrecks(rows)]
    parts = [section("Every attack", _table("Every attack", rows, named=True), paragraph(EXPLAINED, "note"), *wrecks)]
    for attack, shown in zip(_attacks(rows), drawn, strict=True):
        own = [row for row in rows if row.attack == attack]
        parts.append(section(attack, paragraph(_what(attack)), figure(shown), _table(attack, own)))
    return document(title, subtitle, "".join(parts)), drawn


def _attacks(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row.attack for row in rows))


def _what(attack: str) -> str:
    """An attack in a line."""
    name, _, who = attack.partition("@")
    entry = ATTACKS.entries.get(ATTACKS.parse(name)[0])
    said = (
        "an attack of one's own" if entry is None else entry.what + (f" ({entry.citation})" if entry.citation else "")
    )
    return f"{said[0].upper()}{said[1:]}." + (f" Hostile: {who}." if who else "")


def _figure(attack: str, rows: Sequence[Row]) -> Figure:
    values = {heading: [_points(row.mean(key)) for row in rows] for key, heading in SHOWN}
    # Where every seed was wrecked there is no number, and no bar: that is worse than any.
    names = [f"{row.method} (wrecked)" if row.mean("gain") is None else row.method for row in rows]
    drawing = bars(f"{attack}: gain and honest loss", names, values, "points")
    name = attack.replace("@", "-by-").replace(":", "-").replace(",", "-")
    return Figure(f"attack-{name}", drawing, "Means over seeds at the last round, in points.")


def _points(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _table(caption: str, rows: Sequence[Row], *, named: bool = False) -> str:
    """The rows as a table; `named`: with the attack's name in each."""
    made: list[list[Cell | str]] = []
    for row in rows:
        cells: list[Cell | str] = [row.attack, row.method] if named else [row.method]
        for key, _, factor, digits in COLUMNS:
            mean = row.mean(key)
            ends = row.interval(key)
            cell = number(None if mean is None else factor * mean, digits)
            if mean is not None and key in ("gain", "best_loss", "mean_loss"):
                cell = Cell(signed(factor * mean, digits).shown, factor * mean)
            if ends is not None and key == "gain":
                tone = "bad" if ends[0] > 0 else ""  # the attack pays
                shown = f"{cell.shown} [{factor * ends[0]:.{digits}f}, {factor * ends[1]:.{digits}f}]"
                cell = Cell(shown, cell.value, tone)
            cells.append(cell)
        made.append(cells)
    heads = ("attack", "method") if named else ("method",)
    return table(caption, (*heads, *(heading for _, heading, _, _ in COLUMNS)), made)
