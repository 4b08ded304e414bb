"""Does this tree give the numbers that an earlier commit gave? `python -m benchmarks.same_numbers COMMIT`.

All methods, three other measures of contribution and a scene with sparse evaluation, on the digits, 5 or 12 rounds,
float64: run by the commit (in a work tree of its own) and by this tree, and every number in the commit's run folders is
looked for in ours. New keys may have come; what is missing or differs in its last bit is counted by key, and the
command fails.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file

ROOT = Path(__file__).resolve().parents[1]
METHODS = (
    *("standalone", "fedavg", "qffl", "cffl", "cgsv", "fedave", "rffl", "iafl", "fedrac", "fedsac"),
    *("fedsac-no-allocation", "fedsac-no-aggregation", "fedsac-plus"),
)
STUDIED = (  # what benchmarks.studies adds to these, and its setting
    *("fedsac-over-n", "aequa", "server-alone", "fedavg-server", "fedavg-v-client", "fedsac-server", "fedrac-server"),
    *("fedsac-plus-no-server", "fedsac-plus", "fedsac", "fedavg"),
)
VALIDATION = ("--contribution-on", "validation", "--scene", "dir:1.0", "--rounds", "12", "--eval-every", "4")
RUNS = {method: ("--method", method) for method in METHODS} | {
    **{f"{method}, on V": ("--method", method, *VALIDATION) for method in STUDIED},
    "leave-one-out": ("--contribution", "leave-one-out"),
    "shapley": ("--contribution", "shapley"),
    "cosine": ("--contribution", "cosine"),
    "cla": ("--scene", "cla", "--eval-every", "2", "--importance-every", "2"),
    "cgsv-own": ("--method", "cgsv", "--set", "reward_by=own"),
    "cffl-own": ("--method", "cffl", "--set", "reward_by=own", "--scene", "dir:1.0"),
}
COMMON = ("--rounds", "5", "--dtype", "float64", "--threads", "1")
ELSEWHERE = ("timing.json",)


def checkout(commit: str, folder: Path) -> Path:
    """The tree of a commit."""
    folder.mkdir(parents=True)
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", commit], check=True, capture_output=True)
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    return folder


def run(tree: Path, arguments: tuple[str, ...], out: Path) -> None:
    env = os.environ | {"PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "fedsac", "run", *COMMON, *arguments, "--out", str(out)]
    subprocess.run(command, env=env, cwd=tree, check=True, capture_output=True)


def differences(before: Path, after: Path) -> Iterator[str]:
    """What the folder before has and the one after has not, or has otherwise."""
    for path in sorted(p for p in before.rglob("*") if p.is_file()):
        name, other = path.relative_to(before), after / path.relative_to(before)
        if path.suffix == ".safetensors":
            yield from _tensors(path, other, str(name))
        elif path.suffix == ".json" and path.name not in ELSEWHERE:
            yield from _values(json.loads(path.read_text()), json.loads(other.read_text()), str(name))
        elif path.suffix == ".jsonl":
            lines, others = path.read_text().splitlines(), other.read_text().splitlines()
            yield from _values([*map(json.loads, lines)], [*map(json.loads, others)], str(name))


def in_short(found: list[str]) -> str:
    """How many numbers of which keys differ, with an example of each."""
    by_key: dict[str, list[str]] = {}
    for text in found:
        keys = [part for part in text.partition(" was, ")[0].split(": ")[1:] if part[:1].isalpha()]
        by_key.setdefault(re.sub(r"\[.*", "", keys[-1]) if keys else "", []).append(text)
    return "; ".join(f"{key} {len(texts)} times, as {texts[0]}" for key, texts in by_key.items()) or "the same"


def _tensors(path: Path, other: Path, name: str) -> Iterator[str]:
    theirs, ours = load_file(path), load_file(other)
    for key, array in theirs.items():
        if key not in ours or array.dtype != ours[key].dtype or array.tobytes() != ours[key].tobytes():
            yield f"{name}: {key}"


def _values(theirs: Any, ours: Any, where: str) -> Iterator[str]:
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key, value in theirs.items():
            if key not in ours:
                yield f"{where}: {key} is missing"
            else:
                yield from _values(value, ours[key], f"{where}: {key}")
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for i, (one, other) in enumerate(zip(theirs, ours, strict=True)):
            yield from _values(one, other, f"{where}[{i}]")
    elif theirs != ours:
        yield f"{where}: {theirs!r} was, {ours!r} is"


def main(commit: str) -> int:
    with tempfile.TemporaryDirectory() as folder:
        before = checkout(commit, Path(folder) / "before")
        bad = 0
        for name, arguments in RUNS.items():
            places = Path(folder) / f"{name}-before", Path(folder) / f"{name}-after"
            run(before, arguments, places[0])
            run(ROOT, arguments, places[1])
            found = list(differences(*places))
            bad += bool(found)
            print(f"{name}: {in_short(found)}", flush=True)
    print(f"{len(RUNS) - bad} of {len(RUNS)} runs have every number of {commit}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
