"""`fedsac report`: write the page about a run or a comparison."""

import argparse
from pathlib import Path
from typing import Any


def add(commands: Any) -> None:
    command = commands.add_parser(
        "report",
        help="runs or a comparison as one page for a browser, and as figures for a paper",
        description="Write one page about a run, a comparison, or several of them. It needs no network and nothing "
        "beside it.",
        allow_abbrev=False,
    )
    command.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="a folder of fedsac run or fedsac compare")
    command.add_argument(
        "--out", type=Path, metavar="FILE.html", help="[report.html in RUN; here, if there are several]"
    )
    command.add_argument("--figures", type=Path, metavar="FOLDER", help="every figure, too, as .svg and .pdf")
    command.set_defaults(do=do)


def do(chosen: argparse.Namespace) -> None:
    from fedsac.report.page import write

    path, figures = write(chosen.runs, chosen.out, chosen.figures)
    print(f"The page is {path}; open it in a browser.")
    if figures:
        print(f"{len(figures)} figures are in {chosen.figures}.")
