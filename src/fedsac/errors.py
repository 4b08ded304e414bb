"""The one exception that is meant for the person at the keyboard."""


class FedsacError(Exception):
    """Something the user can put right. Its text is one line: what is wrong, where, and what to do.

    The command prints it as it is and exits with 2; the Python API raises it.
    """
