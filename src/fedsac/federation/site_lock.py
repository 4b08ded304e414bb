"""One process at a time in a site's folder."""

from collections.abc import Iterator
from contextlib import contextmanager

from fedsac.errors import FedsacError
from fedsac.federation.folder import SiteSettings


@contextmanager
def locked(settings: SiteSettings) -> Iterator[None]:
    """Lock a site's folder: one process at a time."""
    try:
        import fcntl
    except ImportError:  # Windows: no lock
        yield
        return
    with (settings.path / "lock").open("wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise FedsacError(
                f"site {settings.name} is running already, from {settings.path}; stop that one first"
            ) from None
        yield
