"""What a page says first: what looks wrong with the data, and rounds in which nobody's answer counted."""

from collections.abc import Sequence

from fedsac.report.markup import paragraph
from fedsac.report.reading import Run


def warned(runs: Sequence[Run]) -> list[str]:
    """Paragraphs with all that was warned of, each once."""
    said = list(dict.fromkeys(line for run in runs for line in run.warnings))
    for run in runs:
        empty = sum(not record["answered"] for record in run.records)
        if empty:
            of = "" if len(runs) == 1 else f"{run.name}: "
            said.append(
                f"{of}in {empty} of {len(run.records)} rounds nobody's answer counted: the model stayed as it was"
            )
    return [paragraph(f"Warning: {line}", "badge") for line in said]
