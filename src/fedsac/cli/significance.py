"""The second table of `fedsac compare`: means with 95 % intervals, and which method is significantly first."""

from collections.abc import Sequence
from typing import Any

SHORT = {"significantly first": "first"}


def show_statistics(rows: Sequence[Any], label: str) -> None:
    """Print the table; in two parts where a terminal is too narrow for one."""
    from rich.console import Console
    from rich.measure import Measurement

    from fedsac.report.significance import VERDICTS_EXPLAINED, of_splits
    from fedsac.runs.comparison import TESTED

    shown = [row for row in rows if row.label == label]
    console = Console(highlight=False, markup=False, emoji=False)
    if all(len(row.seeds) < 2 for row in shown):
        print("One seed says nothing about chance: intervals and tests need --seeds 2 at least, claims ten or so.")
        return
    whole = _view(shown, label, TESTED)
    needed = Measurement.get(console, console.options.update_width(1000), whole).maximum
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, emoji=False, width=max(console.width, needed))
    for view in [whole] if needed <= console.width else [_view(shown, label, (key,)) for key in TESTED]:
        console.print(view)
    text = (
        "In brackets the 95 % interval of the mean over seeds (t distribution); k/n: the number exists for k of n "
        f"seeds. {VERDICTS_EXPLAINED}; results.json has every pair. {of_splits(shown)}"
    )
    console.print(text, style="dim")


def _view(rows: Sequence[Any], label: str, keys: Sequence[str]) -> Any:
    from rich.table import Table
    from rich.text import Text

    from fedsac.runs.comparison import COLUMNS, judgements, subject

    count = max(len(row.seeds) for row in rows)
    view = Table(title=f"{label} round, {count} seeds: mean, 95 % interval, and which is significantly first")
    view.add_column(subject(rows), no_wrap=True)
    columns = {key: (heading, digits) for key, heading, digits, _ in COLUMNS}
    for key in keys:
        view.add_column(columns[key][0], justify="right", no_wrap=True)
        view.add_column("verdict", no_wrap=True)
    judged = {key: judgements(rows, key, label) for key in keys}
    for row in rows:
        cells = []
        for key in keys:
            verdict = judged[key][row.method].verdict or "-"
            style = "bold" if verdict in SHORT else ""
            cells += [Text(_estimate(row, key, columns[key][1]), style=style), Text(SHORT.get(verdict, verdict), style)]
        view.add_row(row.method, *cells)
    return view


def _estimate(row: Any, key: str, digits: int) -> str:
    mean, interval, count = row.mean(key), row.interval(key), row.count(key)
    if mean is None:
        return "-"
    text = f"{mean:.{digits}f}"
    if interval is not None:
        text += " [{:.{d}f}, {:.{d}f}]".format(*interval, d=digits)
    return text if count == len(row.seeds) else f"{text} {count}/{len(row.seeds)}"
