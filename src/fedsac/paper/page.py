"""The page of results: what was run, the paper's claims and how they hold, every table, figures, theorems.

All of it is generated from the results but one part: `account.md` in the same folder is written by a person and is
included unchanged, so that generating the page again never loses it.
"""

from collections.abc import Sequence
from pathlib import Path

from fedsac.atomic import write_atomic
from fedsac.config import RULES
from fedsac.paper.cells import Table, span
from fedsac.paper.claims import Claim, claims
from fedsac.paper.facts import distances, not_first, plateau
from fedsac.paper.gains import gains, gains_markdown, write_gains
from fedsac.paper.printed import TABLES
from fedsac.paper.render import grid_lines, markdown, write_csv
from fedsac.paper.results import Results
from fedsac.paper.tables import contradictions, tables
from fedsac.paper.verdicts import counts_text, failing, headline, markdown_claims

ACCOUNT = "account.md"
COMPARED = ("table1", "table2", "table5", "table6")  # whose distances from the paper are listed, method by method


def write_page(
    results: Results, figures: Sequence[tuple[str, str]], theorems_markdown: str | None, folder: Path
) -> Path:
    """Write README.md and a CSV file for each table into `folder`; figures are (name, path relative to it)."""
    folder.mkdir(parents=True, exist_ok=True)
    ours = [table for table in tables(results) if not table.empty or table.name == "table9"]
    for table in ours:
        write_csv(table, folder / f"{table.name}.csv")
    if gained := gains(results):
        write_gains(gained, folder / "gains.csv")
    account = folder / ACCOUNT
    written = account.read_text(encoding="utf-8").strip() if account.exists() else ""
    text = page(results, ours, claims(results), figures, theorems_markdown, written)
    path = folder / "README.md"
    write_atomic(path, text.encode())
    return path


def page(
    results: Results,
    ours: Sequence[Table],
    claimed: Sequence[Claim],
    figures: Sequence[tuple[str, str]],
    theorems: str | None,
    account: str,
) -> str:
    """The page as text."""
    quick = bool(results.made.get("quick"))
    mark = " (quick)" if quick else ""
    parts = [
        f"# The paper's tables and figures, ours beside the printed ones{mark}",
        how_made(results),
        f"## {headline(quick)}",
        markdown_claims(claimed),
        _not_run(ours),
        *(f"{markdown(table).rstrip()}\n\nAs a file: [{table.name}.csv]({table.name}.csv)" for table in ours),
    ]
    if gained := gains(results):
        parts.append(gains_markdown(gained, mark))
    if figures:
        parts += [f"## Figures{mark}", *(f"### {name}{mark}\n\n![{name}]({path})" for name, path in figures)]
    if theorems:
        parts += [f"## Theorems{mark}", theorems.strip()]
    parts += [f"## What reproduces, what does not, and why{mark}", *facts(results, ours, claimed, mark)]
    if account:
        parts += [account]
    return "\n\n".join(part for part in parts if part) + "\n"


def _not_run(ours: Sequence[Table]) -> str:
    run = {table.name for table in ours if not table.empty}
    missing = [name.removeprefix("table") for name in TABLES if name not in run]
    return f"Not run: Table {', '.join(missing)}." if missing else ""


def how_made(results: Results) -> str:
    """How the results were made."""
    runs, how = results.runs, dict(results.made)
    if not runs:
        return "Nothing was run."
    lines = []
    if how.pop("quick", False):
        lines.append("- **quick: fewer seeds and rounds than the paper's experiments; not a reproduction**")
    if how.get("rules", RULES) != RULES:
        lines.append(
            f"- **runs under rules {how['rules']}, where this fedsac has rules {RULES}: CFFL and w/o aggregation do "
            "something else today (docs/decisions.md); shares inside BCF are by the present definition**"
        )
    seeds = sorted({run.seed for run in runs})
    rounds, methods = sorted({run.rounds for run in runs}), len({run.method for run in runs})
    cells = len({(run.data, run.clients, run.scene) for run in runs})
    lines.append(f"- runs: {len(runs)}, of {methods} methods in {cells} combinations of data, clients and scene")
    lines.append(f"- seeds: {', '.join(map(str, seeds))}; {span(rounds, 'round')}")
    if "command" in how:
        lines.append(f"- command: `{how.pop('command')}`")
    lines += [
        f"- {name}: {value:.0f}" if isinstance(value, float) else f"- {name}: {value}" for name, value in how.items()
    ]
    return "\n".join(lines)


def facts(results: Results, ours: Sequence[Table], claimed: Sequence[Claim], mark: str) -> list[str]:
    """The parts of the page that count: where claims hold and fail, ranks, distances, contradictions, convergence."""
    parts = ["With Table 9's beta, the claims hold", _by_outcome(claimed)]
    if fails := failing(claimed):
        parts.append(f"### Where claims fail{mark}")
        for text, cells in fails:
            parts.append(
                "\n".join([f"**{text}** fails in", "", *(f"- {where}; {numbers}" for where, numbers in cells)])
            )
    ranked = [table for table in ours if table.better and not table.empty]
    if ranked:
        rows = [[_number(table), *_moved(table)] for table in ranked]
        head = ["", "by the paper's rule", "last round"]
        parts += [f"### Cells whose rank in their column is not the paper's{mark}", "\n".join(grid_lines(head, rows))]
    for table in ranked:
        if table.name in COMPARED:
            parts += [
                f"### Distance from the printed numbers: {_number(table)}, {table.title}{mark}",
                _distances(table),
            ]
    wrong = [f"- {line}" for line in (*contradictions(), *not_first())]
    parts += [f"### Where the paper contradicts itself{mark}", "\n".join(wrong)]
    parts += [f"### Had training settled?{mark}", _plateau(results)]
    return parts


def _by_outcome(claimed: Sequence[Claim]) -> str:
    outcomes: dict[str, list[str]] = {"in every cell that was run": [], "in some cells": [], "in none": []}
    for claim in claimed:
        counts = [claim.count(label) for label in claim.verdicts]
        holding, tested = sum(k for k, _ in counts), sum(n for _, n in counts)
        if tested:
            outcome = "in every cell that was run" if holding == tested else "in some cells" if holding else "in none"
            outcomes[outcome].append(f"  - {claim.text}: {', '.join(counts_text(claim))}")
    return "\n".join(line for outcome, lines in outcomes.items() if lines for line in (f"- {outcome}:", *lines))


def _number(table: Table) -> str:
    return f"Table {table.name.removeprefix('table')}"


def _moved(table: Table) -> list[str]:
    first, *_ = table.labels
    return ["{} of {}".format(*table.moved(label)) for label in (first, "last")]


def _distances(table: Table) -> str:
    rows = [
        [d.name, d.label, f"{d.within} of {d.cells}", f"{d.mean:.2f}", f"{d.largest:.2f}"] for d in distances(table)
    ]
    head = ["", "", "within 3 points", "mean distance", "largest"]
    return "\n".join(grid_lines(head, rows, left=2))


def _plateau(results: Results) -> str:
    rows = [[s.name, f"{s.settled} of {s.runs}", f"{s.quarter:+.4f}", f"{s.half:+.4f}"] for s in plateau(results)]
    head = ["", "settled", "rise over the last quarter, median", "over the second half"]
    text = (
        "The paper does not say how many rounds were run. The mean reward on V, which nothing was chosen by, tells "
        "whether these were enough. Settled: the last quarter of the rounds added at most .005 to it."
    )
    return "\n".join([text, "", *grid_lines(head, rows)])
