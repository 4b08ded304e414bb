"""Parts of one-line error messages that make text from files and from other libraries safe to print."""

from pathlib import Path

from fedsac.errors import FedsacError


def shown(text: str) -> str:
    """Text from a file: quoted, control characters escaped, cut to 40 characters."""
    return repr(text if len(text) <= 40 else text[:37] + "...")


def some(names: list[str] | tuple[str, ...]) -> str:
    """Names from a file as a list; of more than eight only the first."""
    text = ", ".join(shown(name) for name in names[:8]) or "none"
    return text if len(names) <= 8 else f"{text}, ... ({len(names)} in all)"


def cause(err: Exception) -> str:
    """The message of another library's exception, on one line."""
    text = "".join(c if c.isprintable() else " " for c in str(err))
    return " ".join(text.split())[:200] or type(err).__name__


def unreadable(path: Path, err: OSError) -> FedsacError:
    """The error for a file that the operating system could not read."""
    return FedsacError(f"{path}: cannot be read ({err.strerror or err}); check the path and its permissions")
