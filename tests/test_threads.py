"""OpenMP's threads leave the cores to others soon, where fedsac comes in time; where it does not, it says so."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SHOWN = "; import os; print({name: os.environ[name] for name in sorted(os.environ) if 'OMP_' in name})"
TOO_LATE = "torch was loaded before fedsac"


def python(script, **variables):
    """A process that knows nothing of what this one has been told of OpenMP, or has set."""
    environment = {name: value for name, value in os.environ.items() if "OMP_" not in name}
    return subprocess.run(
        [sys.executable, "-c", script], env=environment | variables, capture_output=True, text=True, check=True
    )


def test_set_when_fedsac_comes_first():
    assert python("import fedsac" + SHOWN).stdout == "{'GOMP_SPINCOUNT': '1000'}\n"


@pytest.mark.parametrize("own", [{"GOMP_SPINCOUNT": "7"}, {"OMP_WAIT_POLICY": "ACTIVE"}])
def test_the_users_own_stays(own):
    assert python("import fedsac" + SHOWN, **own).stdout == f"{own}\n"


def test_nothing_is_set_when_torch_comes_first():
    assert python("import torch, fedsac" + SHOWN).stdout == "{}\n"


def test_the_threads_of_torch_see_it():
    said = python("import fedsac, torch", OMP_DISPLAY_ENV="VERBOSE").stderr
    if "GOMP_SPINCOUNT" not in said:
        pytest.skip("this torch computes on another OpenMP than GNU's")
    assert "GOMP_SPINCOUNT = '1000'" in said


@pytest.fixture
def other_work():
    """A process that never rests."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    yield
    process.kill()
    process.wait()


@pytest.mark.skipif(not Path("/proc/loadavg").exists(), reason="other threads at work are counted on Linux only")
@pytest.mark.parametrize(
    ("imports", "threads", "told"),
    [("torch, fedsac", os.cpu_count(), True), ("torch, fedsac", 1, False), ("fedsac, torch", os.cpu_count(), False)],
)
def test_a_run_on_a_busy_machine_says_that_fedsac_came_too_late(imports, threads, told, other_work):
    if told and threads == 1:
        pytest.skip("one core has nothing to spin on")
    settings = f"rounds=1, clients=2, hidden=(8,), local_steps=1, standalone_steps=1, threads={threads}"
    said = python(f"import {imports}; fedsac.run(fedsac.Config({settings}))").stderr
    assert said.count(TOO_LATE) == told
