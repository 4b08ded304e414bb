"""The folder that a log is written into."""

from pathlib import Path

from fedsac.errors import FedsacError
from fedsac.runs.watcher import RunInfo


def folder_of(run: RunInfo, log: str) -> Path:
    """The run's folder, for a log that cannot do without."""
    if run.folder is None:
        raise FedsacError(
            f"the log {log} is written into the run's folder; name one, as in fedsac.run(config, 'runs/1')"
        )
    return run.folder
