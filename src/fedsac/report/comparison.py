"""The content of the page about several runs: methods, and other settings that differ, with means over seeds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from fedsac.errors import FedsacError
from fedsac.report import sweep
from fedsac.report.axes import WIDTH
from fedsac.report.charts import MAX_KEYS, Series, clients_by_method, lines, scatter
from fedsac.report.markup import Cell, Figure, figure, grid, number, paragraph, section, table
from fedsac.report.reading import Run, settings
from fedsac.report.shapes import Drawing
from fedsac.report.significance import PAGE_EXPLAINED, of_splits, significance_tables
from fedsac.report.warned import warned
from fedsac.runs.comparison import COLUMNS as MEASURED
from fedsac.runs.comparison import ONLY_LAST, Row, measured, only_last, seeds_of, subject
from fedsac.runs.labels import LABELS

# Columns of fedsac.runs.comparison that are shown: key, heading, factor and digits.
COLUMNS = (
    ("gamma", "gamma", 1, 2),
    ("gamma_limit", "gamma*", 1, 2),
    ("gamma_attainable", "attain.", 1, 2),
    ("bcf", "BCF %", 100, 0),
    ("alpha_bcf", "aBCF %", 100, 0),
    ("max", "best %", 100, 2),
    ("mean", "mean %", 100, 2),
    ("min", "min %", 100, 2),
    ("gain", "MCG", 100, 1),
    ("gain_spread", "CGS", 100, 1),
    ("losers", "lose", 1, 1),
    ("global", "global %", 100, 2),
    ("megabytes", "MB down", 1, 2),
)
# Settings that say what is learned from which data: runs that differ in one of them are not tested against each other.
SAME_PROBLEM = (
    *("data", "scene", "clients", "share", "samples_per_client", "split_seed", "label", "schema"),
    *("contribution", "contributions", "standalone_checkpoints"),  # gamma is taken with them
)
NOT_COMPARED = ("seed", "threads", "device", "data_dir")  # settings in which runs of one group may differ
SHOWN_BARE = ("method", "data", "scene")  # settings shown as their value alone, without the setting's name


EXPLAINED = (
    "Means over seeds, with the deviation where there is more than one. last: the last round. selected: the round "
    "chosen on validation data. best: the round with the highest gamma on the test set, the paper's rule, which is "
    "optimistic. gamma is 100 times the correlation of contributions and rewards, gamma* the most that BCF permits, "
    "attain. what the best rule reaches when contributions are only known as the method knows them, from V; "
    "BCF, aBCF: clients inside bounded collaborative fairness and alpha-BCF, FedRAC's bound; best, mean, min: of the "
    "rewards; MCG, mean collaboration gain, and CGS, collaboration gain spread: mean and standard deviation of reward "
    "less contribution over the clients, in points of a hundred; lose: clients no better off than alone; global: the "
    "common model; MB down: a round, all clients."
)


class Point(Protocol):
    """A row of a comparison: a method at a label, with its values over seeds."""

    @property
    def method(self) -> str: ...

    @property
    def label(self) -> str: ...

    def mean(self, key: str) -> float | None: ...

    def deviation(self, key: str) -> float | None: ...


def fairness_accuracy(rows: Sequence[Point], title: str, metric: str = "accuracy", label: str = "last") -> Drawing:
    """Best reward (across) and gamma (up) of each method at one label; the upper right corner is where one wants to be.
    Methods whose gamma does not exist are left out."""
    series = []
    for row in (row for row in rows if row.label == label):
        x, y = row.mean("max"), row.mean("gamma")
        points = () if x is None or y is None else ((100 * x, y),)
        series.append(Series(row.method, points, labels=(row.method,)))
    return scatter(f"{title}: fairness against {metric} ({label})", series, f"best reward, {metric} (%)", "gamma")


@dataclass(frozen=True)
class Group:
    """Runs that differ in their seeds only; the name has the settings in which groups differ, `varied` their values
    where all groups are of one method."""

    name: str
    runs: tuple[Run, ...]
    varied: dict[str, str]


def grouped(runs: Sequence[Run]) -> list[Group]:
    """Groups in the order of the runs; a name has every setting that is not the same everywhere, the method first, or
    the method alone if nothing differs."""
    by_settings: dict[tuple[tuple[str, str], ...], list[Run]] = {}
    for run in runs:
        key = tuple((name, value) for name, value, _ in settings(run.config) if name not in NOT_COMPARED)
        by_settings.setdefault(key, []).append(run)
    differ = [names[0] for names in zip(*by_settings, strict=True) if len(set(names)) > 1]
    named = {name for name, _ in differ} or {"method"}
    groups = []
    for key, members in by_settings.items():
        parts = sorted(key, key=lambda pair: pair[0] != "method")  # the method first, then in the order of `Config`
        shown = [value if name in SHOWN_BARE else f"{name} {value}" for name, value in parts if name in named]
        varied = {} if "method" in named else {name: value for name, value in parts if name in named}
        groups.append(Group(", ".join(shown), tuple(members), varied))
    return groups


def table_rows(groups: Sequence[Group]) -> list[Row]:
    """The rows as in `fedsac compare`: for each group and label the values of all its runs."""
    rows = []
    for group in groups:
        seeds = [seeds_of(run.config) for run in group.runs]
        for label in LABELS:
            each = [measured(run, label) for run in group.runs]
            values = {key: [one[key] for one in each] for key, *_ in MEASURED}
            rows.append(Row(group.name, label, values, seeds, dict(group.varied)))
    return rows


def rival_groups(groups: Sequence[Group]) -> list[list[Group]]:
    """The groups that can be tested against each other: on the same data, and more than one."""
    problems: dict[tuple[object, ...], list[Group]] = {}
    for group in groups:
        config = group.runs[0].config
        problems.setdefault(tuple(getattr(config, name) for name in SAME_PROBLEM), []).append(group)
    return [rivals for rivals in problems.values() if len(rivals) > 1]


def where(runs: Sequence[Run]) -> str:
    """The data set and scene that all runs share."""
    data, scenes = {run.data for run in runs}, {run.config.scene for run in runs} - {"silos"}
    shared = [*(data if len(data) == 1 else ()), *(s for s in (scenes if len(scenes) == 1 else ()) if s)]
    return ", ".join(shared) or "several data sets"


def check_metrics(runs: Sequence[Run]) -> None:
    """Refuse runs of several metrics: their scores would stand in one table, and be averaged, as if they were alike."""
    first = runs[0]
    for run in runs:
        if run.config.metric != first.config.metric:
            raise FedsacError(
                f"{first.name} is scored by {first.metric} and {run.name} by {run.metric}, which cannot be compared; "
                "make a page of the runs of each metric"
            )


def subtitle(runs: Sequence[Run]) -> str:
    seeds, count = {run.config.seed for run in runs}, len(runs)
    counted = f"{count} runs, seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, sorted(seeds)))}"
    methods = {run.config.method for run in runs}
    return f"{methods.pop() + ', ' if len(methods) == 1 else ''}{counted}, scored by {runs[0].metric}"


def figures(runs: Sequence[Run]) -> list[Figure]:
    groups, about = grouped(runs), where(runs)
    made = [
        Figure(
            "fairness-accuracy",
            fairness_accuracy(table_rows(groups), about, runs[0].metric),
            "Means over seeds at the last round. The upper right corner is where one wants to be; a method that pays "
            "everyone the same has no gamma and no point here.",
        )
    ]
    at_last = [row for row in table_rows(groups) if row.label == "last"]
    made += sweep.figures([group.runs[0].config for group in groups], at_last)
    if same_clients(runs):
        caption = "Clients by their contribution; means over seeds, last round."
        narrow = _clients(groups)
        many = len(groups) > MAX_KEYS
        drawing = _clients(groups, 2 * WIDTH) if many else narrow
        made.append(Figure("clients", drawing, caption, narrow if many else None))
    for name, key, scale, label in (("gamma-rounds", "gamma", 1, "gamma"), ("bcf-rounds", "bcf", 100, "% of clients")):
        heading = "gamma over the rounds" if key == "gamma" else "Clients inside BCF over the rounds"
        series = [_over_rounds(group, key, scale) for group in groups]
        drawing = lines(heading, series, "round", label, direct=False)
        made.append(Figure(name, drawing, "Means over seeds, where all of them have the number."))
    return made


def same_clients(runs: Sequence[Run]) -> bool:
    return len({(run.config.data, run.config.scene, run.clients) for run in runs}) == 1


def _clients(groups: Sequence[Group], width: float = WIDTH) -> Drawing:
    runs = [run for group in groups for run in group.runs]
    names = runs[0].clients
    alone = _means([run.contributions.test for run in runs])
    own = {group.name: _means([run.contributions.test for run in group.runs]) for group in groups}
    paid = {group.name: _means([run.last["rewards"] for run in group.runs]) for group in groups}
    differ = len({tuple(each) for each in own.values()}) > 1  # as in a sweep of what clients train alone with
    title = f"Reward of each client by {', '.join(groups[0].varied) or 'method'}"
    return clients_by_method(title, names, alone, paid, f"{runs[0].score} (%)", width, own if differ else None)


def _means(each: Sequence[Sequence[float]]) -> list[float]:
    """The mean of every client, in percent."""
    return [100 * sum(values) / len(each) for values in zip(*each, strict=True)]


def _over_rounds(group: Group, key: str, scale: float) -> Series:
    curves = [{r["round"]: r[key] for r in run.evaluated} for run in group.runs]
    shared = sorted(set.intersection(*(set(curve) for curve in curves)))
    whole = [t for t in shared if all(curve[t] is not None for curve in curves)]
    points = tuple((t, scale * sum(curve[t] for curve in curves) / len(curves)) for t in whole)
    return Series(group.name, points, gaps=tuple(t for t in shared if t not in whole))


def body(runs: Sequence[Run], drawn: Sequence[Figure]) -> str:
    groups = grouped(runs)
    rows = table_rows(groups)
    parts = []
    if late := [run.name for run in runs if not run.finished]:
        parts.append(paragraph(f"Unfinished, and shown as far as they are: {', '.join(late)}.", "badge"))
    parts += warned(runs)
    said = f"Contributions and rewards are {runs[0].metric}. {EXPLAINED}"
    what = subject(rows)
    heading = "Methods" if what == "method" else f"By {what},"
    parts.append(section(f"{heading} at the last round", _methods(rows, "last"), paragraph(said, "note")))
    parts.append(grid(*(figure(entry) for entry in drawn)))
    if not same_clients(runs):
        parts.append(paragraph("Clients are not shown side by side: the runs do not have the same ones.", "note"))
    others = (
        (paragraph(ONLY_LAST, "note"),) if only_last(rows) else (_methods(rows, "selected"), _methods(rows, "best"))
    )
    parts.append(section(f"{heading} at other rounds", *others))
    parts += [_significance(rivals) for rivals in rival_groups(groups)]
    parts.append(section("Every run", _runs(groups)))
    return "".join(parts)


def _methods(rows: Sequence[Row], label: str) -> str:
    made: list[list[Cell | str]] = []
    for row in (row for row in rows if row.label == label):
        cells: list[Cell | str] = [row.method]
        for key, _, scale, digits in COLUMNS:
            mean, deviation = row.mean(key), row.deviation(key)
            cell = number(None if mean is None else scale * mean, digits)
            if key in ("gamma", "max") and deviation is not None:
                cell = Cell(f"{cell.shown} ± {scale * deviation:.{digits}f}", cell.value)
            cells.append(cell)
        made.append(cells)
    what = subject(rows)
    caption = f"{'Methods' if what == 'method' else f'By {what}'}, {label}"
    return table(caption, (what, *(heading for _, heading, _, _ in COLUMNS)), made)


def _significance(rivals: Sequence[Group]) -> str:
    """Which of these methods is significantly first; empty if no group has more than one seed."""
    rows = table_rows(rivals)
    if all(len(row.seeds) < 2 for row in rows):
        return ""
    said = paragraph(f"{PAGE_EXPLAINED} {of_splits(rows)}", "note")
    heading = f"Which {subject(rows)} is significantly first"
    labels = LABELS[:1] if only_last(rows) else LABELS
    return section(heading, *(significance_tables(rows, label) for label in labels), said)


def _runs(groups: Sequence[Group]) -> str:
    made: list[list[Cell | str]] = []
    for group in groups:
        for run in group.runs:
            last = run.last
            numbers = [number(last["gamma"]), number(100 * last["bcf"], 0), number(100 * last["accuracy"]["max"])]
            at = [number(run.config.seed, 0), number(last["round"], 0)]
            made.append([run.name, group.name, *at, *numbers])
    heads = ("run", ", ".join(groups[0].varied) or "method", "seed", "round", "gamma", "in BCF %", "best reward %")
    return table("Runs at their last round", heads, made)
