"""The command: `fedsac run | compare | sweep | attack | methods | paper | report | data | schema | predict | export |
inspect | federation`."""

import argparse
import os
import re
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

from fedsac import interrupts
from fedsac.errors import FedsacError, did_you_mean
from fedsac.version import __version__

SHOW_TRACEBACK = "FEDSAC_TRACEBACK"  # in the environment, for authors of methods and functions of their own
MAX_MESSAGE = 2000  # characters


class _Parser(argparse.ArgumentParser):
    """Reports wrong usage in one line, without the list of all options, and says what may have been meant."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """What is left over is an error here, where the command's own flags are known, and not further up."""
        chosen, left = super().parse_known_args(args, namespace)
        if left:
            flag = next((one.partition("=")[0] for one in left if one.startswith("-")), "")
            flags = [name for action in self._actions for name in action.option_strings]
            self.error(f"unrecognized arguments: {' '.join(left)}{did_you_mean(flag, flags)}")
        return chosen, left

    def error(self, message: str) -> NoReturn:
        if wrong := re.search(r"invalid choice: '(.+)' (?=\(choose from (.+)\))", message):
            hint = did_you_mean(wrong[1], re.findall(r"[\w-]+", wrong[2]))
            message = f"{message[: wrong.end() - 1]}{hint}{message[wrong.end() - 1 :]}"
        raise FedsacError(f"{message} (see {self.prog} --help)")


def parser() -> argparse.ArgumentParser:
    from fedsac.cli import attack, compare, data, federation, inspect, models, paper, report, run, schema, sweep

    top = _Parser(
        prog="fedsac",
        description="Collaborative fairness in federated learning: each client is paid with a submodel as good as "
        "its contribution.",
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"fedsac {__version__}")
    commands = top.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    for module in (run, compare, sweep, attack, paper, report, data, schema, models, inspect, federation):
        module.add(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status. 0: done; 2: an error, reported in one line; 130: interrupted."""
    try:
        interrupts.install(ready=True)
        chosen = parser().parse_args(_with_values(sys.argv[1:] if arguments is None else arguments))
        chosen.do(chosen)
    except BrokenPipeError:
        # The reader has closed the pipe (`| head`): stop quietly, and keep Python from complaining about stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        print("fedsac: interrupted", file=sys.stderr)
        return 130
    except Exception as error:  # reported, and shown whole to who asks for it
        if SHOW_TRACEBACK in os.environ and not isinstance(error, FedsacError | OSError | MemoryError):
            raise
        text = " ".join(_in_words(error).split())
        print(f"fedsac: {text if len(text) <= MAX_MESSAGE else text[:MAX_MESSAGE] + ' ...'}", file=sys.stderr)
        return 2
    return 0


def _with_values(arguments: Sequence[str]) -> Sequence[str]:
    """The arguments, unless one of them is a flag whose value argparse would take for a separator and lose."""
    for argument in arguments:
        if argument.startswith("--") and argument.endswith("=--"):
            raise FedsacError(f"{argument.removesuffix('=--')} takes a value, and -- is none")
    return arguments


def _in_words(error: Exception) -> str:
    """An error as the user reads it, in one line."""
    if isinstance(error, FedsacError):
        return str(error)
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "memory" in str(error)):
        return f"there is not enough memory: lower --clients, --hidden or --batch ({error})"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}" + ("" if error.filename is None else f": {error.filename!s:.200}")
    last = traceback.extract_tb(error.__traceback__)[-1]
    return (
        f"{type(error).__name__}: {error} (in {last.filename}, line {last.lineno}; with {SHOW_TRACEBACK}=1 in the "
        "environment the whole way there is shown)"
    )
