"""`python -m benchmarks.mutants [room ...]`: how many small changes of the source some test notices.

Results are kept in .bench/mutants/<room>.jsonl; `--survivors` tries only those again that survived the last time,
`--files` all mutants of a room's files that match these patterns, also where the room draws a sample, and `--tests`
takes fewer tests than the room's.
"""

import argparse
import json
import os
import random
import sys
from dataclasses import dataclass, replace
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".bench" / "mutants"
sys.path.insert(0, str(ROOT / "src"))
sys.path.append(str(FOLDER / "packages"))  # where `make mutants` puts mutmut; after the project's own packages

from benchmarks.mutants.covering import Covering, covering  # noqa: E402
from benchmarks.mutants.making import Mutant, mutants  # noqa: E402
from benchmarks.mutants.trying import Work, load_heavy, try_all  # noqa: E402

# Of tests for one mutant, the quickest first; measured with coverage, which slows them down.
BUDGET_SECONDS = 60.0
SEED = 0


@dataclass(frozen=True)
class Room:
    """Source files (patterns below src/fedsac), the tests that concern them, how many mutants to draw (0: all)."""

    files: tuple[str, ...]
    tests: tuple[str, ...]
    sample: int = 0


def _tests(*names: str) -> tuple[str, ...]:
    return tuple(f"tests/{name}.py" for name in names)


ROOMS = {
    "core": Room(
        ("core/*.py",),
        (
            *("src/fedsac/core", "tests/golden"),
            *_tests("test_aggregation", "test_allocation", "test_fairness", "test_metrics", "test_submodels"),
            *_tests("test_core_details", "test_attainable"),
        ),
    ),
    "methods": Room(
        ("methods/*.py", "methods/shared/*.py"),
        (
            *("src/fedsac/methods", "tests/golden"),
            *_tests("test_methods", "test_method_edges", "test_calibration", "test_keep", "test_importance"),
            *_tests("test_method_details", "test_aequa", "test_server_rows", "test_published_fedave"),
            *_tests("test_published_fedrac", "test_published_iafl"),
        ),
    ),
    "guard": Room(("federation/guard.py",), _tests("test_guard", "test_guard_details")),
    "compute": Room(
        ("compute/*.py",),
        (
            "src/fedsac/compute",
            *_tests("test_stack", "test_batches", "test_importance", "test_evaluation_metrics", "test_submodels"),
            *_tests("test_local", "test_precision", "test_compute_details", "test_calibration"),
            *_tests("test_standalone_checkpoints"),
        ),
        sample=300,
    ),
    "runs": Room(
        ("runs/*.py",),
        (
            "src/fedsac/runs",
            *_tests("test_compare", "test_store", "test_config", "test_federation", "test_contribution", "test_local"),
            *_tests("test_methods", "test_behaviour", "test_given_contributions", "test_metric_reports"),
            *_tests("test_begun_before", "test_runs_details", "test_statistics", "test_attainable", "test_split_seed"),
            *_tests("test_paper_claims"),
        ),
        sample=300,
    ),
    "contributions": Room(
        ("contributions/*.py",),
        (
            *("src/fedsac/contributions", "tests/golden/test_published_updates.py"),
            *_tests("test_contribution", "test_standalone_checkpoints", "test_given_contributions"),
        ),
    ),
    "config": Room(
        ("config.py",),
        (
            *_tests("test_config", "test_begun_before", "test_split_seed", "test_scenes", "test_methods"),
            *_tests("test_standalone_checkpoints", "test_attainable"),
        ),
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rooms", nargs="*", choices=[[], *ROOMS], default=[])
    parser.add_argument("--survivors", action="store_true", help="try only those that survived the last time")
    parser.add_argument("--files", nargs="+", default=[], help="patterns below src/fedsac, such as methods/aequa.py")
    parser.add_argument("--tests", nargs="+", default=[], help="instead of the room's, such as tests/test_aequa.py")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    os.chdir(ROOT)
    load_heavy()
    for name in options.rooms or ROOMS:
        room = replace(ROOMS[name], tests=tuple(options.tests) or ROOMS[name].tests)
        _try(name, room, options.files, options.survivors, options.jobs)
    _table(options.rooms or list(ROOMS))


def _try(name: str, room: Room, files: list[str], only_survivors: bool, jobs: int) -> None:
    file = FOLDER / f"{name}.jsonl"
    known = {_key(row): row for row in map(json.loads, file.read_text().splitlines())} if file.exists() else {}
    chosen = _chosen(room, files)
    if only_survivors:
        chosen = [m for m in chosen if known.get(_key(vars(m)), {}).get("outcome") == "survived"]
    else:
        again = {mutant.path for mutant in chosen}
        known = {key: row for key, row in known.items() if files and row["path"] not in again}
    tests = [test for test in room.tests if (ROOT / test).exists()]
    untested, work = _work(chosen, covering(ROOT, tests, FOLDER))
    print(f"{name}: {len(chosen)} mutants, {len(untested)} of them in lines that no test runs", flush=True)
    known |= {_key(row): row for row in untested}

    def done(mutant: Mutant, outcome: str, seconds: float) -> None:
        known[_key(vars(mutant))] = _row(mutant, outcome, seconds)
        file.write_text("".join(json.dumps(row) + "\n" for row in known.values()))
        if outcome == "survived":
            print(f"{mutant.name}: {mutant.before[:90]}  ->  {mutant.after[:90]}", flush=True)

    try_all(ROOT, tests, work, jobs, done)


def _chosen(room: Room, files: list[str]) -> list[Mutant]:
    source = ROOT / "src/fedsac"
    paths = sorted(path for pattern in room.files for path in source.glob(pattern))
    if files:
        paths = [path for path in paths if any(path.match(str(source / pattern)) for pattern in files)]
    made = [mutant for path in paths for mutant in mutants(ROOT, str(path.relative_to(ROOT)))]
    if files or not room.sample:
        return made
    random.Random(SEED).shuffle(made)
    return made[: room.sample]


def _work(chosen: list[Mutant], covered: Covering) -> tuple[list[dict], Work]:
    untested, work = [], []
    for mutant in chosen:
        if tests := covered.of(mutant, BUDGET_SECONDS):
            work.append((mutant, tests, 20 + 10 * sum(covered.seconds[test] for test in tests)))
        else:
            untested.append(_row(mutant, "survived", 0.0))
    return untested, work


def _row(mutant: Mutant, outcome: str, seconds: float) -> dict:
    kept = {key: value for key, value in vars(mutant).items() if key != "source"}
    return kept | {"outcome": outcome, "seconds": round(seconds, 2)}


def _key(row: dict) -> tuple:
    return row["path"], row["number"], row["before"], row["after"]


def _table(names: list[str]) -> None:
    print(f"{'room':10}{'mutants':>9}{'killed':>9}{'timeout':>9}{'survived':>9}")
    for name in names:
        found = [json.loads(line)["outcome"] for line in (FOLDER / f"{name}.jsonl").read_text().splitlines()]
        counts = (len(found), *(found.count(kind) for kind in ("killed", "timeout", "survived")))
        print(f"{name:10}" + "".join(f"{count:9}" for count in counts))


main()
