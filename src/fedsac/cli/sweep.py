"""`fedsac sweep`: values of a setting, and seeds, side by side."""

import argparse
from pathlib import Path
from typing import Any

from fedsac.cli.compare import EVAL_EVERY, Work, add_side_by_side, named_workers, side_by_side
from fedsac.cli.run import add_settings
from fedsac.config import Config
from fedsac.runs.watcher import Watcher


def add(commands: Any) -> None:
    command = commands.add_parser(
        "sweep",
        help="values of a setting and seeds, side by side: `--set beta=1,2,5 --seeds 5`",
        description="Run every combination of values of some settings, with several seeds, side by side, and print "
        "them as one table with intervals, and which is significantly first. All runs share one stack, and what "
        "standing alone does not depend on is trained alone once. Runs are evaluated every "
        f"{EVAL_EVERY} rounds, unless --eval-every says otherwise.",
        allow_abbrev=False,
    )
    add_settings(command, without=("options",), defaults={"eval_every": EVAL_EVERY})
    command.add_argument(
        "--set",
        dest="swept",
        action="append",
        metavar="NAME=A,B,C",
        help="a setting, or an option of the method, and its values; repeated: every combination",
    )
    add_side_by_side(command, "sweep")
    command.set_defaults(do=do, options=None)


def do(chosen: argparse.Namespace) -> None:
    from fedsac.runs.sweeping import parsed, planned, sweep

    def begin(config: Config) -> tuple[int, Work]:
        values = parsed(chosen.swept or ())

        def work(folder: Path, watcher: Watcher) -> list[Any]:
            return sweep(config, values, chosen.seeds, folder, watcher, named_workers(chosen))

        return len(planned(config, values, chosen.seeds).configs), work

    side_by_side(chosen, "sweep", begin, ("swept",))
