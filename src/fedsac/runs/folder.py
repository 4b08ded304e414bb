"""Run folders: what a run leaves behind, and how it survives being killed.

A commit appends a line to the log, syncs it, and then puts a checkpoint in place with one rename. The checkpoint says
how long the log is and what it hashes to, so a kill at any instant leaves a folder from which the last commit can be
taken up: whatever came after it is cut off and done again, with the same numbers. The two newest checkpoints are kept,
each with a hash over its own contents; a damaged one is passed over. No pickle anywhere.
"""

import errno
import json
import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from fedsac.atomic import write_atomic
from fedsac.config import FORMAT_VERSION, RULES, Config, check_rules, read
from fedsac.core.metrics import display_name
from fedsac.data.split import Split
from fedsac.errors import FedsacError
from fedsac.models.files import AnyNetwork, ModelFile
from fedsac.runs.checkpoint import MAX_CHECKPOINTS, Checkpoint, file_name, listed, newest, pack
from fedsac.runs.places import WARNINGS, is_run
from fedsac.runs.result import Result

OURS = (
    *("README.md", "rounds.jsonl", "timing.json", "summary.json", "global.safetensors", "report.html", WARNINGS),
    "confusion.json",
    *("checkpoints/round-*.safetensors", "checkpoints/round-*.part", "rewards/*.safetensors", "rewards/*.part"),
    *("rounds.csv", "clients.csv", "tensorboard/events.out.tfevents.*", "mlflow.json"),  # the logs' (runs/loggers)
)


