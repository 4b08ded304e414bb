"""Two readings of a method: its paper's text, and its authors' published code, where the two differ."""

from fedsac.errors import FedsacError

READINGS = ("code", "paper")


def check_reading(reading: str) -> None:
    """Raise where this is not a reading."""
    if reading not in READINGS:
        raise FedsacError(f"reading must be {' or '.join(READINGS)}, not {reading!r}")
