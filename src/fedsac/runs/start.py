"""Start runs and take them up again: what `fedsac.run` and its siblings do."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from fedsac.clients.rounds import Absent
from fedsac.config import Config
from fedsac.data.split import Split
from fedsac.errors import FedsacError
from fedsac.runs.folder import Folder
from fedsac.runs.local import LocalEngine
from fedsac.runs.loop import play
from fedsac.runs.result import Result
from fedsac.runs.running import Running
from fedsac.runs.setup import prepare
from fedsac.runs.watcher import Watcher


def nobody_absent(round: int, name: str) -> bool:
    """Nobody drops out."""
    return False


def run(
    config: Config, out: Path | str | None = None, *, overwrite: bool = False, watcher: Watcher | None = None
) -> Result:
    """Carry out one run; with `out`, in that folder, where `resume` can take it up again.

    >>> result = run(Config(rounds=2, clients=3, hidden=(16,)))
    >>> len(result.rewards), sorted(result.results)
    (3, ['best', 'last', 'selected'])
    """
    return run_together([config], [None if out is None else Path(out)], watcher, overwrite=overwrite)[0]


def resume(path: Path | str, *, watcher: Watcher | None = None) -> Result:
    """Take up a run where its last commit left it; it ends with the bytes of an uninterrupted run."""
    return resume_together([Path(path)], watcher)[0]


def run_together(
    configs: Sequence[Config],
    outs: Sequence[Path | None] | None = None,
    watcher: Watcher | None = None,
    *,
    overwrite: bool = False,
    splits: Sequence[Split] | None = None,
    absent: Absent = nobody_absent,
    every_round: bool = True,
) -> list[Result]:
    """Carry out several runs side by side, all their clients in shared stacks. What one run finds does not depend, but
    for rounding, on the others. `splits` replace what the configs would deal out; `absent` says who drops out of a
    round; without `every_round`, commits are made only as often as they cost little. A run that
    fails in its first round or before it, for a reason that the user can put right, leaves no folder behind."""
    places = outs or [None] * len(configs)
    for place in places:
        if place is not None:
            Folder.refuse(place, overwrite=overwrite)  # before minutes go into reading data
    prepared = prepare(configs, splits)
    watcher = watcher or Watcher()
    with ExitStack() as open_folders:
        folders = [
            None if place is None else open_folders.enter_context(Folder.create(place, p.config, overwrite=overwrite))
            for p, place in zip(prepared, places, strict=True)
        ]
        runs = [Running(p, folder) for p, folder in zip(prepared, folders, strict=True)]
        try:
            return play(runs, LocalEngine(watcher, absent), watcher, every_round=every_round)
        except FedsacError:
            for run in runs:
                if run.folder is not None and not run.records:
                    run.folder.discard()
            raise


def resume_together(
    paths: Sequence[Path], watcher: Watcher | None = None, *, every_round: bool = True, keep_models: bool = True
) -> list[Result]:
    """Take up several runs side by side, each where its own last commit left it. Without `keep_models`, a finished
    run's folder keeps the numbers alone."""
    watcher = watcher or Watcher()
    with ExitStack() as open_folders:
        folders = [open_folders.enter_context(Folder.open(path)) for path in paths]
        prepared = prepare([folder.config for folder in folders], new=False)
        runs = [Running(p, folder, keep_models=keep_models) for p, folder in zip(prepared, folders, strict=True)]
        for run in runs:
            run.take_up(watcher.note)
        return play(runs, LocalEngine(watcher, nobody_absent), watcher, every_round=every_round)
