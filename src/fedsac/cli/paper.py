"""`fedsac paper`: the paper's tables and figures, our numbers beside the printed ones."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedsac.cli.compare import add_workers
from fedsac.cli.run import RUNS
from fedsac.errors import FedsacError

RESULTS_FILE = "results.json"
THEOREMS_FILE, THEOREMS_NUMBERS = "theorems.md", "theorems.json"


def add(commands: Any) -> None:
    command = commands.add_parser(
        "paper",
        help="the paper's tables, figures and theorems: run what they need, show ours beside the printed numbers",
        description="Run what the paper's tables and figures need, all runs of a data set side by side, and show ours "
        "beside the printed numbers. The same command again goes on where it was interrupted; a finished run is never "
        "run again.",
        allow_abbrev=False,
    )
    command.add_argument(
        "targets", nargs="+", metavar="TARGET", help="table1 ... table9, figure1, figure3 ... figure6, theorems, or all"
    )
    command.add_argument(
        "--quick",
        action="store_true",
        help="one seed, 12 rounds, a fifth of the data: minutes on a laptop; not a reproduction, and labelled so",
    )
    command.add_argument(
        "--readings",
        choices=("literal", "both"),
        default="literal",
        help="FedSAC with Eq. 9 as printed, or also with updates divided by N, which meets more of the printed numbers",
    )
    command.add_argument("--data", metavar="NAME", help="of the targets, only the runs on this data set")
    command.add_argument("--scene", metavar="SCENE", help="of the targets, only the runs in this scene")
    command.add_argument("--seeds", type=int, metavar="N", help="seeds 0 to N-1 [5; quick: 1]")
    command.add_argument(
        "--split-seed",
        type=int,
        metavar="N",
        help="all seeds train on one split, drawn from this [each on its own]",
    )
    command.add_argument("--rounds", type=int, metavar="N", help="rounds of training [300; quick: 12]")
    command.add_argument("--device", default="auto", metavar="DEVICE", help="cpu, cuda or auto [auto]")
    command.add_argument("--threads", type=int, metavar="N", help="CPU threads [all cores]")
    command.add_argument("--data-dir", metavar="FOLDER", help="folder with the data sets")
    add_workers(command)
    command.add_argument("--out", type=Path, metavar="FOLDER", help="where everything goes [runs/paper or -quick]")
    command.add_argument(
        "--from",
        dest="raw",
        type=Path,
        metavar=RESULTS_FILE,
        action="append",
        help="show and draw from results that are there, and run nothing; several, made in parts, are joined",
    )
    command.set_defaults(do=do)


def do(chosen: argparse.Namespace) -> None:
    from fedsac.paper.experiments import parse_targets
    from fedsac.paper.results import Results

    targets = parse_targets(chosen.targets)
    if chosen.raw is not None:
        for flag in ("quick", "data", "scene", "seeds", "split_seed", "rounds", "threads", "data_dir", "workers"):
            if getattr(chosen, flag) not in (None, False):
                raise FedsacError(f"--from runs nothing; leave --{flag.replace('_', '-')} out")
        results = Results.joined(chosen.raw)
        out = chosen.out
    else:
        out = chosen.out or RUNS / ("paper-quick" if chosen.quick else "paper")
        results = _run(chosen, targets, out)
    theorems = _theorems(targets, bool(results.made.get("quick")), out)
    _show(targets, results, theorems)
    if out is not None:
        _write(targets, results, out)
        print(f"Everything is in {out}: README.md is the page, {RESULTS_FILE} the numbers behind it.")


def _run(chosen: argparse.Namespace, targets: Sequence[str], out: Path) -> Any:
    """Carry out the runs that the targets need; returns the results of all runs in the folder."""
    from fedsac.cli.compare import Together, named_workers
    from fedsac.cli.screen import Screen
    from fedsac.paper import job
    from fedsac.paper.experiments import FULL, QUICK, TARGETS, only, runs
    from fedsac.runs.limits import check_number_of_runs

    scale = QUICK if chosen.quick else FULL
    for name in ("seeds", "rounds"):
        value = getattr(chosen, name)
        if value is not None:
            if value < 1:
                raise FedsacError(f"{name} must be at least 1, not {value}")
            if name == "seeds":
                check_number_of_runs(value)
            scale = replace(scale, **{name: value})
    scale = replace(scale, eval_every=min(scale.eval_every, scale.rounds))
    common = {name: getattr(chosen, name) for name in ("device", "threads", "data_dir", "split_seed")}
    wanted = runs(targets, scale, both_readings=chosen.readings == "both", **common)
    wanted = only(wanted, chosen.data, chosen.scene)
    todo = job.unfinished(wanted, out)
    screen = Together(Screen(sys.stderr))
    screen.runs, screen.every = len(todo), scale.eval_every
    if len(wanted) > len(todo):
        screen.note(f"{len(wanted) - len(todo)} of {len(wanted)} runs are finished already")
    try:
        with screen.screen:
            job.carry_out(wanted, out, screen, named_workers(chosen))
    except KeyboardInterrupt:
        print(f"fedsac: interrupted; the same command goes on where it stopped ({out})", file=sys.stderr)
        raise SystemExit(130) from None
    # The page also shows the runs of earlier commands in the same folder.
    return job.collected(runs(TARGETS, scale, both_readings=True, **common), out, quick=chosen.quick)


def _theorems(targets: Sequence[str], quick: bool, out: Path | None) -> str | None:
    """Test the theorems, write their page and numbers beside the results, and return the text for the terminal."""
    if "theorems" not in targets:
        return None
    from fedsac.atomic import write_atomic
    from fedsac.cli.screen import Screen
    from fedsac.paper import theorems_page
    from fedsac.paper.theorems import study

    theorems = study(quick=quick, note=Screen(sys.stderr).note)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        write_atomic(out / THEOREMS_FILE, theorems_page.markdown(theorems).encode())
        write_atomic(out / THEOREMS_NUMBERS, (json.dumps(theorems.as_dict(), indent=1) + "\n").encode())
    return theorems_page.text(theorems)


def _show(targets: Sequence[str], results: Any, theorems: str | None) -> None:
    from rich.console import Console

    from fedsac.paper.claims import claims
    from fedsac.paper.printed import TABLES
    from fedsac.paper.render import terminal
    from fedsac.paper.tables import table
    from fedsac.paper.verdicts import terminal_claims

    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, emoji=False, width=max(console.width, 100))
    for target in targets:
        if target in TABLES:
            console.print(terminal(table(target, results)))
    tested = [claim for claim in claims(results) if claim.tested]
    if tested and any(target in TABLES for target in targets):
        console.print(terminal_claims(tested, quick=bool(results.made.get("quick"))))
    if theorems is not None:
        print(theorems)


def _write(targets: Sequence[str], results: Any, out: Path) -> None:
    """Write the page, its figures, and the results."""
    from fedsac.paper.figures import draw
    from fedsac.paper.page import write_page
    from fedsac.report.pdf import available

    if not available():
        print("fedsac: figures are .svg alone; those as .pdf are written by fpdf2: pip install fpdf2", file=sys.stderr)
    try:
        out.mkdir(parents=True, exist_ok=True)
        results.save(out / RESULTS_FILE)
        theorems = out / THEOREMS_FILE
        markdown = theorems.read_text(encoding="utf-8") if theorems.exists() else None
        write_page(results, draw(results, out / "figures"), markdown, out)
    except OSError as error:
        raise FedsacError(f"{out}: cannot be written ({error.strerror}); name another folder") from None
