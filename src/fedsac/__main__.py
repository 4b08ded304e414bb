"""`python -m fedsac` is `fedsac`: the command as a program of its own."""

import sys

from fedsac import interrupts


def program() -> int:
    """Run the command that the arguments name; returns the exit status."""
    try:
        interrupts.install(ready=False)
        from fedsac.cli import main

        return main()
    except KeyboardInterrupt:  # in the instant after the command
        return 130
    finally:
        interrupts.ignore()


if __name__ == "__main__":
    sys.exit(program())
