"""Where a method's paper and its published code differ, which of them is meant: the option `reading`."""

from collections.abc import Sequence

from fedsac.errors import FedsacError


def check_reading(reading: str, readings: Sequence[str] = ("code", "paper")) -> None:
    """Raise where a method does not have this reading. Which there are, and how they differ: docs/conformance.md."""
    if reading not in readings:
        raise FedsacError(f"reading must be {' or '.join(readings)}, not {reading!r}")
