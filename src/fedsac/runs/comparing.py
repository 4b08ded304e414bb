"""Carry out runs side by side, all their clients in one stack: several methods and seeds on one scene, or the settings
of a sweep (`fedsac.runs.sweeping`)."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, cast

from fedsac.atomic import write_atomic
from fedsac.config import FORMAT_VERSION, RULES, Config, check_rules_in, check_version, read, settings_in
from fedsac.doors import METHODS
from fedsac.errors import FedsacError
from fedsac.methods import make, method_class
from fedsac.runs.comparison import COLUMNS, LIST, TESTED, Row, judgements, rows, settings_of
from fedsac.runs.labels import LABELS, chosen
from fedsac.runs.limits import check_number_of_runs
from fedsac.runs.result import Result
from fedsac.runs.start import resume_together, run_together
from fedsac.runs.watcher import Watcher
from fedsac.runs.workers import Workers, begin_folder, spread


def methods_named(text: str) -> list[str]:
    """A list of methods from the command line: names with commas between them, or `all`."""
    names = list(METHODS) if text == "all" else [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise FedsacError("name at least one method, or all")
    if len(set(names)) < len(names):
        raise FedsacError(f"a method is named twice in {text}")
    return names


@dataclass(frozen=True)
class Plan:
    """The runs to carry out, by the names of their folders, and the settings that are `varied` from one to the other; a
    comparison of methods varies nothing else."""

    configs: dict[str, Config]
    varied: tuple[str, ...] = ()


def compare(
    base: Config,
    methods: Sequence[str],
    seeds: int,
    out: Path,
    watcher: Watcher | None = None,
    options: Mapping[str, Any] | None = None,
    workers: Workers | None = None,
) -> list[Row]:
    """Run every method with seeds base.seed, base.seed + 1, ... side by side, in folders below `out`. `options` go to
    every method that has them; METHOD.OPTION to this method alone. With `workers` the runs are spread over these."""
    if seeds < 1:
        raise FedsacError(f"seeds must be at least 1, not {seeds}")
    check_number_of_runs(len(methods) * seeds)
    own = options_of(methods, options or {})
    configs = [
        base.replace(method=method, seed=base.seed + k, options=base.options | own[method])
        for method in methods
        for k in range(seeds)
    ]
    for config in configs:
        make(config)  # an unknown method is an error before anything is written
    named = {f"{config.method.replace(':', '-')}-seed{config.seed}": config for config in configs}
    return carry_out(Plan(named), out, watcher, workers)


def options_of(methods: Sequence[str], options: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Which of these options each method gets."""
    own: dict[str, dict[str, Any]] = {method: {} for method in methods}
    for name, value in options.items():
        only, dot, option = name.rpartition(".")
        if dot and only not in methods:
            raise FedsacError(f"option {name}: {only} is not among the methods compared, {', '.join(methods)}")
        takers = [m for m in methods if only in ("", m) and option in option_names(m)]
        if not takers:
            nobody = f"{only} has none" if only else f"none of {', '.join(methods)} has it"
            raise FedsacError(f"option {option}: {nobody}")
        for method in takers:
            own[method][option] = value
    return own


def option_names(method: str) -> set[str]:
    """The options that a method has."""
    return {option.name for option in fields(cast(Any, method_class(method)))}


