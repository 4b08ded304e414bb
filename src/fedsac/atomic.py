"""Atomic writes: a file is there whole or not at all."""

import os
from contextlib import suppress
from pathlib import Path


def write_atomic(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Write `content` to `path` by a rename, so that no reader sees a part of it; `durable`: also after a power cut."""
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise
    if durable:
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
