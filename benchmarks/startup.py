"""What it costs to begin: CPU seconds of commands that train nothing, beside those of `import torch` alone."""

import resource
import statistics
import subprocess
import sys
import tempfile

from benchmarks.timing import show

REPETITIONS = 10
ALLOWED = 0.3  # CPU seconds of `fedsac --help`
FEDSAC = [sys.executable, "-m", "fedsac"]
PREPARED = (
    "run --rounds 3 --out run",
    "compare --methods fedavg,fedsac --seeds 2 --rounds 3 --out comparison",
    "federation init federation --sites a,b,c",
)
MEASURED = (
    "--help",
    "--version",
    "methods",
    "data list",
    "report run",
    "report comparison",
    "report comparison --figures figures",
    "federation status federation",
)


def cpu_seconds(command: list[str], folder: str) -> float:
    """User and system time of a process, from its start to its end."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main() -> None:
    candidates = {f"fedsac {arguments}": [*FEDSAC, *arguments.split()] for arguments in MEASURED}
    candidates |= {f"import {name}": [sys.executable, "-c", f"import {name}"] for name in ("fedsac", "torch")}
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    with tempfile.TemporaryDirectory() as folder:
        for arguments in PREPARED:
            subprocess.run([*FEDSAC, *arguments.split()], cwd=folder, check=True, capture_output=True)
        for _ in range(REPETITIONS):
            for name, command in candidates.items():
                seconds[name].append(cpu_seconds(command, folder))
    torch = statistics.median(seconds["import torch"])
    rows = [
        [
            name,
            f"{statistics.median(own):.3f}",
            f"{min(own):.3f} to {max(own):.3f}",
            f"{statistics.median(own) / torch:.2f}x",
        ]
        for name, own in seconds.items()
    ]
    title = f"CPU seconds until it ends, median of {REPETITIONS}; fedsac --help may take {ALLOWED}"
    show(title, ["command", "CPU s", "range", "of import torch"], rows)