def carry_out(plan: Plan, out: Path, watcher: Watcher | None = None, workers: Workers | None = None) -> list[Row]:
    """Carry out the runs of a plan side by side, in folders below `out`, and write the table of them beside these."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise FedsacError(f"{out} is there already; go on with --resume {out}, or name another folder")
    configs = list(plan.configs.values())
    folders = {name: config.toml() for name, config in plan.configs.items()}
    varied = {"varied": plan.varied} if plan.varied else {}
    listed = json.dumps({"format_version": FORMAT_VERSION, **varied, "runs": folders}, indent=2) + "\n"
    made = not out.exists()
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_atomic(out / LIST, listed.encode())
    except OSError as error:
        raise FedsacError(f"{out}: cannot be written ({error.strerror}); name another folder") from None
    places = [out / name for name in folders]
    try:
        if workers is not None:
            spread(dict(zip(places, configs, strict=True)), workers, watcher or Watcher())
            # What is over is only read and written again.
            return _written(resume_together(places, watcher, every_round=False), out, plan.varied)
        return _written(run_together(configs, places, watcher, every_round=False), out, plan.varied)
    except FedsacError:
        if not any(place.exists() for place in places):  # nothing was done: there is nothing to go on with
            (out / LIST).unlink()
            if made:
                out.rmdir()
        raise


def _refuse_longer(path: Path, config: Config) -> None:
    """Raise where a run was given more rounds than the comparison has: beside the others it would not be the same."""
    rounds = int(read(path / "config.toml").get("rounds", config.rounds))
    if rounds != config.rounds:
        raise FedsacError(
            f"{path} was given {rounds} rounds, and the comparison has {config.rounds}: remove that folder, and the "
            "same command carries it out again; fedsac report shows runs of different lengths side by side"
        )


def resume_compare(out: Path, watcher: Watcher | None = None, workers: Workers | None = None) -> list[Row]:
    """Go on with an interrupted comparison."""
    try:
        listed = json.loads((out / LIST).read_text())
        version, runs = listed["format_version"], dict(listed["runs"])
        varied = tuple(map(str, listed.get("varied", ())))
        if not runs:
            raise ValueError
    except (OSError, ValueError, KeyError, TypeError):
        raise FedsacError(f"{out} is not a comparison that was begun (it has no sound {LIST})") from None
    check_version(version, out / LIST)
    for settings in runs.values():  # before anything is written: the version that began it may want to go on
        check_rules_in(settings, out)
    configs = {out / name: Config(**settings_in(settings, out / LIST)) for name, settings in runs.items()}
    for path, config in configs.items():
        begin_folder(path, config)  # where it was killed before this run had one
        _refuse_longer(path, config)
    if workers is not None:
        spread(configs, workers, watcher or Watcher())
    return _written(resume_together([out / name for name in runs], watcher, every_round=False), out, varied)


def _written(results: list[Result], out: Path, varied: Sequence[str]) -> list[Row]:
    """The comparison as JSON and CSV, beside the runs."""
    table = rows(results, varied)
    config = results[0].config
    whole = {
        "format_version": FORMAT_VERSION,
        "rules": RULES,
        "data": config.data,
        "scene": config.scene,
        "clients": config.clients,
        "rounds": config.rounds,
        "metric": config.metric,
        "seeds": sorted({result.config.seed for result in results}),
        "split_seed": config.split_seed,
        **({"varied": list(varied)} if varied else {}),
        "rows": [{"method": row.method, **row.settings, "label": row.label, **row.values} for row in table],
        "runs": [_raw(result) | settings_of(result.config, varied) for result in results],
        "statistics": _statistics(table),
    }
    write_atomic(out / "results.json", (json.dumps(whole, allow_nan=False) + "\n").encode())
    write_atomic(out / "results.csv", _csv(table, config.metric).encode())
    return table


def _raw(result: Result) -> dict[str, Any]:
    """The numbers of one run that the table follows from: contributions, and the rewards at every label."""
    picked = chosen(result.records, result.contributions)
    return {
        "method": result.config.method,
        "seed": result.config.seed,
        "contributions": result.contributions.validation,
        "contributions_test": result.contributions.test,
        "contributions_deciding": result.contributions.deciding,
        "rounds": {label: record["round"] for label, record in picked.items()},
        "rewards": {label: record["rewards"] for label, record in picked.items()},
    }


def _statistics(table: Sequence[Row]) -> list[dict[str, Any]]:
    """For every label, tested column and method: mean, 95 % interval, verdict, and the difference to each rival."""
    entries = []
    for label in LABELS:
        at = {row.method: row for row in table if row.label == label}
        for key in TESTED:
            for method, judged in judgements(table, key, label).items():
                row = at[method]
                entries.append(
                    {
                        **{"label": label, "column": key, "method": method},
                        **{"mean": row.mean(key), "interval": row.interval(key), "seeds": row.count(key)},
                        **{"verdict": judged.verdict, "beaten_by": judged.beaten_by},
                        "differences": [asdict(difference) for difference in judged.differences],
                    }
                )
    return entries


def _csv(table: Sequence[Row], metric: str) -> str:
    """A line for each method and label: of every column mean, deviation, 95 % interval and number of seeds."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [name for name, *_ in COLUMNS]
    heads = [f"{name}{part}" for name in names for part in ("", "_deviation", "_low", "_high", "_seeds")]
    varied = list(table[0].settings)
    writer.writerow(["method", *varied, "label", *heads, *(f"{key}_verdict" for key in TESTED), "metric"])
    judged = {(key, label): judgements(table, key, label) for key in TESTED for label in LABELS}
    for row in table:
        numbers: list[float | None] = []
        for name in names:
            interval = row.interval(name) or (None, None)
            numbers += [row.mean(name), row.deviation(name), *interval, row.count(name)]
        shown = ["" if n is None else f"{n:.6g}" for n in numbers]
        verdicts = [judged[key, row.label][row.method].verdict or "" for key in TESTED]
        writer.writerow([row.method, *row.settings.values(), row.label, *shown, *verdicts, metric])
    return text.getvalue()
