"""Which method is significantly first, for the page about several runs and for `fedsac compare`: 95 % intervals of the
means, and paired tests of methods that ran on the same data with the same seeds."""

from collections.abc import Sequence

from fedsac.report.markup import Cell, number, signed, table
from fedsac.runs.comparison import Row, judgements, subject
from fedsac.runs.statistics import Difference, Judgement

SHOWN = {"gamma": ("gamma", 1, 2), "max": ("best reward in %", 100, 2)}  # heading, factor and digits

VERDICTS_EXPLAINED = (
    "first: significantly above every other; beaten: significantly below at least one; undecided: neither. By "
    "paired t tests over the same seeds, corrected for the number of rivals by Holm, level .05"
)
PAGE_EXPLAINED = (
    "Intervals are 95 % intervals of the mean over seeds, or of the mean difference (t distribution); there is none "
    f"where all seeds agree. {VERDICTS_EXPLAINED}. Best rival: the one that is best against the method on the seeds "
    "that both have the number for; the difference is the method's number less the rival's. Its interval is of this "
    "pair alone, p is corrected."
)


def of_splits(rows: Sequence[Row]) -> str:
    """What the seeds stand for: new trainings on one split, or on a new split each."""
    if len({split for row in rows for _, split in row.seeds}) == 1:
        return "All seeds share one split: other splits may give another order."
    return "Every seed draws its own split (one for all: --split-seed)."


def significance_tables(rows: Sequence[Row], label: str) -> str:
    """A table for each tested column: means with intervals, verdicts, and the difference to the best rival."""
    return "".join(_table(rows, key, label) for key in SHOWN)


def _table(rows: Sequence[Row], key: str, label: str) -> str:
    heading, factor, digits = SHOWN[key]
    judged = judgements(rows, key, label)
    made: list[list[Cell | str]] = []
    for row in (row for row in rows if row.label == label):
        own, mean = judged[row.method], row.mean(key)
        estimate = [number(None if mean is None else factor * mean, digits), _span(row.interval(key), factor, digits)]
        made.append([row.method, number(row.count(key), 0), *estimate, _verdict(own), *_rival(own, factor, digits)])
    heads = (subject(rows), "seeds", heading, "95 %", "verdict", "best rival", "difference", "95 %", "p")
    return table(f"{heading}, {label}: which {subject(rows)} is significantly first", heads, made)


def _verdict(own: Judgement) -> str:
    names = own.beaten_by
    return f"beaten by {', '.join(names)}" if names else own.verdict or "-"


def _rival(own: Judgement, factor: float, digits: int) -> list[Cell | str]:
    best: Difference | None = own.best_rival
    if best is None or best.mean is None:
        return ["-", number(None), number(None), number(None)]
    return [best.rival, signed(factor * best.mean, digits), _span(best.interval, factor, digits), _p(best.p_holm)]


def _p(value: float | None) -> Cell:
    return Cell("<0.001", value) if value is not None and value < 0.001 else number(value, 3)


def _span(interval: tuple[float, float] | None, factor: float, digits: int) -> Cell:
    if interval is None:
        return number(None)
    low, high = (factor * end for end in interval)
    return Cell(f"{low:.{digits}f} to {high:.{digits}f}", low)
