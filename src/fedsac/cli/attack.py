"""`fedsac attack`: hostile clients against methods, each beside the clean run."""

import argparse
import sys
from pathlib import Path
from typing import Any

from fedsac.cli.compare import Together, add_workers, fresh, named_workers
from fedsac.cli.logs import add_log, with_logs
from fedsac.cli.run import add_settings, configured, only_resume, pair
from fedsac.config import Config
from fedsac.errors import FedsacError

METHODS = "fedsac,fedsac-plus,fedrac,cgsv,cffl,rffl"
CLIENTS = 12
OWN = ("attack", "attackers", "behaviour", "method", "options")  # settings that a study has in other ways
NOT_BESIDE_RESUME = ("out", "method_options", "also", "who")


def add(commands: Any) -> None:
    command = commands.add_parser(
        "attack",
        help="hostile clients: what they gain, what honest ones lose, who is found out",
        description="Run attacks on several methods and seeds, each beside the clean run of the same seed and split, "
        "and print what the adversary gains over honesty, what honest clients lose, how often the attack succeeds, and "
        "who is found out. --list says what attacks there are.",
        allow_abbrev=False,
    )
    command.add_argument("names", nargs="?", metavar="A,B", help="attacks, with commas between, or all [all]")
    command.add_argument("--list", action="store_true", help="the attacks there are")
    add_settings(command, without=OWN, defaults={"clients": CLIENTS, "eval_every": "none but that"})
    command.add_argument("--methods", default=METHODS, metavar="A,B", help=f"methods [{METHODS}]")
    command.add_argument(
        "--attackers",
        dest="who",
        metavar="WHO",
        help="who is hostile: median[:NUMBER], largest, smallest, top (the highest contribution), or a name; "
        "ATTACK@WHO says it for one attack [as the attack says: mostly median:2]",
    )
    command.add_argument(
        "--also",
        action="append",
        metavar="NAME=VALUE,...",
        help="every method once more with these settings, as --also refuse=harmful; may be repeated",
    )
    command.add_argument(
        "--set",
        dest="method_options",
        action="append",
        metavar="NAME=VALUE",
        help="an option of every method that has it, or of one: METHOD.NAME=VALUE; may be repeated",
    )
    command.add_argument("--seeds", type=int, default=3, metavar="N", help="this many seeds, from --seed on [3]")
    command.add_argument("--out", type=Path, metavar="FOLDER", help="where the runs go [a new folder in runs/]")
    command.add_argument("--resume", type=Path, metavar="FOLDER", help="go on with an interrupted study")
    add_log(command)
    add_workers(command)
    command.set_defaults(do=do, options=None)


def do(chosen: argparse.Namespace) -> None:
    if chosen.list:
        _list()
        return
    from fedsac.cli.screen import Screen
    from fedsac.runs.attack_table import STUDY
    from fedsac.runs.attacking import begin, begun, carry_out

    progress = Progress(Screen(sys.stderr))
    folder, workers = chosen.resume, named_workers(chosen)
    try:
        with progress.screen:
            if folder is not None:
                only_resume(chosen, NOT_BESIDE_RESUME)
                if chosen.names is not None:
                    raise FedsacError("--resume takes the attacks from the study's own folder; leave them out")
            else:
                study = _study(chosen)
                folder = chosen.out or fresh(study.base, "attack")
                begin(study, folder)
            rows = carry_out(folder, with_logs(progress, chosen.log), progress.stage, workers)
    except KeyboardInterrupt:
        if folder is not None and (folder / STUDY).exists():
            print(f"fedsac: interrupted; go on with: fedsac attack --resume {folder}", file=sys.stderr)
            raise SystemExit(130) from None
        raise
    from fedsac.report.page import write

    show(rows, begun(folder).base)
    try:
        write([folder], figures=folder / "figures")
    except FedsacError as error:  # a font that is missing does not cost the study
        print(f"fedsac: {error}", file=sys.stderr)
    print(f"Everything is in {folder}: results.csv, results.json, report.html, a picture for each attack in figures.")


class Progress(Together):
    """Shows how far a stage of the study has come. What single runs remark is in their own folders."""

    def stage(self, what: str, runs: int) -> None:
        self.runs, self._done, self._said = runs, 0, False
        self.screen.note(f"{what}: {runs} to do")

    def note(self, text: str) -> None:
        """There would be thousands: of every reply that is refused."""


def _study(chosen: argparse.Namespace) -> Any:
    from fedsac.runs.attacking import Study, attacks_named
    from fedsac.runs.comparing import methods_named, option_names

    config = configured(chosen)
    if config.clients is None and not Path(config.data).is_dir():
        config = config.replace(clients=CLIENTS)
    if not hasattr(chosen, "eval_every"):
        config = config.replace(eval_every=config.rounds)  # the last round is what is reported
    methods = methods_named(chosen.methods)
    # Baselines by their own rules: what FedSAC's tables put in their place could not be fooled by updates.
    own_rule = {"reward_by": "own"} if any("reward_by" in option_names(method) for method in methods) else {}
    return Study(
        base=config,
        attacks=attacks_named("all" if chosen.names is None else chosen.names, chosen.who),
        methods=tuple(methods),
        seeds=chosen.seeds,
        options=own_rule | dict(pair(text) for text in chosen.method_options or ()),
        also=tuple(_settings(text) for text in chosen.also or ()),
    )


def _settings(text: str) -> dict[str, Any]:
    """Settings from `refuse=harmful,lr=.1`."""
    from fedsac.runs.sweeping import NOT_SWEPT, SETTINGS, parsed

    values = parsed(text.split(","))
    for name in values:
        if name not in SETTINGS or name in (*OWN, *NOT_SWEPT):
            raise FedsacError(f"--also {name}: not a setting that methods can be run with once more")
    return {name: value[0] for name, value in values.items()}


def _list() -> None:
    from fedsac.doors import ATTACKS

    shown = {name: f"{name}:{entry.parameter}" if entry.parameter else name for name, entry in ATTACKS.entries.items()}
    width = max(map(len, shown.values()))
    for name, entry in ATTACKS.entries.items():
        print(f"{shown[name]:{width}} {entry.what}{f' ({entry.citation})' if entry.citation else ''}")


def show(rows: list[Any], config: Config) -> None:
    from rich.console import Console
    from rich.table import Table

    from fedsac.core.metrics import display_name
    from fedsac.runs.attack_table import COLUMNS, EXPLAINED, said_of_wrecks

    view = Table(title=f"last round, scored by {display_name(config.metric)}: means over seeds, in points")
    view.add_column("attack", no_wrap=True)
    view.add_column("method", no_wrap=True)
    for _, heading, _, _ in COLUMNS:
        view.add_column(heading, justify="right", no_wrap=True)
    before = None
    for row in rows:
        if before is not None and row.attack != before:
            view.add_section()
        cells = [_cell(row, *column) for column in COLUMNS]
        view.add_row("" if row.attack == before else row.attack, row.method, *cells)
        before = row.attack
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, emoji=False, width=160)
    console.print(view)
    for line in said_of_wrecks(rows):
        console.print(line)
    console.print(f"{EXPLAINED} ±: half of the 95 % interval.")


def _cell(row: Any, key: str, heading: str, factor: float, digits: int) -> str:
    mean, interval = row.mean(key), row.interval(key)
    if mean is None:
        return "-"
    shown = f"{factor * mean:+.{digits}f}" if factor == 100 else f"{factor * mean:.{digits}f}"
    if key == "gain" and interval is not None:
        shown += f" ±{factor * (interval[1] - interval[0]) / 2:.{digits}f}"
    return shown
