"""Start runs and take them up again: what `fedsac.run` and its siblings do."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from fedsac.clients.rounds import Absent
from fedsac.config import Config
from fedsac.data.dataset import DataSet
from fedsac.data.files.memory import GIVEN
from fedsac.data.schema.files import read_schema
from fedsac.data.split import Split
from fedsac.data.tabular import load_memory
from fedsac.errors import FedsacError
from fedsac.runs.folder import Folder
from fedsac.runs.hardening import refuse_longer
from fedsac.runs.local import LocalEngine
from fedsac.runs.loop import play
from fedsac.runs.notebook import progress
from fedsac.runs.prepared import Prepared
from fedsac.runs.result import Result
from fedsac.runs.running import Running
from fedsac.runs.setup import prepare
from fedsac.runs.watcher import Watcher


def nobody_absent(round: int, name: str) -> bool:
    """Nobody drops out."""
    return False


def run(
    config: Config,
    out: Path | str | None = None,
    *,
    data: Any = None,
    overwrite: bool = False,
    watcher: Watcher | None = None,
) -> Result:
    """Carry out one run; with `out`, in that folder, where `resume` can take it up again.

    `data`, instead of what the config names: x, y or x, y, x_test, y_test as arrays; a DataFrame with a label column
    (`Config(label=...)`), or two; or silos, a dict of such by client, with `validation` and perhaps `test`. In a
    notebook progress is shown, unless another `watcher` is given.

    >>> result = run(Config(rounds=2, clients=3, hidden=(16,)))
    >>> len(result.rewards), sorted(result.results)
    (3, ['best', 'last', 'selected'])
    """
    place = None if out is None else Path(out)
    return run_together([config], [place], watcher, overwrite=overwrite, data=data)[0]


def resume(path: Path | str, *, rounds: int | None = None, data: Any = None, watcher: Watcher | None = None) -> Result:
    """Take up a run where its last commit left it; it ends with the bytes of an uninterrupted run.

    A finished run goes on until it has had so many `rounds`. Its contributions stay what they were, measured with as
    many steps alone as the shorter run had (`standalone_steps`, which is then written into its config). A run whose
    `data` was given in memory needs the same again.
    """
    if rounds is not None:
        with Folder.open(Path(path)) as folder:
            longer = folder.longer(rounds)
            # Before anything is changed: whatever is refused must not cost the run that is there.
            prepared = prepare([longer], new=False, data=_in_memory(data, longer))[0]
            there = Running(prepared, folder)
            there.take_up((watcher or Watcher()).note)
            refuse_longer(there)
            folder.lengthen(longer)
    return resume_together([Path(path)], watcher, data=data)[0]


def run_together(
    configs: Sequence[Config],
    outs: Sequence[Path | None] | None = None,
    watcher: Watcher | None = None,
    *,
    overwrite: bool = False,
    splits: Sequence[Split] | None = None,
    data: Any = None,
    absent: Absent = nobody_absent,
    every_round: bool = True,
) -> list[Result]:
    """Carry out several runs side by side, all their clients in shared stacks. What one run finds does not depend, but
    for rounding, on the others. `data` is as for `run`, the same for all; `splits` replace what the configs would deal
    out; `absent` says who drops out of a round; without `every_round`, commits are made only as often as they cost
    little. A run that fails in its first round or before it, for a reason that the user can put right, leaves no folder
    behind."""
    places = outs or [None] * len(configs)
    _check_together(configs, places, splits)
    for place in places:
        if place is not None:
            Folder.refuse(place, overwrite=overwrite)  # before minutes go into reading data
    if data is not None:
        configs = [config.replace(data=GIVEN) for config in configs]
    prepared = prepare(configs, splits, data=_in_memory(data, configs[0]))
    watcher = watcher or progress()
    with ExitStack() as open_folders:
        folders = [
            None if place is None else open_folders.enter_context(Folder.create(place, p.config, overwrite=overwrite))
            for p, place in zip(prepared, places, strict=True)
        ]
        _warn(prepared, folders, watcher)
        runs = [Running(p, folder) for p, folder in zip(prepared, folders, strict=True)]
        try:
            return play(runs, LocalEngine(watcher, absent), watcher, every_round=every_round)
        except FedsacError:
            for run in runs:
                if run.folder is not None and not run.records:
                    run.folder.discard()
            raise


def _warn(prepared: Sequence[Prepared], folders: Sequence[Folder | None], watcher: Watcher) -> None:
    """Say what looks wrong with the data, before anything is trained on it, and leave it in the folders."""
    said: dict[int, tuple[str, ...]] = {}
    for own, folder in zip(prepared, folders, strict=True):
        data = own.split.data
        if id(data) not in said:
            said[id(data)] = own.warnings
            for line in said[id(data)]:
                watcher.note(f"warning: {line}")
        if folder is not None and said[id(data)]:
            folder.warn(said[id(data)])


def _in_memory(data: Any, config: Config) -> DataSet | None:
    """The data set of what was given, if something was."""
    if data is None:
        return None
    if config.data != GIVEN:
        raise FedsacError(f"this run began with the data {config.data}; leave data out")
    schema = None if config.schema is None else read_schema(Path(config.schema))
    return load_memory(data, config.label, schema)


def _check_together(configs: Sequence[Config], outs: Sequence[Path | None], splits: Sequence[Split] | None) -> None:
    """Raise unless these are configs, at least one, with a folder and, where given, a split for each."""
    for config in configs:
        if not isinstance(config, Config):
            raise FedsacError(f"a run is described by a fedsac.Config, as in Config(rounds=20), not by {config!r:.60}")
    counts = {"configs": len(configs), "folders": len(outs)} | ({} if splits is None else {"splits": len(splits)})
    if not configs or len(set(counts.values())) > 1:
        listed = ", ".join(f"{count} {what}" for what, count in counts.items())
        raise FedsacError(f"runs need a folder (or None) and a split for each config, at least one, not {listed}")
    named = [Path(out).resolve() for out in outs if out is not None]
    if len(set(named)) < len(named):
        raise FedsacError("two of these runs have the same folder; give each its own")


def resume_together(
    paths: Sequence[Path],
    watcher: Watcher | None = None,
    *,
    data: Any = None,
    every_round: bool = True,
    keep_models: bool = True,
) -> list[Result]:
    """Take up several runs side by side, each where its own last commit left it. Without `keep_models`, a finished
    run's folder keeps the numbers alone."""
    watcher = watcher or progress()
    with ExitStack() as open_folders:
        folders = [open_folders.enter_context(Folder.open(path)) for path in paths]
        configs = [folder.config for folder in folders]
        prepared = prepare(configs, new=False, data=_in_memory(data, configs[0]))
        runs = [Running(p, folder, keep_models=keep_models) for p, folder in zip(prepared, folders, strict=True)]
        for run in runs:
            run.take_up(watcher.note)
        return play(runs, LocalEngine(watcher, nobody_absent), watcher, every_round=every_round)
