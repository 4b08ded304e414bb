"""A study of attacks: every attack, method and seed, each beside the clean run of the same seed and split, carried out
side by side like a comparison. Read `carry_out` first."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedsac.atomic import write_atomic
from fedsac.attacks import made
from fedsac.config import FORMAT_VERSION, Config, check_rules_in, check_version, settings_in
from fedsac.doors import ATTACKS
from fedsac.errors import FedsacError
from fedsac.methods import make
from fedsac.runs.attack_table import STUDY, Done, Row, Wreck, rows, written
from fedsac.runs.comparing import options_of
from fedsac.runs.limits import check_number_of_runs
from fedsac.runs.setup import prepare
from fedsac.runs.spread import resume_spread
from fedsac.runs.start import resume_together
from fedsac.runs.watcher import Watcher
from fedsac.runs.workers import Workers, begin_folder, spread
from fedsac.runs.wrecks import is_wrecked, resume_but_wrecks

TOP = "top"  # who is hostile: the client with the highest contribution in the clean run
ONLY_AT_THE_TOP = ("sole-holder",)  # others hold nothing alone
AT_THE_TOP = ("label-flip", "backdoor", "sign-flip", "rescale", "alie", "ipm")  # that `all` also has by the top client
MOST_AT_ONCE = 150  # runs in a stack: more fill memory, and are no faster


@dataclass(frozen=True)
class Study:
    """What is to be done. `attacks` are names, with @WHO where others than the attack's own parties are hostile; `also`
    are settings with which every method is run once more."""

    base: Config
    attacks: tuple[str, ...]
    methods: tuple[str, ...]
    seeds: int
    options: Mapping[str, Any] = field(default_factory=dict)
    also: tuple[Mapping[str, Any], ...] = ()

    def __post_init__(self) -> None:
        if self.seeds < 1:
            raise FedsacError(f"seeds must be at least 1, not {self.seeds}")
        if not self.attacks or len(set(self.attacks)) < len(self.attacks):
            raise FedsacError(f"name some attacks, each once, or all, not {', '.join(self.attacks) or 'none'}")
        check_number_of_runs(len(self.attacks) * len(self.subjects()) * self.seeds)
        for named in self.attacks:
            made(parts(named)[0])
        names = [_name(named, subject, config) for named in self.attacks for subject, config in self.seeded()]
        if len(set(names)) < len(names):
            raise FedsacError("two of these attacks would have folders of the same name; do them in two studies")

    def subjects(self) -> dict[str, Config]:
        """What is attacked, by its name in the table: every method, and once more with each of `also`."""
        own = options_of(self.methods, self.options)
        found = {}
        for more in ({}, *self.also):
            for method in self.methods:
                config = self.base.replace(method=method, options=self.base.options | own[method], **more)
                make(config)
                shown = [f"{name} {value}" for name, value in more.items()]
                found[", ".join([method, *shown])] = config
        return found

    def seeded(self) -> list[tuple[str, Config]]:
        """Every subject with every seed."""
        return [
            (name, config.replace(seed=config.seed + k))
            for name, config in self.subjects().items()
            for k in range(self.seeds)
        ]


def parts(named: str) -> tuple[str, str | None]:
    """An attack and who is hostile, from `ATTACK` or `ATTACK@WHO`."""
    attack, at, who = named.partition("@")
    if at and not who:
        raise FedsacError(f"attack {named}: say who is hostile behind the @, as in {attack}@top")
    return attack, who or None


def attacks_named(text: str, who: str | None = None) -> tuple[str, ...]:
    """A list of attacks from the command line: names with commas between them, or `all`; `who` is hostile where a name
    does not say it."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise FedsacError("name some attacks, with commas between, or all; fedsac attack --list says what there is")
    if names == ["all"]:
        by_the_top = [f"{name}@{TOP}" for name in (*AT_THE_TOP, *ONLY_AT_THE_TOP)]
        names = list(ATTACKS) if who else [name for name in ATTACKS if name not in ONLY_AT_THE_TOP] + by_the_top
    return tuple(name if who is None or "@" in name else f"{name}@{who}" for name in names)


