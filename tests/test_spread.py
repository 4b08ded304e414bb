"""Stacks of runs in several processes: the same numbers as in one, and nothing lost when one of them goes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedsac.config import Config
from fedsac.errors import FedsacError
from fedsac.paper import job
from fedsac.runs.comparing import compare
from fedsac.runs.spread import resume_spread
from fedsac.runs.watcher import Watcher
from fedsac.runs.workers import Workers

TWO = Workers(2, ray=False)
TINY = {"clients": 3, "hidden": (8,), "eval_every": 2}
NUMBERS = ("config.toml", "rounds.jsonl", "summary.json")


def configs(rounds=4):
    return [
        Config(data="digits", scene=scene, method=method, rounds=rounds, **TINY)
        for scene in ("pow", "dir:1.0")
        for method in ("fedsac", "fedavg")
    ]


def numbers(out, made):
    return {(config.scene, config.method): _numbers(job.run_folder(out, config)) for config in made}


def _numbers(folder):
    return [(folder / name).read_bytes() for name in NUMBERS]


class Heard(Watcher):
    def __init__(self):
        self.rounds, self.clients = [], set()

    def round(self, run, record):
        self.rounds.append((run.config.scene, run.config.method, record["round"]))
        self.clients.add(run.clients)


def test_two_processes_find_what_one_finds_and_tell_every_round(tmp_path):
    heard = Heard()
    job.carry_out(configs(), tmp_path / "two", heard, workers=TWO)
    job.carry_out(configs(), tmp_path / "one", Watcher())
    assert numbers(tmp_path / "two", configs()) == numbers(tmp_path / "one", configs())
    wanted = [(c.scene, c.method, round) for c in configs() for round in (1, 2, 3, 4)]
    assert sorted(heard.rounds) == sorted(wanted)
    assert {len(names) for names in heard.clients} == {3}
    assert job.unfinished(configs(), tmp_path / "two") == []


def test_a_stack_that_fails_keeps_the_others_from_nothing(tmp_path):
    made = configs()
    job.carry_out([], tmp_path, Watcher())
    for config in made:
        job._write_config(tmp_path, config)
    broken = tmp_path / "runs" / "nowhere"
    broken.mkdir()
    (broken / "config.toml").write_text(made[0].toml().replace('"digits"', '"nowhere.csv"'))
    stacks = [[broken], *([job.run_folder(tmp_path, config)] for config in made)]
    with pytest.raises(FedsacError, match=r"nowhere\.csv"):
        resume_spread(stacks, 2, Watcher(), every_round=True, keep_models=False)
    assert job.unfinished(made, tmp_path) == []


@pytest.mark.parametrize("stacks", [1, 3])
def test_what_fails_on_our_side_is_raised_and_not_taken_for_the_end(tmp_path, stacks):
    """A disk that is full when a raw file is written: in the thread that listens to a process nobody would hear it."""
    made = configs()[:stacks]
    job.carry_out([], tmp_path, Watcher())
    for config in made:
        job._write_config(tmp_path, config)

    def done(folders, seconds):
        raise OSError("the disk is full")

    each = [[job.run_folder(tmp_path, config)] for config in made]
    with pytest.raises(OSError, match="the disk is full"):
        resume_spread(each, 1, Watcher(), every_round=True, keep_models=False, done=done)
    assert len(job.unfinished(made, tmp_path)) == stacks - 1, "the others are not begun"


SCRIPT = """
import sys
from pathlib import Path
from fedsac.paper import job
from fedsac.runs.watcher import Watcher
from tests.test_spread import TWO, configs

class Says(Watcher):
    def round(self, run, record):
        print(record["round"], flush=True)

job.carry_out(configs(rounds=400), Path(sys.argv[1]), Says(), workers=TWO)
"""


def begun(out):
    root = Path(__file__).resolve().parents[1]
    command = [sys.executable, "-c", SCRIPT, str(out)]
    return subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True, start_new_session=True)


def committed(out):
    return [len((job.run_folder(out, c) / "rounds.jsonl").read_text().splitlines()) for c in configs(rounds=400)]


def workers_of(process):
    """The processes whose parent this is."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        if int(fields[1]) == process.pid:
            found.append(int(stat.parent.name))
    return found


def ended(pids):
    """Wait until these processes are gone."""
    for _ in range(600):
        if not any(Path(f"/proc/{pid}/cmdline").exists() and _alive(pid) for pid in pids):
            return True
        time.sleep(0.1)
    return False


def _alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_or_killed_it_goes_on_to_the_same_numbers(tmp_path, how):
    process = begun(tmp_path / "cut")
    assert process.stdout is not None
    rounds = [int(process.stdout.readline()) for _ in range(40)]
    workers = workers_of(process)
    assert len(workers) == 2
    os.kill(process.pid, how)
    process.stdout.close()
    process.wait(60)
    assert ended(workers), "the processes that carried out the runs outlive the one that started them"
    if how == signal.SIGINT:
        assert max(committed(tmp_path / "cut")) >= max(rounds)
    job.carry_out(configs(rounds=400), tmp_path / "cut", Watcher(), workers=TWO)
    job.carry_out(configs(rounds=400), tmp_path / "whole", Watcher())
    assert numbers(tmp_path / "cut", configs(rounds=400)) == numbers(tmp_path / "whole", configs(rounds=400))
    assert json.loads((tmp_path / "cut" / "seconds.json").read_text())["seconds"] > 0


def test_a_comparison_in_two_processes_has_the_table_of_one(tmp_path):
    base = Config(rounds=3, dtype="float64", **TINY)
    one = compare(base, ["fedsac", "fedavg"], 2, tmp_path / "one")
    two = compare(base, ["fedsac", "fedavg"], 2, tmp_path / "two", workers=TWO)
    assert [(row.method, row.label) for row in two] == [(row.method, row.label) for row in one]
    for row, other in zip(one, two, strict=True):
        assert row.values["gamma"] == pytest.approx(other.values["gamma"], abs=1e-9)
        assert row.values["max"] == pytest.approx(other.values["max"], abs=1e-9)
