"""A run's folder recognised, and bytes counted, without loading torch."""

from pathlib import Path

DTYPE_BYTES = {"float32": 4, "float64": 8}


def is_run(path: Path) -> bool:
    """Is there a config of a run's, and not somebody else's file of that name?"""
    try:
        return (path / "config.toml").read_bytes().startswith(b"format_version")
    except OSError:
        return False
