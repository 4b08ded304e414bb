"""The one exception that is meant for users."""


class FedsacError(Exception):
    """An error that the user can fix. Its text is one line: what is wrong, where, and what to do.

    The command line prints it as it is and exits with status 2; the Python API raises it.
    """
