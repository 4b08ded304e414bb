"""`python -m benchmarks.studies NAME OUT [--device cuda] [--data-dir FOLDER]` carries out a study: methods, judge,
long, networks-cnn or networks-resnet18. Interrupted, it goes on with the same command. The raw files are
OUT/NAME/*.json.

`python -m benchmarks.studies page NAME` writes docs/results/NAME.md from docs/results/NAME/*.json.
"""

import argparse
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.studies.carrying_out import Lines, carry_out
from benchmarks.studies.definitions import STUDIES, Study
from fedsac.errors import FedsacError

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"


def main(arguments: list[str] | None = None) -> None:
    try:
        chosen = _parsed(arguments)
        chosen.do(chosen)
    except FedsacError as error:
        raise SystemExit(f"studies: {error}") from None
    except KeyboardInterrupt:
        print("studies: interrupted; the same command goes on", file=sys.stderr)
        raise SystemExit(130) from None


def _parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.studies", description=__doc__, allow_abbrev=False)
    commands = parser.add_subparsers(required=True, metavar="NAME")
    for name, whole in STUDIES.items():
        command = commands.add_parser(name, help=f"{len(whole.cells)} cells, {whole.rounds} rounds", allow_abbrev=False)
        _add_study(command)
        command.set_defaults(do=study, name=name)
    page = commands.add_parser("page", help="write a study's page from its raw files", allow_abbrev=False)
    page.add_argument("name", choices=STUDIES)
    page.add_argument("--docs", type=Path, default=RESULTS, metavar="FOLDER", help="[docs/results]")
    page.set_defaults(do=write_page)
    return parser.parse_args(arguments)


def _add_study(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("out", type=Path, help="folder of the runs and raw files")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda", "auto"))
    parser.add_argument("--data-dir", metavar="FOLDER", help="folder with the data sets")
    parser.add_argument("--only", default="", metavar="TEXT", help='cells with this in "DATA SCENE CLIENTS"')
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="cells at work at the same time [1]")
    parser.add_argument("--minutes", type=float, help="begin no other cell after so many minutes")
    tries = parser.add_argument_group("for tries on a small scale")
    tries.add_argument("--data", metavar="A,B", help="other data sets")
    tries.add_argument("--scenes", metavar="A,B")
    tries.add_argument("--methods", metavar="A,B")
    tries.add_argument("--clients", type=int)
    tries.add_argument("--seeds", type=int, metavar="N")
    tries.add_argument("--rounds", type=int)
    tries.add_argument("--eval-every", type=int)


def study(chosen: argparse.Namespace) -> None:
    wanted = _scaled(STUDIES[chosen.name], chosen)
    common = {"device": chosen.device, "data_dir": chosen.data_dir}
    cells = wanted.selected(chosen.only)
    done = carry_out(wanted, cells, chosen.out, Lines(), chosen.minutes, chosen.workers, **common)
    print(f"raw files: {chosen.out / wanted.name}" + ("" if done else "; the same command goes on"))


def write_page(chosen: argparse.Namespace) -> None:
    from benchmarks.studies import judge_page, long_page, methods_page, networks_page

    pages = {"methods": methods_page, "judge": judge_page, "long": long_page}
    for path in pages.get(chosen.name, networks_page).write(chosen.docs):
        print(path)


def _scaled(whole: Study, chosen: argparse.Namespace) -> Study:
    """The study with what was named on the command line in place of its own."""
    columns = whole.columns
    if chosen.data:
        columns = tuple((data, columns[0][1]) for data in chosen.data.split(","))
    if chosen.clients:
        columns = tuple(dict.fromkeys((data, chosen.clients) for data, _ in columns))
    changes: dict[str, Any] = {name: getattr(chosen, name) for name in ("seeds", "rounds", "eval_every")}
    for name in ("scenes", "methods"):
        changes[name] = tuple(text.split(",")) if (text := getattr(chosen, name)) else None
    return replace(whole, columns=columns, **{name: value for name, value in changes.items() if value is not None})


if __name__ == "__main__":
    # Whoever limits the time of a command ends it with SIGTERM: that, too, is an interruption that keeps all rounds.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    main()
