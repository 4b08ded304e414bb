"""Carrying out the runs that the paper's tables need: many at once, each in its own folder, none twice."""

import hashlib
import json
import os
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import torch

from fedsac.atomic import write_atomic
from fedsac.config import FORMAT_VERSION, RULES, Config, check_rules, read
from fedsac.errors import FedsacError
from fedsac.paper.experiments import FIGURE_SCENES
from fedsac.paper.results import Results, summarise
from fedsac.runs.spread import resume_spread
from fedsac.runs.start import resume_together
from fedsac.runs.watcher import Watcher
from fedsac.runs.workers import Workers, spread
from fedsac.version import __version__

CHANGEABLE_SETTINGS = ("device", "threads", "data_dir")  # that may change when runs are resumed
SECONDS_FILE = "seconds.json"  # the time spent on all runs so far


def carry_out(configs: Sequence[Config], out: Path, watcher: Watcher, workers: Workers | None = None) -> None:
    """Complete every run in a folder of its own below `out`. Finished runs are not repeated, interrupted ones are
    resumed; runs on one data set train together in one stack, or, with `workers`, in several."""
    todo = begun(configs, out)
    if workers is not None and not workers.ray:
        with _timed(out):
            resume_spread(stacks([(todo, out)]), workers.processes, watcher, every_round=False, keep_models=False)
        return
    for _, group in groupby(todo, _group):
        runs = {run_folder(out, config): config for config in group}
        with _timed(out):
            if workers is not None:
                spread(runs, workers, watcher, keep_models=False)
            else:
                resume_together(list(runs), watcher, every_round=False, keep_models=False)


def begun(configs: Sequence[Config], out: Path) -> list[Config]:
    """The runs that are not finished, each with a folder below `out` from which it can be taken up."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        todo = unfinished(configs, out)
        for config in todo:
            _write_config(out, config)
    except OSError as error:
        raise FedsacError(f"{out}: cannot be written ({error.strerror}); name another folder") from None
    # Runs with the same clients next to each other: then they can share the drawn batches.
    return sorted(todo, key=lambda config: (*_stack(config), config.seed))


def stacks(parts: Iterable[tuple[Sequence[Config], Path]]) -> list[list[Path]]:
    """The folders of runs (each part with the folder that they lie below) as stacks for several processes: those on one
    scene together."""
    found = [(list(stack), out) for configs, out in parts for _, stack in groupby(configs, _stack)]
    # The largest first: what is left at the end is small, and no process works long alone.
    found.sort(key=lambda each: -sum(config.clients or 0 for config in each[0]))
    return [[run_folder(out, config) for config in stack] for stack, out in found]


def collected(configs: Sequence[Config], out: Path, *, quick: bool) -> Results:
    """The results of all runs that are finished; the others are left out."""
    done = [config for config in configs if _finished(out, config)]
    runs = [summarise(run_folder(out, config), config, curve=_keeps_curve(config)) for config in done]
    return Results(provenance(out, configs, quick), tuple(runs))


def unfinished(configs: Sequence[Config], out: Path) -> list[Config]:
    return [config for config in configs if not _finished(out, config)]


def _keeps_curve(config: Config) -> bool:
    """Whether the results keep every evaluated round of this run: Figure 5 shows them."""
    return config.method == "fedsac" and config.seed == 0 and (config.data, config.scene) in FIGURE_SCENES["figure5"]


def _group(config: Config) -> tuple[str, int]:
    """Runs with the same key train together."""
    # Runs with many clients apart: they fill a device by themselves, and what an interruption costs is less.
    assert config.clients is not None
    return config.data, config.clients


def _stack(config: Config) -> tuple[str, int, str]:
    """Runs with the same key train together where several processes share the work."""
    return *_group(config), str(config.scene)


@contextmanager
def _timed(out: Path) -> Iterator[None]:
    """Add the time that passes inside the `with` block to the folder's."""
    start = time.monotonic()
    try:
        yield
    finally:
        add_seconds(out, time.monotonic() - start)


def run_folder(out: Path, config: Config) -> Path:
    """Where `carry_out` puts a run."""
    assert config.scene is not None
    scene = config.scene.replace(":", "")
    return (
        out / "runs" / f"{config.data}-{scene}-{config.clients}-{config.method}-beta{config.beta:g}-seed{config.seed}"
    )


def _finished(out: Path, config: Config) -> bool:
    folder = run_folder(out, config)
    if not (folder / "config.toml").exists():
        return False
    begun = Config(**read(folder / "config.toml"))
    same = {name: getattr(config, name) for name in CHANGEABLE_SETTINGS}
    if begun.replace(**same) != config:
        raise FedsacError(f"{folder} holds a run with other settings; name another folder with --out, or remove it")
    check_rules(folder / "config.toml")
    return (folder / "summary.json").exists()


def _write_config(out: Path, config: Config) -> None:
    """Create a run's folder with its config, from which `resume_together` starts or resumes it. One that is there is
    written anew (unlike `begin_folder`'s): device and place of the data may be others than when it was begun."""
    folder = run_folder(out, config)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / "config.toml", config.toml().encode(), durable=False)


def add_seconds(out: Path, seconds: float) -> None:
    """Count so many seconds of work on the runs in a folder."""
    write_atomic(
        out / SECONDS_FILE, json.dumps({"format_version": FORMAT_VERSION, "seconds": _seconds(out) + seconds}).encode()
    )


def _seconds(out: Path) -> float:
    try:
        return float(json.loads((out / SECONDS_FILE).read_text())["seconds"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0.0


def provenance(out: Path, configs: Sequence[Config], quick: bool) -> dict[str, Any]:
    """How the results were made: versions, device, time."""
    device = configs[0].device if configs else "cpu"
    cuda = device == "cuda" or (device == "auto" and torch.cuda.is_available())
    return {
        "fedsac": __version__,
        "rules": RULES,
        "commit": _commit(),
        "source": _source(),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if cuda else f"CPU, {torch.get_num_threads()} threads",
        "seconds": round(_seconds(out), 1),
        "quick": quick,
    } | ({"split seed": split} if (split := configs[0].split_seed if configs else None) is not None else {})


def _commit() -> str | None:
    """The commit of the checkout this runs from, if it is one; FEDSAC_COMMIT names it where there is no git."""
    named = os.environ.get("FEDSAC_COMMIT")
    if named:
        return named
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=12", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _source() -> str:
    """A hash of the package's source files: equal sources give equal numbers."""
    digest = hashlib.sha256()
    package = Path(__file__).parent.parent
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]
