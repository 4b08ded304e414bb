"""`fedsac compare` and `fedsac methods`."""

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from fedsac.cli.logs import add_log, with_logs
from fedsac.cli.run import RUNS, add_settings, configured, only_resume, pair, reported
from fedsac.cli.significance import show_statistics
from fedsac.config import Config
from fedsac.errors import FedsacError
from fedsac.runs.watcher import RunInfo, Watcher

EVAL_EVERY = 10
Work = Callable[[Path, Watcher], list[Any]]  # carries out runs in a folder, returns the rows of their table
SHOWN = (
    *("gamma", "gamma_limit", "gamma_attainable", "bcf", "alpha_bcf", "max", "mean", "min"),
    *("gain", "gain_spread", "losers", "global", "megabytes"),
)
# Left out, in this order, where a terminal is narrow.
LEAST = ("megabytes", "global", "alpha_bcf", "mean", "min", "losers", "gamma_attainable", "gamma_limit")


def add(commands: Any) -> None:
    command = commands.add_parser(
        "compare",
        help="several methods and seeds on one scene, side by side",
        description="Run several methods and seeds on one scene side by side, and print them as one table, and "
        "which method is significantly first. All seeds share one split with --split-seed; else every seed draws its "
        f"own. Runs are evaluated every {EVAL_EVERY} rounds, unless --eval-every says otherwise.",
        allow_abbrev=False,
    )
    add_settings(command, without=("method", "options"), defaults={"eval_every": EVAL_EVERY})
    command.add_argument("--methods", default="all", metavar="A,B", help="methods, with commas between, or all [all]")
    command.add_argument(
        "--set",
        dest="method_options",
        action="append",
        metavar="NAME=VALUE",
        help="an option of every method that has it, or of one: METHOD.NAME=VALUE; may be repeated",
    )
    add_side_by_side(command, "comparison")
    command.set_defaults(do=do, options=None)
    listing = commands.add_parser("methods", help="the methods there are, with their citations", allow_abbrev=False)
    listing.add_argument("name", nargs="?", metavar="NAME", help="its options")
    listing.set_defaults(do=show_methods)


def add_side_by_side(command: Any, what: str) -> None:
    """The flags of every command that carries out runs side by side."""
    command.add_argument("--seeds", type=int, default=3, metavar="N", help="this many seeds, from --seed on [3]")
    command.add_argument("--out", type=Path, metavar="FOLDER", help="where the runs go [a new folder in runs/]")
    command.add_argument("--resume", type=Path, metavar="FOLDER", help=f"go on with an interrupted {what}")
    add_log(command)
    add_workers(command)
    command.add_argument("--show", choices=("last", "selected", "best"), default="last", help="the round shown [last]")


def add_workers(command: Any) -> None:
    command.add_argument(
        "--workers",
        metavar="N",
        help="spread the runs over N processes of this machine; by Ray, on its cluster (RAY_ADDRESS) or here: ray:N, "
        "or ray for one on each GPU or machine; without it, all are one stack in this process",
    )


def named_workers(chosen: argparse.Namespace) -> Any:
    """The workers that were asked for, if any were."""
    from fedsac.runs.workers import Workers

    if chosen.workers is None:
        return None
    if getattr(chosen, "log", None):
        raise FedsacError(
            "--log writes what this process trains, and --workers trains elsewhere; leave one of them out"
        )
    return Workers.named(chosen.workers)


def do(chosen: argparse.Namespace) -> None:
    from fedsac.runs.comparing import compare, methods_named

    def begin(config: Config) -> tuple[int, Work]:
        names = methods_named(chosen.methods)
        options = dict(pair(text) for text in chosen.method_options or ())

        def work(folder: Path, watcher: Watcher) -> list[Any]:
            return compare(config, names, chosen.seeds, folder, watcher, options, named_workers(chosen))

        return len(names) * chosen.seeds, work

    side_by_side(chosen, "compare", begin, ("method_options",))


def side_by_side(
    chosen: argparse.Namespace, name: str, begin: Callable[[Config], tuple[int, Work]], settings: tuple[str, ...]
) -> None:
    """Carry out the runs of `fedsac NAME`, or go on with them, and show what came of it. `begin` says for a config how
    many runs there are, and does them; `settings` are its own, which a folder that is resumed has already."""
    from fedsac.cli.screen import Screen
    from fedsac.runs.comparing import resume_compare
    from fedsac.runs.comparison import about

    screen = Together(Screen(sys.stderr))
    folder = chosen.resume
    try:
        with screen.screen:
            if chosen.resume is not None:
                only_resume(chosen, ("out", *settings))
                table = resume_compare(chosen.resume, with_logs(screen, chosen.log), named_workers(chosen))
            else:
                # Every run evaluated after every round would take longer than the training.
                chosen.eval_every = getattr(chosen, "eval_every", EVAL_EVERY)
                config = configured(chosen)
                screen.runs, work = begin(config)
                screen.every = config.eval_every
                folder = chosen.out or fresh(config, name)
                table = work(folder, with_logs(screen, chosen.log))
    except KeyboardInterrupt:
        if folder is not None and (folder / "compare.json").exists():
            print(f"fedsac: interrupted; go on with: fedsac {name} --resume {folder}", file=sys.stderr)
            raise SystemExit(130) from None
        raise
    subject, metric = about(folder)
    _draw(table, folder, subject, metric)
    page = reported(folder)
    show(table, chosen.show, metric)
    show_statistics(table, chosen.show)
    files = ["results.csv", "results.json", "fairness-accuracy.svg", *([] if page is None else [page.name])]
    print(f"Everything is in {folder}: {', '.join(files)}, and a folder for each run.")


