"""`python -m benchmarks.security attacks OUT` carries out every attack on every method, ours also hardened, each
defence alone, and runs in which clients are missing: on digits, POW, or with `--data fashion-mnist,cifar10 --scenes
pow,dir:1.0 --device cuda` on others. Interrupted, the same command goes on. It ends with OUT/DATA-SCENE.json.

`python -m benchmarks.security privacy OUT` measures what models say about the samples behind them, with and without
differential privacy, and what that costs: OUT/privacy.json.

`python -m benchmarks.security owners OUT` counts how often a thief is taken for the owner of the model that both hand
in: OUT/owners.json.

`python -m benchmarks.security page` writes docs/results/attacks.md, and the tables of docs/security.md and
docs/hardening.md, from docs/results/attacks/*.json and docs/results/owners.json.
"""

import argparse
import signal
import sys
from pathlib import Path

from fedsac.errors import FedsacError

DOCS = Path(__file__).resolve().parents[2] / "docs"


def main(arguments: list[str] | None = None) -> None:
    try:
        chosen = _parsed(arguments)
        chosen.do(chosen)
    except FedsacError as error:
        raise SystemExit(f"security: {error}") from None
    except KeyboardInterrupt:
        print("security: interrupted; the same command goes on", file=sys.stderr)
        raise SystemExit(130) from None


def _parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks.security", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="attacks|privacy|owners|page")
    attacks = commands.add_parser("attacks", help="every attack on every method")
    attacks.add_argument("out", type=Path)
    attacks.add_argument("--data", default="digits", metavar="A,B")
    attacks.add_argument("--scenes", default="pow", metavar="A,B")
    attacks.add_argument("--seeds", type=int, default=5)
    attacks.add_argument("--attacks", default="all", metavar="A,B", help="some of them, where time is short")
    attacks.add_argument("--methods", default="all", metavar="A,B", help="likewise")
    attacks.add_argument("--device", default="cpu", choices=("cpu", "cuda", "auto"))
    attacks.add_argument("--data-dir", metavar="FOLDER")
    attacks.add_argument("--workers", metavar="N", help="processes that share the work, or ray:N")
    attacks.add_argument("--rounds", type=int, help="other than the cell's own, for tries")
    attacks.add_argument(
        "--only",
        metavar="A,B",
        help="parts of the cell's studies, with commas between: ours, defences, others, missing",
    )
    attacks.set_defaults(do=carry_out_attacks)
    privacy = commands.add_parser("privacy", help="membership inference and the price of differential privacy")
    privacy.add_argument("out", type=Path)
    privacy.add_argument("--seeds", type=int, default=5)
    privacy.add_argument(
        "--private-seeds", type=int, default=2, help="of what trains with privacy, which takes longest"
    )
    privacy.add_argument("--data", default="digits,fashion-mnist", metavar="A,B", help="what privacy is priced on")
    privacy.add_argument("--data-dir", metavar="FOLDER")
    privacy.set_defaults(do=measure_privacy)
    owners = commands.add_parser("owners", help="how often a thief is taken for the owner of a model")
    owners.add_argument("out", type=Path)
    owners.add_argument("--seeds", type=int, default=3)
    owners.add_argument("--data", default="all", help="one of those in `owners.SETTINGS`")
    owners.add_argument("--data-dir", metavar="FOLDER")
    owners.set_defaults(do=count_owners)
    page = commands.add_parser(
        "page", help="write docs/results/attacks.md and the tables of security.md and hardening.md from the raw files"
    )
    page.add_argument("--docs", type=Path, default=DOCS, metavar="FOLDER")
    page.set_defaults(do=write_page)
    return parser.parse_args(arguments)


def carry_out_attacks(chosen: argparse.Namespace) -> None:
    from benchmarks.security.attacks import AWAY, PARTS, Cell, Progress, collect
    from fedsac.runs.workers import Workers

    workers = None if chosen.workers is None else Workers.named(chosen.workers)
    changes = {name: getattr(chosen, name) for name in ("device", "data_dir", "rounds")}
    for data in chosen.data.split(","):
        for scene in chosen.scenes.split(","):
            given = {name: value for name, value in changes.items() if value is not None}
            cell = Cell(data, scene, chosen.seeds, chosen.attacks, given, chosen.methods)
            only = chosen.only.split(",") if chosen.only else (*PARTS, AWAY)
            print(collect(cell, chosen.out, Progress(), only, workers), flush=True)


def measure_privacy(chosen: argparse.Namespace) -> None:
    from benchmarks.security.privacy import collect

    data = tuple(chosen.data.split(","))
    print(collect(chosen.out, chosen.seeds, chosen.private_seeds, data, chosen.data_dir))


def count_owners(chosen: argparse.Namespace) -> None:
    from benchmarks.security.owners import SETTINGS, collect

    data = tuple(SETTINGS) if chosen.data == "all" else (chosen.data,)
    print(collect(chosen.out, chosen.seeds, data, chosen.data_dir))


def write_page(chosen: argparse.Namespace) -> None:
    from benchmarks.security import attacks_page, owners, privacy_page

    for page in (attacks_page, owners, privacy_page):
        print(page.write(chosen.docs))


if __name__ == "__main__":
    # Whoever limits the time of a command ends it with SIGTERM: that, too, is an interruption that keeps all rounds.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    main()
