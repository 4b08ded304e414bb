"""The command: `fedsac run | compare | methods | paper | report | data | predict | export | inspect | federation`."""

import argparse
import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import NoReturn

from fedsac.errors import FedsacError
from fedsac.version import __version__


class _Parser(argparse.ArgumentParser):
    """Reports wrong usage in one line, without the list of all options."""

    def error(self, message: str) -> NoReturn:
        raise FedsacError(f"{message} (see {self.prog} --help)")


def parser() -> argparse.ArgumentParser:
    from fedsac.cli import compare, data, federation, inspect, models, paper, report, run

    top = _Parser(
        prog="fedsac",
        description="Collaborative fairness in federated learning: each client is paid with a submodel as good as "
        "its contribution.",
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"fedsac {__version__}")
    commands = top.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    for module in (run, compare, paper, report, data, models, inspect, federation):
        module.add(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status. 0: done; 2: an error, reported in one line; 130: interrupted."""
    _let_term_interrupt()
    try:
        chosen = parser().parse_args(arguments)
        chosen.do(chosen)
    except FedsacError as error:
        print(f"fedsac: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except (OSError, MemoryError, OverflowError) as error:
        if isinstance(error, BrokenPipeError):
            # The reader has closed the pipe (`| head`): stop quietly, and keep Python from complaining about stdout.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 141
        print(f"fedsac: {type(error).__name__}: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("fedsac: interrupted", file=sys.stderr)
        return 130
    return 0


def _let_term_interrupt() -> None:
    """Treat SIGTERM like Ctrl-C: completed rounds are committed before the program ends."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)
