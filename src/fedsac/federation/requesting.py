"""Whether a run was asked for, and why it has stopped: two files in the coordinator's folder.

The reason is written into the very file that asked for the run, which then changes its name: on a full disk there is no
room for another.
"""

import os

from fedsac.federation.folder import Federation

REQUESTED_FILE = "requested"  # in server/: exists while a run was asked for and is not over
FAILED_FILE = "failed"  # in server/: the error that ended the last run before it was over
ROOM = 4096  # bytes for the reason


def request(federation: Federation) -> None:
    """Ask for a run, or for it to go on."""
    (federation.server / FAILED_FILE).unlink(missing_ok=True)
    if not is_requested(federation):
        (federation.server / REQUESTED_FILE).write_bytes(b" " * ROOM)


def is_requested(federation: Federation) -> bool:
    return (federation.server / REQUESTED_FILE).exists()


def withdraw(federation: Federation) -> None:
    """The run is over."""
    (federation.server / REQUESTED_FILE).unlink(missing_ok=True)


def stop(federation: Federation, reason: str) -> None:
    """The run has stopped, and does not go on before somebody asks for it again."""
    path = federation.server / REQUESTED_FILE
    text = " ".join(reason.split()).encode()[:ROOM].ljust(ROOM)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    path.replace(federation.server / FAILED_FILE)


def stopped(federation: Federation) -> str:
    """Why the last run has stopped before it was over; empty if it has not."""
    path = federation.server / FAILED_FILE
    return path.read_text(encoding="utf-8", errors="replace").strip() if path.exists() else ""
