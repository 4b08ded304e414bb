"""Tables in Markdown: numbers over seeds, with intervals and verdicts."""

from collections.abc import Sequence

from benchmarks.studies.measures import by_label
from fedsac.runs.comparison import Row, judgements
from fedsac.runs.labels import LABELS
from fedsac.runs.statistics import FIRST

HEAD = (
    *("method", "gamma last", "selected", "best", "attainable", "gamma*", "in BCF"),
    *("best reward last", "selected", "best", "global", "mean", "MCG", "CGS", "lose", "MB down"),
    *("gamma last: verdict", "best reward last: verdict"),
)
COLUMNS_EXPLAINED = """\
Means over seeds; in brackets the 95 % interval of the mean (t distribution), none where all seeds agree; k/n: the
number exists for k of n seeds; "-": it does not exist. gamma and the best reward are given at three labels: `last`
round; `selected`, the evaluated round with the highest gamma on validation data; `best`, the one with the highest gamma
on the test set, the paper's rule. Every other column is of the `last` round: *attainable*, the gamma that the best rule
reaches which knows contributions only as well as V tells; *gamma\\**, the highest gamma that BCF permits; *in BCF*, the
share of clients inside it (only the best contributor is exempt from the upper bound); *global*, the accuracy of the
common model, where there is one (the rewards of FedAvg and its kin are copies of it that were trained one epoch more on
the client's own data); *mean*, the mean reward; *MCG* and *CGS*, mean and spread of what clients gain over standing
alone; *lose*, how many clients end no better than alone; *MB down*, what the server sends in a round, mean over rounds.
"""
VERDICTS_EXPLAINED = """\
Verdicts, by paired t tests over the seeds with Holm's correction for the number of rivals, level .05: **first** is
significantly above every other method that has the number, **beaten** significantly below at least one, **undecided**
neither. Tests are not corrected for the number of cells or labels.
"""


def markdown(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table whose first column is text."""
    body = ["| " + " | ".join(line) + " |" for line in (head, *lines)]
    return "\n".join([body[0], "| --- " + "| ---: " * (len(head) - 1) + "|", *body[1:]])


def estimate(row: Row, key: str, digits: int, *, interval: bool = False) -> str:
    """The mean of a column over seeds, with its 95 % interval if wanted, and k/n where seeds lack the number."""
    mean, count, bounds = row.mean(key), row.count(key), row.interval(key)
    if mean is None:
        return "-"
    text = f"{mean:.{digits}f}"
    if interval and bounds is not None:
        text += f" [{bounds[0]:.{digits}f}, {bounds[1]:.{digits}f}]"
    return text if count == len(row.seeds) else f"{text} {count}/{len(row.seeds)}"


def cell_table(table: Sequence[Row]) -> str:
    """All methods of one cell; the `last` gammas and best rewards that are significantly first are bold."""
    at = {label: by_label(table, label) for label in LABELS}
    judged = {key: judgements(table, key, "last") for key in ("gamma", "max")}
    lines = []
    for method, last in at["last"].items():
        verdicts = {key: judged[key][method].verdict for key in judged}
        tested = {}
        for key, digits in (("gamma", 2), ("max", 4)):
            text = estimate(last, key, digits, interval=True)
            others = [estimate(at[label][method], key, digits) for label in ("selected", "best")]
            tested[key] = [f"**{text}**" if verdicts[key] == FIRST else text, *others]
        lines.append(
            [
                f"`{method}`",
                *tested["gamma"],
                *(estimate(last, key, 2) for key in ("gamma_attainable", "gamma_limit", "bcf")),
                *tested["max"],
                *(estimate(last, key, 4) for key in ("global", "mean", "gain", "gain_spread")),
                estimate(last, "losers", 1),
                estimate(last, "megabytes", 2),
                *(short(verdict) for verdict in verdicts.values()),
            ]
        )
    return markdown(HEAD, lines)


def short(verdict: str | None) -> str:
    return "-" if verdict is None else "first" if verdict == FIRST else verdict
