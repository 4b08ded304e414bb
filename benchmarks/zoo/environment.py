"""An environment with the packages that networks come from, below .bench: made once, with the project's constraints."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HOME = Path(__file__).resolve().parents[2]
FOLDER = HOME / ".bench" / "zoo"
OURS = ("torch", "numpy", "scipy")  # what finding units needs
THEIRS = ("torchvision", "timm", "transformers", "peft")
LIMIT = 900  # seconds, of one network


def install() -> None:
    ready = FOLDER / ".ready"
    if ready.exists():
        return
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(FOLDER)], check=True)
    pip = [str(FOLDER / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--constraint", str(HOME / "constraints.txt"), *OURS, *THEIRS], check=True)
    ready.touch()


def measured(name: str) -> dict[str, Any]:
    """What a process of its own found out about a network: torchvision's stand-ins do not go well with others."""
    env = os.environ | {"PYTHONPATH": f"{HOME / 'src'}{os.pathsep}{HOME}", "HF_HUB_OFFLINE": "1"}
    command = [str(FOLDER / "bin" / "python"), "-m", "benchmarks.zoo.measuring", name]
    try:
        done = subprocess.run(command, env=env, cwd=HOME, capture_output=True, text=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        return {"network": name, "failed": f"not done after {LIMIT} s"}
    if done.returncode:
        return {"network": name, "failed": (done.stderr.strip().splitlines() or ["it ended without a word"])[-1][:200]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
