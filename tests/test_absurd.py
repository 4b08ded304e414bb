"""No traceback, ever: absurd values end in one line and exit status 2, an interrupt at any instant in one and 130."""

import argparse
import json
import os
import re
import signal
import subprocess
import sys

import pytest

from fedsac import Config, FedsacError
from fedsac.cli import main, parser
from fedsac.runs import limits

TINY = (
    *("--rounds=1", "--clients=3", "--hidden=4", "--local-steps=1", "--standalone-steps=1", "--share=0.2"),
    "--threads=1",
)
# What a command needs beside the flag that is tried, so that it does next to nothing.
BESIDE = {
    "run": (*TINY, "--overwrite", "--out=out"),
    "compare": (*TINY, "--methods=fedavg", "--seeds=1"),
    "sweep": (*TINY, "--set=beta=1", "--seeds=1"),
    "attack": (*TINY, "--methods=fedavg", "--seeds=1", "zero"),
    "paper": ("--quick", "--seeds=1", "--threads=1", "table9"),
}
VALUES = ("0", "-1", "1" + 30 * "0", "1e300", "1e-300", "nan", "", "x", "\u2603" * 300, "/dev/null", "a:b", "--")
MEGABYTES, SECONDS = 3000, 60


class Commands:
    """Runs commands one after the other, each in a process of its own."""

    def __init__(self, folder):
        # What comes from a publisher is not to be had: nothing listens there.
        environment = os.environ | {"FEDSAC_TRACEBACK": "1", "FEDSAC_MIRROR": "http://127.0.0.1:9", "PYTHONPATH": PATH}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.zygote", str(MEGABYTES), str(SECONDS)],
            **{"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": folder, "env": environment},
        )

    def __call__(self, *arguments):
        self._process.stdin.write(json.dumps(arguments) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self):
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


PATH = os.pathsep.join(os.path.abspath(path or ".") for path in sys.path)  # noqa: PTH100


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    commands = Commands(tmp_path_factory.mktemp("absurd"))
    yield commands
    commands.close()


def said(ended):
    """What a command that refused to work said, in one line."""
    assert ended["status"] == 2, ended
    *_, last = ended["err"].splitlines()
    assert last.startswith("fedsac: ")
    assert "Traceback" not in ended["err"]
    assert not re.match(r"fedsac: \w+(Error|Exception):", last)  # a class of Python's tells nobody what to do
    return last


@pytest.mark.parametrize(
    ("flag", "says"),
    [
        ("--share=0.0001", "a share of 0.0001 of 1797 samples is none; raise --share"),
        ("--share=1e-300", "raise --share"),
        ("--threads=100000", "threads: 100,000 are too many"),
        ("--threads=1" + 30 * "0", r"threads: 1e\+30 are too many"),
        ("--hidden=1000000,1000000", r"1,000,076,000,010 parameters take at least 7,451 GiB of memory.*--hidden"),
        ("--hidden=2147483648", "parameters take at least .* GiB of memory"),
        ("--clients=1000000000", "1,000,000,000 clients .* take at least .* GiB of memory.*--clients"),
        ("--clients=1" + 30 * "0", "take at least more than a million TiB"),
        ("--local-steps=1000000000", "1,000,000,000 local steps each take at least .* GiB"),
        ("--rounds=1000000000", "the records of 1,000,000,000 rounds take at least .* GiB"),
        ("--standalone-steps=1000000000000", "would take .* days at the very least; lower .*--standalone-steps"),
        ("--standalone-steps=1" + 30 * "0", "would take more than a million years"),
        ("--lr=1e300", "lr must be a number above 0, from 1e-30 to 1e30"),
        ("--lr=1e-300", "lr must be"),
        ("--config=/dev/zero", "longer than settings can be"),
        ("--data=" + 5000 * "a", "File name too long|no such|unknown"),
        ("--set=--", "takes a value"),
        ("--log=--", "takes a value"),
    ],
)
def test_what_no_machine_can_do_is_refused(command, flag, says):
    assert re.search(says, said(command("run", *BESIDE["run"], flag)))


def test_more_seeds_than_memory(command):
    assert re.search(r"1,000,000,000 runs take at least .* GiB", said(command("compare", *TINY, "--seeds=1000000000")))


def test_what_can_be_done_is_not_refused(command):
    assert command("run", *BESIDE["run"], "--beta=1e300", "--seed=1" + 30 * "0", "--threads=3")["status"] == 0


