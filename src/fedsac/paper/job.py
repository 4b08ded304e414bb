"""Carry out the runs behind the paper's tables: many at once, each in its own folder, never one twice."""

import hashlib
import json
import os
import subprocess
import time
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import torch

from fedsac.atomic import write_atomic
from fedsac.config import FORMAT_VERSION, Config, read
from fedsac.errors import FedsacError
from fedsac.paper.experiments import DRAWN
from fedsac.paper.results import Results, boiled_down
from fedsac.runs.start import resume_together
from fedsac.runs.watcher import Watcher
from fedsac.version import __version__

ELSEWHERE = ("device", "threads", "data_dir")  # settings that may change between two sittings
CLOCK = "seconds.json"


def carry_out(configs: Sequence[Config], out: Path, watcher: Watcher) -> None:
    """Bring every run to its end in a folder of its own below `out`. What is finished is left alone, what was begun
    goes on; runs of one data set share one stack."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        todo = [config for config in configs if not _finished(out, config)]
        for config in todo:
            _begun(out, config)
    except OSError as error:
        raise FedsacError(f"{out}: cannot be written ({error.strerror}); name another folder") from None
    # Runs with the same clients next to each other: they share draws, if they train side by side.
    todo.sort(key=lambda config: (*_together(config), str(config.scene), config.clients, config.seed))
    for _, group in groupby(todo, _together):
        start = time.monotonic()
        try:
            resume_together([_folder(out, config) for config in group], watcher, every_round=False, keep_models=False)
        finally:
            _clock(out, time.monotonic() - start)


def collected(configs: Sequence[Config], out: Path, *, quick: bool) -> Results:
    """What the finished runs found; those that are not there are left out."""
    done = [config for config in configs if _finished(out, config)]
    runs = [boiled_down(_folder(out, config), config, curve=_drawn(config)) for config in done]
    return Results(_made(out, configs, quick), tuple(runs))


def unfinished(configs: Sequence[Config], out: Path) -> list[Config]:
    return [config for config in configs if not _finished(out, config)]


def _drawn(config: Config) -> bool:
    """Is this a run of Figure 5, of which every evaluated round is kept?"""
    return config.method == "fedsac" and config.seed == 0 and (config.data, config.scene) in DRAWN["figure5"]


def _together(config: Config) -> tuple[str, bool]:
    # Those with many clients apart: they alone fill a device.
    assert config.clients is not None
    return config.data, config.clients > 10


def _folder(out: Path, config: Config) -> Path:
    assert config.scene is not None
    scene = config.scene.replace(":", "")
    return (
        out / "runs" / f"{config.data}-{scene}-{config.clients}-{config.method}-beta{config.beta:g}-seed{config.seed}"
    )


def _finished(out: Path, config: Config) -> bool:
    folder = _folder(out, config)
    if not (folder / "config.toml").exists():
        return False
    begun = Config(**read(folder / "config.toml"))
    same = {name: getattr(config, name) for name in ELSEWHERE}
    if begun.replace(**same) != config:
        raise FedsacError(f"{folder} holds a run with other settings; name another folder with --out, or remove it")
    return (folder / "summary.json").exists()


def _begun(out: Path, config: Config) -> None:
    """A folder with the run's config, from which it can be taken up."""
    folder = _folder(out, config)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / "config.toml", config.toml().encode(), durable=False)


def _clock(out: Path, seconds: float) -> None:
    write_atomic(
        out / CLOCK, json.dumps({"format_version": FORMAT_VERSION, "seconds": _seconds(out) + seconds}).encode()
    )


def _seconds(out: Path) -> float:
    try:
        return float(json.loads((out / CLOCK).read_text())["seconds"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0.0


def _made(out: Path, configs: Sequence[Config], quick: bool) -> dict[str, Any]:
    device = configs[0].device if configs else "cpu"
    cuda = device == "cuda" or (device == "auto" and torch.cuda.is_available())
    return {
        "fedsac": __version__,
        "commit": _commit(),
        "source": _source(),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if cuda else f"CPU, {torch.get_num_threads()} threads",
        "seconds": round(_seconds(out), 1),
        "quick": quick,
    }


def _commit() -> str | None:
    """The commit of the checkout this runs from, if it is one; FEDSAC_COMMIT names it where there is no git."""
    named = os.environ.get("FEDSAC_COMMIT")
    if named:
        return named
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=12", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()


def _source() -> str:
    """A hash of the program's own files: the same numbers can be expected from the same source."""
    digest = hashlib.sha256()
    package = Path(__file__).parent.parent
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]
