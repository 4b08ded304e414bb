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
    return "\n".join(
        [*grid_lines(["claim", "with Table 9's beta", f"with the {OTHER_BETA}"], rows, left=3), "", LEGEND]
    )


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
