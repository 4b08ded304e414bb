"""`fedsac data list | fetch | check`."""

import argparse
import shlex
from pathlib import Path
from typing import Any

from fedsac.errors import FedsacError


def add(commands: Any) -> None:
    command = commands.add_parser("data", help="which data sets there are; fetch one; check one", allow_abbrev=False)
    verbs = command.add_subparsers(metavar="VERB", required=True, parser_class=type(command))
    for verb, text, do in (
        ("list", "the data sets by name, and where they lie on this machine", show),
        ("fetch", "download a data set from its publisher", fetch),
        (
            "check",
            "read a data set, file or folder of silos wholly and say what is in it, or what is wrong",
            check,
        ),
    ):
        sub = verbs.add_parser(verb, help=text, description=text, allow_abbrev=False)
        if verb != "list":
            sub.add_argument("name", metavar="NAME")
        if verb == "check":
            sub.add_argument("--label", default="label", help="label column of a .csv or .parquet [label]")
            sub.add_argument(
                "--schema", metavar="FILE", help="what the columns mean [schema.toml in a folder of silos]"
            )
        sub.add_argument("--data-dir", type=Path, metavar="FOLDER", help="look here first (before FEDSAC_DATA)")
        sub.set_defaults(do=do)


def show(chosen: argparse.Namespace) -> None:
    from rich.console import Console
    from rich.table import Table

    from fedsac.data.catalogue import listing

    table = Table("name", "what it is", "where it lies")
    for entry in listing(chosen.data_dir):
        table.add_row(
            entry.name,
            entry.what,
            "not here: fedsac data fetch " + entry.name if entry.folder is None else str(entry.folder),
        )
    console = Console(highlight=False, markup=False, emoji=False)
    console.print(table)
    console.print("Your own: a path to a .npz, .csv or .parquet file, or to a folder with one file per client.")


def fetch(chosen: argparse.Namespace) -> None:
    from fedsac.data import catalogue

    print(f"{chosen.name} is in {catalogue.fetch(chosen.name, chosen.data_dir, quiet=False)}")


def check(chosen: argparse.Namespace) -> None:
    from fedsac.data import catalogue
    from fedsac.data.concerns import ACCURACY, concerns_of
    from fedsac.data.schema.problems import ProblemsError
    from fedsac.data.tabular import schema_for

    try:
        data = catalogue.checked(chosen.name, chosen.data_dir, chosen.label, chosen.schema)
    except ProblemsError as error:
        for problem in error.problems:
            print(problem)
        count = len(error.problems)
        hint = "" if schema_for(chosen.name, chosen.schema) else _proposal(chosen)
        raise FedsacError(f"{chosen.name}: {count} problem{'s' * (count > 1)}{hint}") from None
    for concern in concerns_of(data, ACCURACY):
        print(f"warning: {concern}")
    print(catalogue.described(data))


def _proposal(chosen: argparse.Namespace) -> str:
    """The command that makes a schema, as it can be typed."""
    from fedsac.data.catalogue import DEFAULT_LABEL

    label = "" if chosen.label == DEFAULT_LABEL else f" --label {shlex.quote(chosen.label)}"
    return f"; fedsac schema propose {shlex.quote(chosen.name)}{label} says what could be made of it"