def test_estimates_by_hand(monkeypatch):
    """Two clients, 3 x 4 + 4 + 4 x 2 + 2 = 26 parameters of 4 bytes twice, and one step of 5 samples at 16 bytes."""
    config = Config(clients=2, hidden=(4,), rounds=1, local_steps=1, batch=5, device="cpu")
    needed = 2 * (2 * 26 * 4 + 5 * 16)
    monkeypatch.setattr(limits, "RECORD_BYTES", 0)
    monkeypatch.setattr(limits, "CLIENT_RECORD_BYTES", 0)
    for there, fits in ((needed, True), (needed - 1, False)):
        monkeypatch.setattr(limits, "total_memory_bytes", lambda device, there=there: there)
        if fits:
            limits.check([config], 3, 2, 100)
        else:
            with pytest.raises(FedsacError, match="2 clients with 26 parameters"):
                limits.check([config], 3, 2, 100)
    monkeypatch.setattr(limits, "total_memory_bytes", lambda device: 2**60)
    steps = 60 * 86400 / limits.SECONDS_A_STEP  # sixty days
    limits.check([config.replace(standalone_steps=int(0.99 * steps))], 3, 2, 100)
    with pytest.raises(FedsacError, match="would take 61 days"):
        limits.check([config.replace(standalone_steps=int(1.01 * steps))], 3, 2, 100)


def test_a_function_of_ones_own_that_fails_is_named(monkeypatch, tmp_path, capsys):
    (tmp_path / "mine_that_fails.py").write_text("def data():\n    return 1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["run", "--data", "mine_that_fails:data", "--out", str(tmp_path / "run")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "ZeroDivisionError: division by zero" in line
    assert "mine_that_fails.py, line 2" in line
    monkeypatch.setenv("FEDSAC_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        main(["run", "--data", "mine_that_fails:data", "--out", str(tmp_path / "run")])


def leaves(top, names=()):
    """Every command that does something: its names, and its flags."""
    nested = [action for action in top._actions if isinstance(action, argparse._SubParsersAction)]
    for action in nested:
        for name, own in action.choices.items():
            yield from leaves(own, (*names, name))
    if not nested:
        yield names, top._actions


@pytest.mark.slow
@pytest.mark.parametrize(("names", "actions"), [pytest.param(*leaf, id=" ".join(leaf[0])) for leaf in leaves(parser())])
def test_every_flag_with_absurd_values(command, names, actions):
    """What is refused is refused in one line; what is not ends well. Nothing crashes or hangs, or eats all memory."""
    beside = BESIDE.get(names[0], ("nothing-there",) * sum(not a.option_strings and a.nargs != "?" for a in actions))
    for action in actions:
        if isinstance(action, argparse._HelpAction | argparse._VersionAction):
            continue
        for value in VALUES:
            needed = beside
            if not action.option_strings:
                own = (value,)
                if action.nargs == "?":  # in the place of the one that stands there
                    needed = tuple(part for part in beside if part.startswith("-"))
            elif action.nargs == 0:
                own = (action.option_strings[-1],)
            else:
                own = (f"{action.option_strings[-1]}={value}",)
            if action.dest in ("out", "resume") and value == "x":
                continue  # a place like any other
            ended = command(*names, *needed, *own)
            assert ended["status"] in (0, 2), (names, own, ended)
            if ended["status"] == 2:
                said(ended)


WHEN = (
    "argparse",
    "fedsac.cli",
    "fedsac.cli.run",
    "numpy",
    "torch.nn",
    "fedsac.runs.start",
    "sklearn",
)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("module", WHEN)
def test_an_interrupt_while_it_starts(tmp_path, module, number):
    """Once this module is loaded, wherever the program is by then, it is interrupted."""
    started = [sys.executable, "-X", "importtime", "-m", "fedsac", "run", "--out", str(tmp_path / "run")]
    pipes = {"stderr": subprocess.PIPE, "stdout": subprocess.DEVNULL, "text": True}
    # In the background of a shell, SIGINT is ignored, and by every child as well.
    listening = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.default_int_handler)}
    with subprocess.Popen(started, **pipes, **listening) as process:
        lines = []
        for line in process.stderr:
            if line.startswith("import time:"):
                if line.rpartition("|")[2].strip() == module:
                    process.send_signal(number)
            else:
                lines.append(line)
        assert process.wait() == 130
    said = [line for line in lines if not line.startswith(("standalone training", "federated training"))]
    assert len(said) == 1, lines
    assert said[0].startswith("fedsac: interrupted")