class Folder:
    """A run's folder, locked by this process. Use `create` or `open`, as a context manager."""

    def __init__(self, path: Path, config: Config) -> None:
        self.path, self.config = path, config
        self._lock = _lock(path)
        self._log = b""
        self._made = False  # by this process
        self._unwritable = False  # a write has failed

    def __enter__(self) -> "Folder":
        return self

    def __exit__(self, *exc: object) -> None:
        if self._lock is not None:
            os.close(self._lock)

    @staticmethod
    def refuse(path: Path, *, overwrite: bool) -> None:
        """Raise if a run cannot start here: only an empty folder, or a run's folder with `overwrite`, will do."""
        if not path.exists():
            return
        if not path.is_dir():
            raise FedsacError(f"{path} is a file; name a folder for the run")
        # The config is the first thing written: a run that was killed before that leaves at most a part of it.
        if all(entry.name == "config.toml.part" for entry in path.iterdir()):
            return
        if not is_run(path):
            raise FedsacError(f"{path} holds other files than a run's; name another folder")
        if not overwrite:
            raise FedsacError(
                f"{path} holds a run already; go on with --resume {path}, start over with --overwrite, or name another"
            )

    @classmethod
    def create(cls, path: Path, config: Config, *, overwrite: bool = False) -> "Folder":
        """A new run's folder; with `overwrite`, what an earlier run wrote there is removed, and nothing else."""
        cls.refuse(path, overwrite=overwrite)
        made = not path.exists()
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FedsacError(f"{path}: cannot make a folder there ({error.strerror}); name another") from None
        folder = cls(path, config)
        folder._made = made
        try:
            for old in (file for pattern in OURS for file in path.glob(pattern)):
                old.unlink(missing_ok=True)  # the config is replaced, not removed: the folder always is some run's
            folder._write("config.toml", config.toml().encode())
            folder._furnish()
        except BaseException:
            folder.__exit__()
            raise
        return folder

    @classmethod
    def open(cls, path: Path) -> "Folder":
        """The folder of a run that was begun."""
        if not is_run(path):
            raise FedsacError(
                f"{path} is not a run's folder (it has no config.toml of ours); begin one with fedsac run"
            )
        config = Config(**read(path / "config.toml"))
        check_rules(path / "config.toml")
        folder = cls(path, config)
        try:
            folder._furnish()
        except BaseException:
            folder.__exit__()
            raise
        return folder

    def longer(self, rounds: int) -> Config:
        """The config of this finished run with more rounds. Contributions stay what they were: standing alone for as
        many steps as the longer run has would be another measurement, so the number of steps that it had is fixed."""
        if not (self.path / "summary.json").exists():
            raise FedsacError(
                f"{self.path}: this run is not finished; first finish its {self.config.rounds} rounds with fedsac run "
                f"--resume {self.path}"
            )
        config = self.config.replace(rounds=rounds, standalone_steps=self.config.alone())
        if config.rounds <= self.config.rounds:
            raise FedsacError(f"{self.path}: has had {self.config.rounds} rounds; --rounds must be more, not {rounds}")
        if spread := _spread_over_rounds(config):  # the rounds it had would not be those of the longer run
            raise FedsacError(
                f"{self.path}: {spread} was spread over {self.config.rounds} rounds; begin a run of {rounds}"
            )
        if not listed(self.path):
            raise FedsacError(f"{self.path}: keeps numbers alone, and no state to go on from; begin it again")
        return config

    def lengthen(self, config: Config) -> None:
        """Give the run this `longer` config. A kill in between leaves it as it was, to be finished once more, or the
        longer one."""
        self.config = config
        self._safely("summary.json", (self.path / "summary.json").unlink)
        self._write("config.toml", config.toml().encode())
        self._write("README.md", _readme(config).encode())

    def discard(self) -> None:
        """Remove a run that failed before its first round was over: our files, and the folder if this process made it
        and nothing else is in it. Where a write failed, everything stays: once there is room, the run can go on."""
        if self._unwritable:
            return
        for file in (file for pattern in ("config.toml", *OURS) for file in self.path.glob(pattern)):
            file.unlink(missing_ok=True)
        below = {(self.path / pattern).parent for pattern in OURS} - {self.path}
        for place in (*below, *([self.path] if self._made else [])):
            if place.is_dir() and not any(place.iterdir()):
                place.rmdir()

    def _furnish(self) -> None:
        """What every run's folder has from the start; a kill may have come before all of it was there."""
        self._safely("checkpoints", lambda: (self.path / "checkpoints").mkdir(exist_ok=True))
        if not (self.path / "README.md").exists():
            self._write("README.md", _readme(self.config).encode())
        if not (self.path / "rounds.jsonl").exists():
            self._write("rounds.jsonl", b"")

    def commit(self, checkpoint: Checkpoint, records: Sequence[dict[str, Any]], seconds: float) -> None:
        """Make rounds final, with the records of all rounds so far, after `seconds` of work: when this returns, they
        survive anything but the loss of the disk. Interrupted, it can be called again with the same records."""
        self.log(records)
        self._write(file_name(checkpoint.round), pack(checkpoint, self._log))
        for old in listed(self.path)[MAX_CHECKPOINTS:]:
            old.unlink(missing_ok=True)
        self._write("timing.json", _json({"format_version": FORMAT_VERSION, "seconds": seconds}), durable=False)

    def warn(self, lines: Sequence[str]) -> None:
        """Leave what looks wrong with the run's data, for its page."""
        self._write(WARNINGS, _json({"format_version": FORMAT_VERSION, "warnings": list(lines)}), durable=False)

    def log(self, records: Sequence[dict[str, Any]]) -> None:
        """Append to the log, of all rounds so far, those that it does not have yet."""
        new = records[self._log.count(b"\n") :]
        lines = b"".join(json.dumps(record, allow_nan=False).encode() + b"\n" for record in new)
        if lines:
            self._safely("rounds.jsonl", lambda: self._append(lines))
            self._log += lines

    def latest(self, note: Callable[[str], None]) -> tuple[Checkpoint, list[dict[str, Any]]] | None:
        """The newest sound checkpoint and the rounds before it; the log is cut to match. None: nothing committed."""
        candidates = listed(self.path)
        sound = newest(self.path, candidates, note)
        if sound is not None:
            path, checkpoint, self._log = sound
            self._write("rounds.jsonl", self._log)
            for newer in candidates[: candidates.index(path)]:
                newer.unlink()
            return checkpoint, [json.loads(line) for line in self._log.splitlines()]
        if candidates:
            raise FedsacError(f"{self.path}: no checkpoint is sound; start over with --overwrite")
        self._write("rounds.jsonl", b"")
        return None

    def seconds(self) -> float:
        """Work done on this run by earlier processes."""
        try:
            return float(json.loads((self.path / "timing.json").read_text())["seconds"])
        except (OSError, ValueError, KeyError, TypeError):
            return 0.0  # never written, or cut off by a kill: a time is all that is lost

    def finish(self, result: Result, dealt: Split, *, keep_models: bool = True) -> None:
        """The models and the summary. Done again, it writes the same bytes. Without `keep_models` the numbers are all
        that stays: hundreds of runs would fill a disk with models that nobody asked for."""

        def model(name: str, network: AnyNetwork, i: int | None) -> None:
            facts = {"method": result.config.method, "round": result.config.rounds}
            if i is not None:
                facts |= {"client": result.clients[i], "reward": result.rewards[i]}
            data = dealt.data
            about = data.classes, data.features, data.top, dealt.mean, dealt.deviation
            # Of the silos' own corrections a reward carries its client's, and no other's.
            table = None if data.table is None else data.table.without_silos(None if i is None else result.clients[i])
            self._write(name, ModelFile(network, *about, facts, table).pack())

        if keep_models:
            (self.path / "rewards").mkdir(exist_ok=True)
        if result.global_model is not None:
            model("global.safetensors", result.global_model, None)
        for i, network in enumerate(result.reward_models):
            model(f"rewards/{result.clients[i]}.safetensors", network, i)
        if result.confusion is not None:
            self._write("confusion.json", _compact(result.confusions()))
        lacks = [] if keep_models else ["rewards", "checkpoints"]
        lacks += ["global.safetensors"] if result.global_model is None else []
        lacks += ["confusion.json"] if result.confusion is None else []
        self._write("README.md", _readme(self.config, lacks).encode())
        self._write("summary.json", _json(result.summary()))
        if not keep_models:
            for old in listed(self.path):
                old.unlink()

    def _append(self, lines: bytes) -> None:
        with (self.path / "rounds.jsonl").open("r+b") as log:
            log.seek(len(self._log))
            log.truncate()
            log.write(lines)
            log.flush()
            os.fsync(log.fileno())

    def _write(self, name: str, content: bytes, *, durable: bool = True) -> None:
        self._safely(name, lambda: write_atomic(self.path / name, content, durable=durable))

    def _safely(self, name: str, action: Callable[[], None]) -> None:
        try:
            action()
        except OSError as error:
            self._unwritable = True
            full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
            why, mend = ("the disk is full", "make room") if full else (error.strerror, "put that right")
            raise FedsacError(
                f"{self.path / name}: cannot be written: {why}; what was committed is safe: {mend} and go on with "
                f"fedsac run --resume {self.path}"
            ) from None


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=2, allow_nan=False) + "\n").encode()


