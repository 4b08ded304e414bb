"""Runs that an attack has ended: their model was wrecked. The others of their stack go on without them, and what became
of them is written down in their folders."""

import json
from collections.abc import Sequence
from pathlib import Path

from fedsac.atomic import write_atomic
from fedsac.config import FORMAT_VERSION
from fedsac.errors import Wrecked
from fedsac.runs.start import resume_together
from fedsac.runs.watcher import Watcher

FILE = "wrecked.json"


def resume_but_wrecks(paths: Sequence[Path], watcher: Watcher, *, every_round: bool, keep_models: bool) -> None:
    """Take up several runs side by side; whose model is wrecked on the way is marked, and left behind."""
    left = [path for path in paths if not is_wrecked(path)]
    while left:
        try:
            resume_together(left, watcher, every_round=every_round, keep_models=keep_models)
            return
        except Wrecked as error:
            whose = [path for path in left if error.folder is not None and path.resolve() == error.folder.resolve()]
            if not whose:
                raise
            told = {"format_version": FORMAT_VERSION, "what": str(error)}
            write_atomic(whose[0] / FILE, (json.dumps(told) + "\n").encode())
            watcher.note(f"{whose[0].name}: the model is wrecked, and the run ends: {error}")
            left.remove(whose[0])


def is_wrecked(path: Path) -> bool:
    """Whether the run in this folder was ended so."""
    return (path / FILE).exists()
