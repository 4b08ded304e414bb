"""The paper's tables, built from results: our numbers beside the printed ones.

Nothing is filled in: what was not run has no number.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fedsac.paper.cells import Cell, Row, SeedValues, Table, ranked
from fedsac.paper.experiments import OTHER_READING
from fedsac.paper.kinds import KINDS, Measure, accuracy, alone, common, setting
from fedsac.paper.printed import METHODS, TABLES, Column, Printed, printed
from fedsac.paper.results import Results, Run
from fedsac.paper.settings import BATCH, TABLE7_BETA, preset

READS_BETA = ("fedsac", "fedsac-no-allocation", "fedsac-no-aggregation")
OVER_N = "updates over N"
HAS_COMMON = ("fedavg", "qffl")  # methods with a common model that is not itself a client's reward
OTHER_BETA = "beta of Tables 2 and 7"


class Index:
    """The runs of each column."""

    def __init__(self, results: Results) -> None:
        self._runs: dict[Column, list[Run]] = defaultdict(list)
        for run in results.runs:
            self._runs[Column(run.data, run.clients, run.scene)].append(run)

    def of(self, column: Column, method: str, beta: float | None = None) -> list[Run]:
        """A method's runs, one for each seed; with `beta`, only those with that setting."""
        return _one_per_seed(r for r in self._runs[column] if r.method == method and beta in (None, r.beta))

    def any(self, column: Column) -> list[Run]:
        """One run for each seed, of any method: the contributions are the same for all methods."""
        return _one_per_seed(sorted(self._runs[column], key=lambda run: run.method != "standalone"))

    def all(self, column: Column) -> list[Run]:
        return self._runs[column]


def _one_per_seed(runs: Iterable[Run]) -> list[Run]:
    by_seed: dict[int, Run] = {}
    for run in runs:
        by_seed.setdefault(run.seed, run)
    return [by_seed[seed] for seed in sorted(by_seed)]


def table9_beta(column: Column) -> float:
    """FedSAC's beta in Table 9, which we report first; also for more clients, for which the paper names none."""
    return float(preset("paper", column.data, column.scene)["beta"])


def other_beta(column: Column) -> float:
    """FedSAC's beta in Tables 2 and 7; Table 9's if these do not contradict it."""
    return float(preset("paper-tables", column.data, column.scene)["beta"])


@dataclass(frozen=True)
class RowSource:
    """Where a row's numbers come from: its runs in a column (None: the variant does not differ from its method there),
    and the measure of a run."""

    key: str
    name: str
    of: str
    runs: Callable[[Column], list[Run] | None]
    measure: Measure


def table(name: str, results: Results) -> Table:
    """One of the paper's tables, "table1" to "table9", with our results beside the printed ones."""
    kind, columns, index = KINDS[name], TABLES[name], Index(results)
    paper = {column: _printed(name, column) for column in columns}
    sources = _settings(index) if name == "table9" else _sources(name, index)
    runs_of = {source.key: [source.runs(column) for column in columns] for source in sources}
    rows = []
    for source in sources:
        cells = [
            Cell(
                paper[column].get(source.of),
                {label: _value(runs, source.measure, label) for label in kind.labels} if runs else {},
                same=runs is None,
            )
            for column, runs in zip(columns, runs_of[source.key], strict=True)
        ]
        rows.append(Row(source.key, source.name, source.of, tuple(cells)))
    used = [runs for cells in runs_of.values() for runs in cells if runs]
    if name == "table9":  # its rows keep one run for each value
        used = [runs for column in columns if (runs := index.all(column))]
    return Table(
        name=name,
        title=kind.title,
        labels=kind.labels,
        digits=kind.digits,
        better=kind.better,
        columns=columns,
        rows=ranked(rows, tuple(kind.labels), kind.better) if kind.better else tuple(rows),
        notes=(*kind.notes, *(contradictions() if name == "table9" else ())),
        seeds=tuple(sorted({len({run.seed for run in runs}) for runs in used})),
        rounds=tuple(sorted({run.rounds for runs in used for run in runs})),
        quick=bool(results.made.get("quick")),
    )


def tables(results: Results) -> list[Table]:
    """All nine tables."""
    return [table(name, results) for name in TABLES]


