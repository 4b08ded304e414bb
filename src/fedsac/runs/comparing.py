"""Carry out a comparison: several methods and seeds on one scene, all their clients in one stack."""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path

from fedsac.atomic import write_atomic
from fedsac.config import FORMAT_VERSION, Config, check_version, settings_in
from fedsac.doors import METHODS
from fedsac.errors import FedsacError
from fedsac.methods import make
from fedsac.runs.comparison import COLUMNS, LIST, Row, rows
from fedsac.runs.result import Result
from fedsac.runs.start import resume_together, run_together
from fedsac.runs.watcher import Watcher


def methods_named(text: str) -> list[str]:
    """A list of methods from the command line: names with commas between them, or `all`."""
    names = list(METHODS) if text == "all" else [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise FedsacError("name at least one method, or all")
    if len(set(names)) < len(names):
        raise FedsacError(f"a method is named twice in {text}")
    return names


def compare(base: Config, methods: Sequence[str], seeds: int, out: Path, watcher: Watcher | None = None) -> list[Row]:
    """Run every method with seeds base.seed, base.seed + 1, ... side by side, in folders below `out`."""
    if seeds < 1:
        raise FedsacError(f"seeds must be at least 1, not {seeds}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise FedsacError(f"{out} is there already; go on with --resume {out}, or name another folder")
    configs = [base.replace(method=method, seed=base.seed + k) for method in methods for k in range(seeds)]
    for config in configs:
        make(config)  # an unknown method is an error before anything is written
    folders = {f"{config.method.replace(':', '-')}-seed{config.seed}": config.toml() for config in configs}
    listed = json.dumps({"format_version": FORMAT_VERSION, "runs": folders}, indent=2) + "\n"
    made = not out.exists()
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_atomic(out / LIST, listed.encode())
    except OSError as error:
        raise FedsacError(f"{out}: cannot be written ({error.strerror}); name another folder") from None
    places = [out / name for name in folders]
    try:
        return _written(run_together(configs, places, watcher, every_round=False), out)
    except FedsacError:
        if not any(place.exists() for place in places):  # nothing was done: there is nothing to go on with
            (out / LIST).unlink()
            if made:
                out.rmdir()
        raise


def resume_compare(out: Path, watcher: Watcher | None = None) -> list[Row]:
    """Go on with an interrupted comparison."""
    try:
        listed = json.loads((out / LIST).read_text())
        version, runs = listed["format_version"], dict(listed["runs"])
        if not runs:
            raise ValueError
    except (OSError, ValueError, KeyError, TypeError):
        raise FedsacError(f"{out} is not a comparison that was begun (it has no sound {LIST})") from None
    check_version(version, out / LIST)
    for name, settings in runs.items():
        if not (out / name / "config.toml").exists():  # killed before this run had its folder
            config = Config(**settings_in(settings, out / LIST))
            (out / name).mkdir(exist_ok=True)
            write_atomic(out / name / "config.toml", config.toml().encode())
    return _written(resume_together([out / name for name in runs], watcher, every_round=False), out)


def _written(results: list[Result], out: Path) -> list[Row]:
    """The comparison as JSON and CSV, beside the runs."""
    table = rows(results)
    config = results[0].config
    whole = {
        "format_version": FORMAT_VERSION,
        "data": config.data,
        "scene": config.scene,
        "clients": config.clients,
        "rounds": config.rounds,
        "metric": config.metric,
        "seeds": sorted({result.config.seed for result in results}),
        "rows": [{"method": row.method, "label": row.label, **row.values} for row in table],
    }
    write_atomic(out / "results.json", (json.dumps(whole, allow_nan=False) + "\n").encode())
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [name for name, *_ in COLUMNS]
    heads = [f"{name}{part}" for name in names for part in ("", "_deviation")]
    writer.writerow(["method", "label", *heads, "metric"])
    for row in table:
        numbers = [number for name in names for number in (row.mean(name), row.deviation(name))]
        shown = ["" if n is None else f"{n:.6g}" for n in numbers]
        writer.writerow([row.method, row.label, *shown, config.metric])
    write_atomic(out / "results.csv", text.getvalue().encode())
    return table
