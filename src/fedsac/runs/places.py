"""How to recognise a run's folder, and bytes per parameter. Loads no torch."""

from pathlib import Path

DTYPE_BYTES = {"float32": 4, "float64": 8}
WARNINGS = "warnings.json"  # in a run's folder: what looks wrong with its data


def is_run(path: Path) -> bool:
    """Is this a run's folder: does its config.toml come from this package?"""
    try:
        return (path / "config.toml").read_bytes().startswith(b"format_version")
    except OSError:
        return False