def contradictions() -> tuple[str, ...]:
    """Sentences on columns where Tables 2 and 7 print the same accuracy at another beta than Table 9 names."""
    sentences = []
    for (data, scene), beta in TABLE7_BETA.items():
        column = Column(data, 10, scene)
        table2, named = printed("table2")[column]["fedsac"].value, table9_beta(column)
        table7 = {b: printed("table7")[column][f"beta={b:g}"].value for b in (named, beta)}
        if named != beta and table7[beta] == table2:
            sentences.append(
                f"{column}: Table 9 names beta {named:g}, at which Table 7 has {table7[named]:.2f}; Table 2 has "
                f"{table2:.2f}, as Table 7 has at beta {beta:g}."
            )
    return tuple(sentences)


def _value(runs: list[Run], measure: Measure, label: str) -> SeedValues:
    numbers = [(run.seed, *measure(run, label)) for run in runs]
    there = [(seed, value) for seed, value, _ in numbers if value is not None]
    low = tuple(low for *_, low in numbers if low is not None)
    seeds = len({run.seed for run in runs})
    return SeedValues(tuple(value for _, value in there), seeds, low, tuple(seed for seed, _ in there))


def _printed(name: str, column: Column) -> dict[str, Printed]:
    values = printed(name)[column]
    if name != "table9":
        return values
    tuned = TABLE7_BETA.get((column.data, column.scene))
    # Batch sizes are in the table's caption.
    return values | {"batch": Printed(BATCH[column.data])} | ({} if tuned is None else {OTHER_BETA: Printed(tuned)})


def _sources(name: str, index: Index) -> list[RowSource]:
    """The printed rows, each followed by its variants if there are runs of any."""
    columns, sources = TABLES[name], list[RowSource]()
    for row in printed(name)[columns[0]]:
        if row.startswith("beta="):
            sources.append(_by_beta(index, row, KINDS[name].measure))
        elif row == "standalone":
            sources.append(RowSource(row, METHODS[row], row, index.any, alone))
        else:
            sources += method_sources(index, row, KINDS[name].measure)
    return [source for source in sources if source.key == source.of or any(map(source.runs, columns))]


def _by_beta(index: Index, row: str, measure: Measure) -> RowSource:
    beta = float(row.removeprefix("beta="))
    return RowSource(row, f"beta {beta:g}", row, lambda column: index.of(column, "fedsac", beta), measure)


def method_sources(index: Index, method: str, measure: Measure) -> list[RowSource]:
    """A method's row, followed by its variants: other readings and betas, or its common model."""
    name = METHODS[method]
    if method not in READS_BETA:
        sources = [RowSource(method, name, method, lambda column: index.of(column, method), measure)]
        if method in HAS_COMMON and measure is accuracy:
            sources.append(RowSource(f"{method}:common", f"{name}, common model", method, sources[0].runs, common))
        return sources
    readings = {method: name} | ({OTHER_READING: f"{name}, {OVER_N}"} if method == "fedsac" else {})
    return [
        RowSource(f"{key}{variant}", f"{text}{more}", method, _with_beta(index, key, beta), measure)
        for key, text in readings.items()
        for variant, more, beta in (("", "", table9_beta), (":other-beta", f", {OTHER_BETA}", other_beta))
    ]


def _with_beta(index: Index, method: str, beta: Callable[[Column], float]) -> Callable[[Column], list[Run] | None]:
    """A method's runs with this beta; None in a column where that is Table 9's, though another was asked for."""

    def runs(column: Column) -> list[Run] | None:
        same = beta is other_beta and beta(column) == table9_beta(column)
        return None if same else index.of(column, method, beta(column))

    return runs


def _settings(index: Index) -> list[RowSource]:
    """The rows of Table 9: the settings it names, and those of our runs (all betas of FedSAC, Table 7's too)."""

    def distinct(runs: list[Run], key: str) -> list[Run]:
        return list({getattr(run, key): run for run in sorted(runs, key=lambda run: float(getattr(run, key)))}.values())

    def of_all(key: str) -> Callable[[Column], list[Run]]:
        return lambda column: distinct(index.all(column), key)

    def betas(column: Column) -> list[Run]:
        return distinct([run for run in index.all(column) if run.method == "fedsac"], "beta")

    def others(column: Column) -> list[Run]:
        beta = TABLE7_BETA.get((column.data, column.scene))
        return [] if beta is None else index.of(column, "fedsac", beta)[:1]

    names = {"lr": "learning rate", "local_steps": "local steps", "batch": "batch size"}
    sources = [RowSource(key, name, key, of_all(key), setting(key)) for key, name in names.items()]
    sources.append(RowSource("beta", "beta", "beta", betas, setting("beta")))
    sources.append(RowSource(OTHER_BETA, OTHER_BETA, OTHER_BETA, others, setting("beta")))
    return sources
