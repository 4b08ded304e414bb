"""`fedsac run`: carry out one run, show its progress, print its results."""

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from fedsac.cli.logs import add_log, with_logs
from fedsac.config import ALL, Config, known, read
from fedsac.errors import FedsacError

RUNS = Path("runs")
PARSERS = {int: int, float: float, int | None: int, float | None: float, str: str, str | None: str}


def add(commands: Any) -> None:
    command = commands.add_parser(
        "run",
        help="train a federation and report who contributed and who was paid what",
        description="Train a federation and report who contributed and who was paid what.",
        allow_abbrev=False,
    )
    add_settings(command)
    command.add_argument("--out", type=Path, metavar="FOLDER", help="where the run goes [a new folder in runs/]")
    command.add_argument("--overwrite", action="store_true", help="start over where a run lies already")
    command.add_argument(
        "--resume", type=Path, metavar="FOLDER", help="go on with an interrupted run; with --rounds N, a finished one"
    )
    add_log(command)
    command.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    command.add_argument(
        "--engine",
        choices=("local", "flower-simulation"),
        default="local",
        help="flower-simulation: every client a node of its own on Flower's engine, for many machines [local]",
    )
    command.set_defaults(do=do)


def add_settings(command: Any, without: tuple[str, ...] = (), defaults: Mapping[str, object] | None = None) -> None:
    """Add a flag for every setting, and --config and --preset, which give many at once. `defaults` are those of the
    command where they are not a run's own."""
    for option in fields(Config):
        if option.name in without:
            continue
        if option.name == "options":
            command.add_argument(
                "--set", dest="options", action="append", metavar="NAME=VALUE", help=str(option.metadata["help"])
            )
            continue
        value = ({"clients": 10} | dict(defaults or {})).get(option.name, option.default)
        default = "" if value is None else f" [{_shown(value)}]"
        command.add_argument(
            "--" + option.name.replace("_", "-"),
            type=whole_numbers if option.name == "hidden" else PARSERS[option.type],  # type: ignore[index]
            default=argparse.SUPPRESS,
            **({"nargs": "?", "const": ALL} if option.name == "hardened" else {}),  # --hardened alone: all of it
            metavar=option.name.upper(),
            help=str(option.metadata["help"]) + default,
        )
    command.add_argument(
        "--config", type=Path, metavar="FILE.toml", help="settings from a file; the flags given go first"
    )
    command.add_argument(
        "--preset",
        metavar="NAME",
        help="paper: what Table 9 names for this data set and scene; "
        "paper-tables: the same with the beta that Tables 2 and 7 were made with",
    )


def do(chosen: argparse.Namespace) -> None:
    from fedsac.cli.screen import Screen
    from fedsac.runs.start import resume, run

    if chosen.engine != "local":
        _simulate(chosen)
        return
    screen = Screen(sys.stderr)
    folder = chosen.resume
    try:
        with screen:
            if chosen.resume is not None:
                only_resume(chosen, ("out", "overwrite"), but=("rounds",))
                watcher = with_logs(screen, chosen.log)
                result = resume(chosen.resume, rounds=getattr(chosen, "rounds", None), watcher=watcher)
            else:
                config = configured(chosen)
                folder = chosen.out or fresh_folder(config)
                watcher = with_logs(screen, chosen.log)
                result = run(config, folder, overwrite=chosen.overwrite, watcher=watcher)
    except KeyboardInterrupt:
        if folder is not None and (folder / "config.toml").exists():
            print(f"fedsac: interrupted; go on with: fedsac run --resume {folder}", file=sys.stderr)
            raise SystemExit(130) from None
        raise
    page = reported(result.folder)
    if chosen.json:
        print(json.dumps(result.summary() | {"seconds": result.seconds, "folder": str(result.folder)}))
    else:
        from fedsac.cli.table import show

        show(result, page=page)


