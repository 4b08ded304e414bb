"""The exceptions that are meant for users."""

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path


class FedsacError(Exception):
    """An error that the user can fix. Its text is one line: what is wrong, where, and what to do.

    The command line prints it as it is and exits with status 2; the Python API raises it.
    """


class Wrecked(FedsacError):
    """A model whose loss is no number any more, so that its run cannot go on: of honest clients `lr` was too large,
    hostile ones have wrecked it. `folder` is the run's, where it has one."""

    folder: Path | None = None


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The hint behind a name that is none of `names`: nothing, where none is close.

    >>> did_you_mean("dri", ["pow", "dir"])
    ' (did you mean dir?)'
    """
    near = get_close_matches(name, names, n=1)
    return f" (did you mean {near[0]}?)" if near else ""