def _compact(value: object) -> bytes:
    return (json.dumps(value, allow_nan=False) + "\n").encode()


def _spread_over_rounds(config: Config) -> str | None:
    """What of a run depends, before its last round, on how many there will be; in words."""
    if config.lr_schedule != "constant":
        return f"its learning rate ({config.lr_schedule})"
    if config.defends("slow-order"):
        return "the growth of its submodels (slow-order)"
    if config.attack is not None:
        return f"its attack ({config.attack})"
    return None


def _lock(path: Path) -> int | None:
    """Lock the folder, so that two processes do not write one run. The system releases the lock when the process
    ends."""
    try:
        import fcntl
    except ImportError:  # Windows: the folder is simply not guarded
        return None
    folder = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(folder)
        raise FedsacError(f"{path}: another process is at work on this run; wait for it, or stop it") from None
    return folder


def _keys_of(config: Config) -> str:
    """Whose state dict the tensors of a model file are."""
    if config.network == "mlp":
        return "nn.Sequential(Linear, ReLU, ..., Linear)"
    return f"the network {config.network}, of the submodel's own size"


def _readme(config: Config, lacks: Collection[str] = ()) -> str:
    """What stands in a run's folder, but for what it `lacks`. A run that is under way lacks what is still to come."""
    # Neither is known before the data is read.
    where = "" if config.scene is None else f", scene {config.scene}"
    clients = "" if config.clients is None else f", {config.clients} clients"
    contents = {
        "config.toml": "`config.toml`: every setting; `fedsac run --config config.toml` does it again",
        "rounds.jsonl": """`rounds.jsonl`: one line per round: who answered, losses, bytes, neurons, rewards (test and
  validation), their log-losses (test), fairness""",
        "checkpoints": """`checkpoints/`: the two newest; after an interruption, `fedsac run --resume` on this folder
  goes on""",
        "summary.json": """`summary.json`: contributions, rewards and fairness at the `last` round, the one `selected`
  on validation data, and the `best` one (chosen on the test set, as the paper does)""",
        "confusion.json": """`confusion.json`: of each client's reward, how many samples of each class (rows) it takes
  for which (columns)""",
        "global.safetensors": "`global.safetensors`: the common model",
        "rewards": f"""`rewards/CLIENT.safetensors`: what each client was given. Models are for `fedsac predict` and
  `fedsac export`, or for torch: keys and shapes are those of {_keys_of(config)}""",
        "timing.json": """`timing.json`: seconds of work; `warnings.json`, if it is there: what looks wrong with the
  data""",
        "logs": """of the logs that were named with `--log`, if any: `rounds.csv` and `clients.csv`, `tensorboard/`,
  `mlflow.json`""",
    }
    listed = "\n".join(f"- {text}" for name, text in contents.items() if name not in lacks)
    bare = "It is one of many, of which numbers alone are kept, and no models.\n\n" if "rewards" in lacks else ""
    return f"""# A run of fedsac

{config.method} on {config.data}{where}{clients}, {config.rounds} rounds, {config.seeds_named}{config.conduct_named}.

{bare}Contributions and rewards are scored by {display_name(config.metric)}. Everything here has
format version {FORMAT_VERSION}; what the numbers mean are rules {RULES} (fedsac's docs/decisions.md). This page is
README.md; beside it:

{listed}

`fedsac report` on this folder, and `fedsac run` at its end, write `report.html`: all of it as a page for a browser.
"""
