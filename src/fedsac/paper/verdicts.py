"""Claims as text: in how many cells they hold, and where they fail, for a terminal and in Markdown."""

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from fedsac.paper.claims import Claim
from fedsac.paper.printed import Column
from fedsac.paper.render import grid_lines
from fedsac.paper.tables import OTHER_BETA

LEGEND = (
    "best: at the round with the highest test gamma, the paper's rule; last: at the last round; peak: at the round with"
    " the highest such accuracy; fair: among the rounds "
    "with gamma above 95; mean: over all rounds; alone: clients that train alone. A cell counts where everything that "
    "the claim compares was run."
)


SIGNIFICANCE_LEGEND = (
    "In how many cells FedSAC (of the betas: the lowest) is significantly first, better than every other row; beaten, "
    "worse than at least one; or undecided. By paired t tests over the same seeds, corrected for the number of rivals "
    "by Holm, level .05."
)


def headline(quick: bool) -> str:
    return f"The paper's claims{' (quick)' if quick else ''}: in how many cells they hold"


def terminal_claims(claims: Sequence[Claim], *, quick: bool, failures: bool = False) -> RenderableType:
    """The claims that were tested, with counts; `failures`: also where they fail, with the numbers."""
    grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    grid.add_column("claim", ratio=1)
    grid.add_column("Table 9's beta", no_wrap=True)
    grid.add_column(OTHER_BETA, no_wrap=True)
    for claim in claims:
        if claim.tested:
            grid.add_row(_text(claim), *(_counts(claim, other_beta) for other_beta in (False, True)))
    parts: list[RenderableType] = [Text(headline(quick), style="bold"), grid, Text(LEGEND + "\n", style="dim")]
    if counted := _tested_over_seeds(claims):
        parts += [_significance_grid(counted), Text(SIGNIFICANCE_LEGEND + "\n", style="dim")]
    if failures:
        for text, cells in failing(claims):
            parts.append(Text(f"{text} fails in"))
            parts += [Padding(Text(f"{where}; {numbers}", style="dim"), (0, 0, 0, 2)) for where, numbers in cells]
    return Group(*parts)


def markdown_claims(claims: Sequence[Claim]) -> str:
    """The summary as a Markdown table: a line for each claim."""
    if not any(claim.tested for claim in claims):
        return "None could be tested: what they compare was not run."
    rows = [
        [_text(claim), *(", ".join(counts_text(claim, other_beta)) or "-" for other_beta in (False, True))]
        for claim in claims
        if claim.tested
    ]
    head = ["claim", "with Table 9's beta", f"with the {OTHER_BETA}"]
    lines = [*grid_lines(head, rows, left=3), "", LEGEND]
    if counted := _tested_over_seeds(claims):
        rows = [
            [_text(claim), *("; ".join(_significance_text(claim, other)) or "-" for other in (False, True))]
            for claim in counted
        ]
        lines += ["", *grid_lines(head, rows, left=3), "", SIGNIFICANCE_LEGEND]
    return "\n".join(lines)


def _tested_over_seeds(claims: Sequence[Claim]) -> list[Claim]:
    """The claims for which there are seeds enough to test whether a row is significantly first."""
    return [claim for claim in claims if any(any(claim.significance(label)) for label in claim.verdicts)]


def _significance_text(claim: Claim, other_beta: bool) -> list[str]:
    """Label by label: "best: 4 first, 2 beaten, 9 undecided"."""
    labels = claim.of_beta(other_beta)
    counts = {label: claim.significance(label, other_beta=other_beta) for label in labels}
    return ["{}: {} first, {} beaten, {} undecided".format(label, *three) for label, three in counts.items()]


def _significance_grid(claims: Sequence[Claim]) -> Grid:
    grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    grid.add_column("significantly first / beaten / undecided", ratio=1)
    for head in ("Table 9's beta", OTHER_BETA):
        grid.add_column(head, no_wrap=True)
    for claim in claims:
        cells = []
        for other_beta in (False, True):
            counts = {label: claim.significance(label, other_beta=other_beta) for label in claim.of_beta(other_beta)}
            cells.append("\n".join("{} {} / {} / {}".format(label, *three) for label, three in counts.items()) or "-")
        grid.add_row(_text(claim), *cells)
    return grid


def failing(claims: Sequence[Claim]) -> list[tuple[str, list[tuple[str, str]]]]:
    """For each claim that fails somewhere: the claim, and the cells where it does, each with its numbers."""
    failures = []
    for claim in claims:
        columns = dict.fromkeys(verdict.column for verdicts in claim.verdicts.values() for verdict in verdicts)
        cells: dict[Column, list[str]] = {column: [] for column in columns}
        for label in claim.verdicts:
            for other_beta in (False, True):
                for verdict in claim.failures(label, other_beta=other_beta):
                    where = f"{label}, {OTHER_BETA}" if other_beta else label
                    cells.setdefault(verdict.column, []).append(f"{where}: {verdict.numbers}")
        failed = [(str(column), "; ".join(numbers)) for column, numbers in cells.items() if numbers]
        if failed:
            failures.append((claim.text, failed))
    return failures


def _text(claim: Claim) -> str:
    run = max(len(verdicts) for verdicts in claim.verdicts.values())
    return claim.text + ("" if run == claim.cells else f" [{run} of {claim.cells} cells run]")


def counts_text(claim: Claim, other_beta: bool = False) -> list[str]:
    """In how many cells a claim holds, label by label: "best 2 of 3"."""
    labels = claim.of_beta(other_beta)
    return ["{} {} of {}".format(label, *claim.count(label, other_beta=other_beta)) for label in labels]


def _counts(claim: Claim, other_beta: bool) -> Text:
    lines = []
    for label, text in zip(claim.of_beta(other_beta), counts_text(claim, other_beta), strict=True):
        holding, tested = claim.count(label, other_beta=other_beta)
        lines.append(Text(text, style="green" if holding == tested else "red" if holding == 0 else "yellow"))
    return Text("\n").join(lines) if lines else Text("-")
