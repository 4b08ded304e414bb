"""The exceptions that are meant for users."""

from pathlib import Path


class FedsacError(Exception):
    """An error that the user can fix. Its text is one line: what is wrong, where, and what to do.

    The command line prints it as it is and exits with status 2; the Python API raises it.
    """


class Wrecked(FedsacError):
    """A model whose loss is no number any more, so that its run cannot go on: of honest clients `lr` was too large,
    hostile ones have wrecked it. `folder` is the run's, where it has one."""

    folder: Path | None = None
