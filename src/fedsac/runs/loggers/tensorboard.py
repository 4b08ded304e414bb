"""Rounds as TensorBoard's scalars, in the folder `tensorboard` of each run; needs the extra `tensorboard`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsac.errors import FedsacError
from fedsac.runs.loggers.folder import folder_of
from fedsac.runs.loggers.numbers import tracked
from fedsac.runs.watcher import RunInfo, Watcher

if TYPE_CHECKING:
    from fedsac.runs.result import Result


class TensorBoardLogger(Watcher):
    """A writer for each run under way. Every round is written out before it is committed."""

    def __init__(self) -> None:
        try:
            import tensorboard  # noqa: F401 - torch's writer needs it
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise FedsacError(f"the log tensorboard needs {error.name}: pip install 'fedsac[tensorboard]'") from None
        self._new_writer = SummaryWriter
        self._writers: dict[Path, SummaryWriter] = {}

    def begin(self, run: RunInfo, records: Sequence[dict[str, Any]]) -> None:
        """Settings as a text, and the rounds there are already. What an earlier process wrote is declared void, from
        step 0 on: it may have logged rounds that were never committed, or none at all."""
        folder = folder_of(run, "tensorboard")
        writer = self._writers[folder] = self._new_writer(str(folder / "tensorboard"), purge_step=0)
        settings = "".join(f"    {line}\n" for line in run.config.toml().splitlines())  # a code block in Markdown
        writer.add_text("config", settings, 0)
        for record in records:
            self._add(run, record)
        writer.flush()

    def round(self, run: RunInfo, record: dict[str, Any]) -> None:
        self._add(run, record).flush()

    def end(self, run: RunInfo, result: "Result") -> None:
        self._writers.pop(folder_of(run, "tensorboard")).close()

    def _add(self, run: RunInfo, record: dict[str, Any]) -> Any:
        writer = self._writers[folder_of(run, "tensorboard")]
        for name, value in tracked(run, record).items():
            writer.add_scalar(name, value, record["round"])
        return writer