class Together(Watcher):
    """Shows the progress of many runs together: the rounds of all, and an estimate of the time left."""

    def __init__(self, screen: Any) -> None:
        self.screen, self.runs, self.every = screen, 0, 1
        self._done, self._start, self._said = 0, 0.0, False

    def alone(self, step: int, steps: int) -> None:
        self.screen.alone(step, steps)
        self._start = time.monotonic()

    def round(self, run: RunInfo, record: dict[str, Any]) -> None:
        self._start = self._start or time.monotonic()
        self._done += 1
        total = self.runs * run.config.rounds
        # Once every run has had an evaluation, a round's cost is known.
        if self.runs and not self._said and self._done >= self.runs * max(3, self.every):
            self._said = True
            left = (time.monotonic() - self._start) / self._done * (total - self._done)
            self.note(f"about {_duration(left)} to go")
        if self.runs and (self._done % self.runs == 0 or self._done == total):
            self.screen.advance("rounds of all runs", self._done, total)

    def note(self, text: str) -> None:
        self.screen.note(text)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


EXPLAINED = (
    "in BCF, alpha-BCF: shares of clients inside (alpha-BCF: FedRAC's). best, mean, min: of the rewards. MCG, CGS: "
    "mean and deviation of reward less contribution. lose: how many clients are paid less than they have alone. "
    "global: the common model. MB down: sent to all clients in a round. -: there is no such number, as gamma* where "
    "the best reward is below the best contribution."
)


def show(table: list[Any], label: str, metric: str) -> None:
    from rich.console import Console
    from rich.measure import Measurement

    from fedsac.runs.comparison import COLUMNS, ONLY_LAST, only_last

    columns = [column for column in COLUMNS if column[0] in SHOWN]
    shown = [row for row in table if row.label == label]
    title = f"{label} round, scored by {metric}: mean"
    console = Console(highlight=False, markup=False, emoji=False)

    def width(view: Any) -> int:
        return Measurement.get(console, console.options.update_width(1000), view).maximum

    view = _view(f"{title} and deviation over seeds; the best in bold", shown, columns, deviations=True)
    if not console.is_terminal:  # in a file or a pipe nothing needs to be squeezed
        console = Console(highlight=False, markup=False, emoji=False, width=max(console.width, width(view)))
    for least in (None, *LEAST):  # deviations go first
        if width(view) <= console.width:
            break
        columns = [column for column in columns if column[0] != least]
        view = _view(f"{title} over seeds; the best in bold", shown, columns, deviations=False)
        view.caption = "The terminal is narrow: results.csv has the deviations and all columns."
    console.print(view)
    if only_last(table):
        console.print(ONLY_LAST)
    console.print(EXPLAINED)


def _view(title: str, rows: list[Any], columns: list[Any], *, deviations: bool) -> Any:
    from rich.table import Table
    from rich.text import Text

    from fedsac.runs.comparison import subject

    view = Table(title=title)
    view.add_column(subject(rows), no_wrap=True)
    best = {}
    for key, heading, _, better in columns:
        view.add_column(heading, justify="right", no_wrap=True)
        means = [mean for row in rows if (mean := row.mean(key)) is not None]
        best[key] = (max(means) if better > 0 else min(means)) if means and better else None
    for row in rows:
        cells = []
        for key, _, digits, _ in columns:
            mean, deviation = row.mean(key), row.deviation(key)
            text = "-" if mean is None else f"{mean:.{digits}f}"
            if deviations and deviation is not None and key in ("gamma", "max"):
                text += f" ±{deviation:.{digits}f}"
            cells.append(Text(text, style="bold" if mean is not None and mean == best[key] else ""))
        view.add_row(row.method, *cells)
    return view


def show_methods(chosen: argparse.Namespace) -> None:
    from fedsac.doors import METHODS

    if chosen.name is None:
        for name, entry in METHODS.entries.items():
            print(f"{name:22} {entry.what} ({entry.citation})")
        return
    from fedsac.methods import method_class

    kind: Any = method_class(chosen.name)
    print(sys.modules[kind.__module__].__doc__)
    for option in fields(kind):
        print(f"  --set {option.name}={option.default}")


def _draw(table: list[Any], folder: Path, subject: str, metric: str) -> None:
    """The picture beside the table: fairness against the metric's score. The file keeps its name, whatever the
    metric."""
    from fedsac.atomic import write_atomic
    from fedsac.report.comparison import fairness_accuracy
    from fedsac.report.drawing import svg

    write_atomic(folder / "fairness-accuracy.svg", svg(fairness_accuracy(table, subject, metric)).encode())


def fresh(config: Config, name: str) -> Path:
    from fedsac.cli.run import free

    data = Path(config.data).name
    return free(RUNS / f"{name}-{data}-{(config.scene or 'pow').replace(':', '')}")
