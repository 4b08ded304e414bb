"""Pieces of one-line messages: text and causes that come from outside may hold anything."""

from pathlib import Path

from fedsac.errors import FedsacError


def shown(text: str) -> str:
    """Text out of a file: quoted, control characters escaped, cut to what fits a message."""
    return repr(text if len(text) <= 40 else text[:37] + "...")


def some(names: list[str] | tuple[str, ...]) -> str:
    """Names out of a file, the first few of many."""
    text = ", ".join(shown(name) for name in names[:8]) or "none"
    return text if len(names) <= 8 else f"{text}, ... ({len(names)} in all)"


def cause(err: Exception) -> str:
    """What another library says went wrong, on one line."""
    text = "".join(c if c.isprintable() else " " for c in str(err))
    return " ".join(text.split())[:200] or type(err).__name__


def unreadable(path: Path, err: OSError) -> FedsacError:
    """The message for a file the system will not give us."""
    return FedsacError(f"{path}: cannot be read ({err.strerror or err}); check the path and its permissions")