def begin(study: Study, out: Path) -> None:
    """Write down what is to be done; `carry_out` does it. What cannot be done is an error before that: every attack is
    dealt out once."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise FedsacError(f"{out} is there already; go on with --resume {out}, or name another folder")
    first = next(iter(study.subjects().values()))
    named = [parts(name) for name in study.attacks]
    prepared = prepare([first.replace(attack=attack, attackers=None if who == TOP else who) for attack, who in named])
    ready = prepared[0].config  # paths are absolute there, so that the study can be resumed from any folder
    base = study.base.replace(data=ready.data, data_dir=ready.data_dir, contributions=ready.contributions)
    listed = {
        "format_version": FORMAT_VERSION,
        "config": base.toml(),
        "attacks": study.attacks,
        "methods": study.methods,
        "seeds": study.seeds,
        "options": dict(study.options),
        "also": [dict(more) for more in study.also],
    }
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_atomic(out / STUDY, (json.dumps(listed, indent=2) + "\n").encode())
    except OSError as error:
        raise FedsacError(f"{out}: cannot be written ({error.strerror}); name another folder") from None


def begun(out: Path) -> Study:
    """The study that was begun in this folder."""
    try:
        listed = json.loads((out / STUDY).read_text(encoding="utf-8"))
        check_version(listed["format_version"], out / STUDY)
        check_rules_in(listed["config"], out)
        base = Config(**settings_in(listed["config"], out / STUDY))
        names = tuple(map(str, listed["attacks"])), tuple(map(str, listed["methods"]))
        return Study(base, *names, int(listed["seeds"]), dict(listed["options"]), tuple(map(dict, listed["also"])))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise FedsacError(f"{out} is no study of attacks that was begun (it has no sound {STUDY})") from None


def carry_out(
    out: Path,
    watcher: Watcher,
    stage: Callable[[str, int], None] = lambda what, runs: None,
    workers: Workers | None = None,
) -> list[Row]:
    """Do, or go on with, the study in this folder: first the clean runs, then the attacks, as many as fit side by side.
    `stage` is told what comes next, and how many runs that is. With `workers`, the runs are dealt out to these."""
    study = begun(out)
    clean = {_name("clean", subject, config): config for subject, config in study.seeded()}
    _run(out, clean, watcher, lambda count: stage("clean runs", count), workers)
    planned: dict[str, Config] = {}
    for named in study.attacks:
        attack, who = parts(named)
        for subject, config in study.seeded():
            hostile = _top(out / "runs" / _name("clean", subject, config)) if who == TOP else who
            planned[_name(named, subject, config)] = config.replace(attack=attack, attackers=hostile)
    waiting, at_once = list(planned), _at_once(workers, len(planned))
    while waiting:
        now, waiting = waiting[:at_once], waiting[at_once:]
        part = {name: planned[name] for name in now}
        _run(out, part, watcher, lambda count: stage("attacks", count), workers, but_wrecks=True)
    return _table(study, out)


def _at_once(workers: Workers | None, planned: int) -> int:
    """How many runs are dealt out at the same time. Ray's workers take all they are given as one stack each; processes
    of this machine take stacks of at most so many."""
    if workers is None:
        return MOST_AT_ONCE
    return MOST_AT_ONCE * (workers.count or 1) if workers.ray else planned


def _table(study: Study, out: Path) -> list[Row]:
    """The table of a study whose runs are all done, also as files."""
    done, wrecks = list[Done](), list[Wreck]()
    for named in study.attacks:
        for subject, config in study.seeded():
            attacked, clean = (out / "runs" / _name(of, subject, config) for of in (named, "clean"))
            if is_wrecked(attacked):
                wrecks.append(Wreck(named, subject, config.seed))
            else:
                done.append(Done(named, subject, config.seed, _read(attacked), _read(clean)))
    table = rows(done, wrecks, study.attacks, study.subjects())
    for name, content in written(study.base, done, table, wrecks).items():
        write_atomic(out / name, content.encode())
    return table


def _run(
    out: Path,
    configs: Mapping[str, Config],
    watcher: Watcher,
    stage: Callable[[int], None],
    workers: Workers | None,
    *,
    but_wrecks: bool = False,
) -> None:
    """Carry out runs that are not finished, in folders below `out`/runs; `but_wrecks`: an attack may end some."""
    paths = {out / "runs" / name: config for name, config in configs.items()}
    todo = {
        path: config for path, config in paths.items() if not ((path / "summary.json").exists() or is_wrecked(path))
    }
    if not todo:
        return
    stage(len(todo))
    for path, config in todo.items():
        begin_folder(path, config)
    if workers is None:
        resume = resume_but_wrecks if but_wrecks else resume_together
        resume(list(todo), watcher, every_round=False, keep_models=False)
    elif workers.ray:
        spread(todo, workers, watcher, keep_models=False, but_wrecks=but_wrecks)
    else:
        stacks = _stacks(todo, workers.processes)
        resume_spread(stacks, workers.processes, watcher, every_round=False, keep_models=False, but_wrecks=but_wrecks)


def _stacks(configs: Mapping[Path, Config], processes: int) -> list[list[Path]]:
    """Runs as stacks for several processes, a few for each, so that none works long alone. Those of one seed lie
    together: most of them share their clients, who then stand alone only once."""
    ordered = sorted(configs, key=lambda path: configs[path].seed)
    size = min(MOST_AT_ONCE, max(1, -(-len(ordered) // (3 * processes))))
    return [ordered[start : start + size] for start in range(0, len(ordered), size)]


def _name(attack: str, subject: str, config: Config) -> str:
    """The name of a run's folder."""
    return re.sub(r"[^\w.@-]+", "-", f"{attack}-{subject}", flags=re.ASCII)[:120] + f"-seed{config.seed}"


def _top(clean: Path) -> str:
    """The client with the highest contribution in a clean run."""
    summary = _read(clean)[0]
    c = summary["contributions_deciding"] or summary["contributions"]
    name: str = summary["client_names"][max(range(len(c)), key=c.__getitem__)]
    return name


def _read(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The summary and the rounds of a finished run."""
    try:
        lines = (folder / "rounds.jsonl").read_text(encoding="utf-8").splitlines()
        return json.loads((folder / "summary.json").read_text(encoding="utf-8")), [json.loads(line) for line in lines]
    except (OSError, ValueError) as error:
        raise FedsacError(f"{folder}: cannot be read ({error}); remove it, and go on with --resume") from None
