"""`fedsac schema propose | check`: agree on what the columns of everybody's tables mean."""

import argparse
from pathlib import Path
from typing import Any

from fedsac.errors import FedsacError


def add(commands: Any) -> None:
    command = commands.add_parser(
        "schema", help="what the columns of tables mean: propose it, check files against it", allow_abbrev=False
    )
    verbs = command.add_subparsers(metavar="VERB", required=True, parser_class=type(command))
    text = "write a schema from the server's table (validation, or the first) and what other tables need to fit it"
    propose = verbs.add_parser("propose", help=text, description=text, allow_abbrev=False)
    propose.add_argument("data", nargs="+", type=Path, metavar="FILE", help=".csv or .parquet, or a folder of silos")
    propose.add_argument("--label", default="label", help="label column [label]")
    propose.add_argument(
        "--out", type=Path, metavar="FILE.toml", help="[schema.toml in the folder, or beside the file]"
    )
    propose.add_argument("--overwrite", action="store_true", help="write it though there is one already")
    propose.set_defaults(do=do_propose)
    text = "list everything in some tables that does not fit a schema"
    check = verbs.add_parser("check", help=text, description=text, allow_abbrev=False)
    check.add_argument("schema", type=Path, metavar="SCHEMA", help=".toml or .json")
    check.add_argument("data", nargs="+", type=Path, metavar="FILE", help=".csv or .parquet, or a folder of silos")
    check.add_argument("--silo", metavar="NAME", help="whose one file it is, for its corrections [the file's name]")
    check.set_defaults(do=do_check)


def do_propose(chosen: argparse.Namespace) -> None:
    from fedsac.atomic import write_atomic
    from fedsac.data.schema.files import NAMES, as_toml
    from fedsac.data.schema.proposing import propose
    from fedsac.data.tabular import proposal_tables

    first = chosen.data[0]
    out = chosen.out or (first if first.is_dir() else first.parent) / NAMES[0]
    if out.exists() and not chosen.overwrite:
        raise FedsacError(f"{out} is there already; add --overwrite to propose another, or name --out")
    tables, reference = proposal_tables(chosen.data, chosen.label)
    made = propose(tables, reference, chosen.label)
    raw = tables[reference]
    text = as_toml(made.schema, f"{Path(raw.where).name} ({len(raw.lines)} rows)", made.notes)
    try:
        write_atomic(out, text.encode())
    except OSError as error:
        raise FedsacError(f"{out}: cannot be written ({error.strerror})") from None
    for remark in made.remarks:
        print(f"look: {remark}")
    schema = made.schema
    print(
        f"{out}: {len(schema.columns)} columns as {len(schema.features)} inputs, {len(schema.drop)} left out, classes "
        f"{', '.join(schema.classes)}; fitted on {raw.where}. Read it before you agree on it"
    )
    if not first.is_dir() or out.parent != first:  # only a folder's own is found by itself
        print(f"use it with: fedsac run --data {first} --schema {out}")


def do_check(chosen: argparse.Namespace) -> None:
    from fedsac.data.schema.files import read_schema
    from fedsac.data.schema.fitting import fit, known_names
    from fedsac.data.schema.raw import read_raw
    from fedsac.data.tabular import table_files

    schema = read_schema(chosen.schema)
    files = table_files(chosen.data)
    if chosen.silo is not None:
        if len(files) != 1:
            raise FedsacError("--silo is for one file; others have their silo's name")
        files = {chosen.silo: next(iter(files.values()))}
    fits = {name: fit(read_raw(path, known_names(schema)), schema, name) for name, path in files.items()}
    wrong = [problem for _, problems in fits.values() for problem in problems]
    for problem in wrong:
        print(problem)
    if wrong:
        raise FedsacError(
            f"{len(wrong)} problem{'s' * (len(wrong) > 1)} with {chosen.schema}: mend the data or the schema"
        )
    rows = ", ".join(f"{name} {0 if table is None else len(table.x):,}" for name, (table, _) in fits.items())
    print(f"{chosen.schema} (sha256 {schema.sha256}) fits: {rows} rows")