def _simulate(chosen: argparse.Namespace) -> None:
    """Carry out the run as a federation on Flower's simulation engine; the result is a federation's folder."""
    if chosen.resume is not None or chosen.overwrite:
        raise FedsacError("--engine flower-simulation begins a new federation; leave --resume and --overwrite out")
    if chosen.log:
        raise FedsacError("--engine flower-simulation leaves a federation's ledger and no logs; leave --log out")
    try:
        from fedsac.federation.folder import Federation
        from fedsac.federation.simulation import simulate
        from fedsac.federation.watch import as_table, status
    except ImportError as error:
        raise FedsacError(f"--engine flower-simulation needs {error.name}; install fedsac[flower]") from None
    config = configured(chosen)
    folder = chosen.out or fresh_folder(config)
    simulate(config, folder, lambda text: print(text, file=sys.stderr))
    if chosen.json:
        print((folder / "server" / "run" / "summary.json").read_text())
    else:
        print(as_table(status(Federation.load(folder))))
        print(f"the federation is in {folder}, its run in {folder / 'server' / 'run'}")


def reported(folder: Path | None) -> Path | None:
    """Write the page about a finished run or comparison; if that fails, print why and go on without a page."""
    from fedsac.report.page import write

    if folder is None:
        return None
    try:
        return write([folder])[0]
    except FedsacError as error:
        print(f"fedsac: there is no report: {error}", file=sys.stderr)
        return None


def configured(chosen: argparse.Namespace) -> Config:
    """The config: flags take precedence over the file, the file over the preset, the preset over the defaults."""
    given = {f.name: getattr(chosen, f.name) for f in fields(Config) if f.name != "options" and hasattr(chosen, f.name)}
    in_file = read(chosen.config) if chosen.config else {}
    settings = in_file | given
    if chosen.options and isinstance(options := settings.get("options", {}), dict):
        settings["options"] = options | dict(pair(text) for text in chosen.options)
    if chosen.preset is not None:
        from fedsac.paper.settings import preset

        named = Config(**{k: v for k, v in settings.items() if k in ("data", "scene")})
        settings = known(preset(chosen.preset, named.data, named.scene or "pow"), "setting") | settings
    try:
        return Config(**settings)
    except FedsacError as error:
        # Which setting is wrong stands at the beginning, or behind a "no".
        if any(word in in_file and word not in given for word in str(error).split()[:2]):
            raise FedsacError(f"{chosen.config}: {error}") from None
        raise


def fresh_folder(config: Config) -> Path:
    """runs/DATA-SCENE-METHOD-seedN, or -seedN-splitM, with a number appended if that exists."""
    data = Path(config.data).stem if Path(config.data).suffix else Path(config.data).name
    scene = "silos" if Path(config.data).is_dir() else (config.scene or "pow").replace(":", "")
    stem = f"{data}-{scene}-{config.method}-seed{config.seed}"
    stem += "" if config.split_seed is None else f"-split{config.split_seed}"
    return free(RUNS / stem.replace(":", "-"))


def free(path: Path) -> Path:
    """This path, with a number appended if it exists."""
    candidate, number = path, 1
    while candidate.exists():
        number += 1
        candidate = path.with_name(f"{path.name}-{number}")
    return candidate


def only_resume(chosen: argparse.Namespace, others: tuple[str, ...], but: tuple[str, ...] = ()) -> None:
    """Refuse settings beside --resume, which would otherwise be ignored, `but` some."""
    extra = [f.name for f in fields(Config) if f.name not in but and getattr(chosen, f.name, None) is not None]
    extra += [name for name in ("config", "preset", *others) if getattr(chosen, name)]
    if extra:
        flag = "--" + extra[0].replace("_", "-")
        raise FedsacError(f"--resume takes every setting from the run's own folder; leave {flag} out")


def pair(text: str) -> tuple[str, str]:
    """Name and value of an option."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise FedsacError(f"--set takes NAME=VALUE, not {text!r}")
    return name, value


def whole_numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"must be whole numbers, one for each hidden layer with commas between, as in 200,200, not {text!r}"
        ) from None


def _shown(value: object) -> str:
    return (
        ",".join(map(str, value))
        if isinstance(value, tuple)
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )
