"""Runs spread over several workers, each with a stack of its own: processes of this machine (`fedsac.runs.spread`), or
processes that Ray starts on the machines, and on the GPUs, that it knows of. What crosses to a worker is settings and
folders, as text; what comes back lies in the folders, which all machines must see under the same path."""

import json
import logging
import os
import signal
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsac.atomic import write_atomic
from fedsac.config import Config, settings_in
from fedsac.errors import FedsacError
from fedsac.runs.places import is_run
from fedsac.runs.setup import shared_setup
from fedsac.runs.spread import resume_spread
from fedsac.runs.start import resume_together, run_together
from fedsac.runs.watcher import Watcher
from fedsac.runs.wrecks import resume_but_wrecks

SECONDS_TO_COMMIT = 120  # that an interrupted worker has for it
STORE_BYTES = 100 << 20  # of Ray's memory for objects, of which we have none
MOST_WORKERS = 1000
RETRIES = 2  # of a worker that is killed: it goes on from the last commits


@dataclass(frozen=True)
class Workers:
    """`count` workers; by Ray, None is one for each GPU or, on CPUs, for each machine."""

    count: int | None = None
    ray: bool = True

    @classmethod
    def named(cls, text: str) -> "Workers":
        """From the command line: `4`, `ray`, or `ray:2`."""
        by_ray = text.partition(":")[0] == "ray"
        number = text.removeprefix("ray:") if by_ray else text
        if text != "ray" and not (number.isascii() and number.isdigit() and 1 <= int(number[:9]) <= MOST_WORKERS):
            raise FedsacError(
                f"workers must be a number from 1 to {MOST_WORKERS}, ray, or ray:NUMBER, not {text[:40]!r}"
            )
        return cls(None if text == "ray" else int(number), by_ray)

    @property
    def processes(self) -> int:
        """How many processes of this machine, where it is not Ray that starts them."""
        return self.count or 1


def spread(
    configs: Mapping[Path, Config],
    workers: Workers,
    watcher: Watcher,
    *,
    keep_models: bool = True,
    but_wrecks: bool = False,
) -> None:
    """Carry out the runs in these folders, or go on with them, in workers; each commits as it would here. Interrupted,
    the workers commit before this raises `KeyboardInterrupt`; one that is killed is started again."""
    if not workers.ray:
        for path, config in configs.items():
            begin_folder(path, config)
        parts = shards(configs, workers.processes)
        resume_spread(
            parts, workers.processes, watcher, every_round=False, keep_models=keep_models, but_wrecks=but_wrecks
        )
        return
    device = next(iter(configs.values())).device
    with _ray(workers) as ray:
        resources = ray.cluster_resources()
        gpus = int(resources.get("GPU", 0)) if device != "cpu" else 0
        if device == "cuda" and not gpus:
            raise FedsacError("device cuda: Ray knows of no GPU; use --device cpu, or start Ray where there are some")
        wanted = workers.count or gpus or len(ray.nodes())
        parts = shards(configs, wanted)
        share = {"num_gpus": min(1.0, gpus / len(parts))} if gpus else {}
        threads = max(1, int(resources.get("CPU", 1)) // len(parts))
        begin = ray.remote(_work).options(num_cpus=threads, max_retries=RETRIES, **share)
        watcher.note(f"{len(parts)} workers by Ray, of {' and '.join(str(len(part)) for part in parts)} runs")
        tasks = {begin.remote(_packed(part, configs, keep_models, but_wrecks)): len(part) for part in parts}
        _wait(ray, tasks, watcher)


def shards(configs: Mapping[Path, Config], count: int) -> list[list[Path]]:
    """The runs in at most `count` parts of about equal numbers. Runs whose clients are the same stand alone only once
    if they are in one part: they are kept together, unless parts would be empty."""
    alike: dict[str, list[Path]] = defaultdict(list)
    for path, config in configs.items():
        alike[shared_setup(config)].append(path)
    groups = list(alike.values())
    if len(groups) < count:
        groups = [[path] for group in groups for path in group]
    parts: list[list[Path]] = [[] for _ in range(min(count, len(groups)))]
    for group in sorted(groups, key=len, reverse=True):
        min(parts, key=len).extend(group)
    return parts


def _packed(part: Sequence[Path], configs: Mapping[Path, Config], keep_models: bool, but_wrecks: bool) -> str:
    runs = {str(path.resolve()): configs[path].toml() for path in part}
    return json.dumps({"runs": runs, "keep_models": keep_models, "but_wrecks": but_wrecks, "cwd": str(Path.cwd())})


def _work(packed: str) -> str | None:
    """In a worker: carry out its runs; returns the error that a user can put right, if there is one."""
    told = json.loads(packed)
    if threading.current_thread() is threading.main_thread():
        # Ray cancels by it; a worker whose driver was begun in the background would ignore it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if Path(told["cwd"]).is_dir():
        os.chdir(told["cwd"])  # data may be named by a relative path
    texts = {Path(path): text for path, text in told["runs"].items()}
    try:
        configs = [Config(**settings_in(text, path)) for path, text in texts.items()]
        if told["keep_models"] and not any(map(is_run, texts)):
            run_together(configs, list(texts), Watcher(), every_round=False)
        else:
            for path, config in zip(texts, configs, strict=True):
                begin_folder(path, config)
            resume = resume_but_wrecks if told["but_wrecks"] else resume_together
            resume(list(texts), Watcher(), every_round=False, keep_models=told["keep_models"])
    except FedsacError as error:
        return str(error)
    return None


def begin_folder(path: Path, config: Config) -> None:
    """The folder of a run that is still to begin, as `resume_together` takes it up; one that is there stays."""
    if not (path / "config.toml").exists():
        path.mkdir(parents=True, exist_ok=True)
        write_atomic(path / "config.toml", config.toml().encode())


def _wait(ray: Any, tasks: dict[Any, int], watcher: Watcher) -> None:
    """Wait for all workers; raise the first error once all others are done, too: their runs are then complete."""
    waiting, errors = list(tasks), []
    try:
        while waiting:
            done, waiting = ray.wait(waiting, timeout=1.0)
            for task in done:
                error = _answer(ray, task)
                errors += [] if error is None else [error]
                watcher.note(f"a worker has ended: {error or f'{tasks[task]} runs are done'}")
    except KeyboardInterrupt:
        for task in waiting:
            ray.cancel(task)
        ray.wait(waiting, num_returns=len(waiting), timeout=SECONDS_TO_COMMIT)
        raise
    if errors:
        raise FedsacError(errors[0])


def _answer(ray: Any, task: Any) -> str | None:
    """What a worker returned, or in one line how it failed."""
    try:
        error: str | None = ray.get(task)
    except ray.exceptions.RayError as failed:
        said = [line.strip() for line in str(failed).splitlines() if line.strip()]
        return f"a worker failed: {(said or [type(failed).__name__])[-1][:300]}; go on with --resume"
    return error


@contextmanager
def _ray(workers: Workers) -> Iterator[Any]:
    """Ray, connected to the cluster that RAY_ADDRESS names, or to workers on this machine, which are then ended."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would report on the network that it is used
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # it would warn that it will not hide GPUs
    try:
        import ray
    except ImportError:
        raise FedsacError("--workers ray needs Ray: pip install 'fedsac[ray]'") from None
    own: dict[str, Any] = (
        {} if "RAY_ADDRESS" in os.environ else {"num_cpus": max(os.cpu_count() or 1, workers.count or 1)}
    )
    if own:
        own |= {"include_dashboard": False, "object_store_memory": STORE_BYTES}
    main = threading.current_thread() is threading.main_thread()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)} if main else {}
    ray.init(log_to_driver=False, logging_level=logging.ERROR, **own)
    try:
        for number, handler in handlers.items():
            signal.signal(number, handler)  # Ray's own would end the program where it stands
        yield ray
    finally:
        ray.shutdown()
