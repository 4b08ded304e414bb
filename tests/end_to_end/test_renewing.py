"""New keys and certificates with real processes, in a run that is under way."""

import subprocess
import sys

import pytest

pytest.importorskip("flwr")

from tests.end_to_end.test_faults import Trial
from tests.end_to_end.test_federation import FEDSAC, listens, rounds, until
from tests.flower_grid import SIZES

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="kills whole process groups")]


def renew(*arguments):
    """What `fedsac federation renew` says."""
    command = [*FEDSAC, "federation", "renew", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


def test_everything_is_renewed_and_the_run_goes_on(tmp_path):
    """b's key while all is running; then, with everything stopped in turn, the certificate, the authority and the
    signer. Nobody is refused, everybody is paid, and everything verifies."""
    trial = Trial(tmp_path, rounds=(20, 25), min_answers=(2, 3), repeats=(20, 1000))
    try:
        trial.start_all()
        trial.start("run")
        until(lambda: len(rounds(trial.folder)) >= 1, trial)

        assert renew(trial.folder / "b", "key")[0] == 0
        status, said = renew(trial.folder, "--request", trial.folder / "b" / "request.json")
        assert status == 0 and "b has the key SHA256:" in said
        until(lambda: "new key is in use" in (tmp_path / "b.out").read_text(), trial)
        until(lambda: trial.of_kind("renewed") and "b" in rounds(trial.folder)[-1]["answered"], trial)

        trial.kill("c")  # and so no round ends until it is back
        done = len(rounds(trial.folder))
        status, said = renew(trial.folder, "certificate")
        assert status == 2 and "the server of" in said and "is running; stop it" in said
        assert renew(trial.folder, "authority")[0] == 0
        status, said = renew(trial.folder, "signer")
        signer = [word for word in said.split() if word.startswith("SHA256:")][-1]
        renewal = ("--from", trial.folder / "renewal.json", "--signer", signer)
        status, said = renew(trial.folder / "a", *renewal)
        assert status == 2 and "running already" in said
        for name in SIZES:
            if name != "c":
                trial.kill(name)
            status, said = renew(trial.folder / name, *renewal)
            assert status == 0, said
            if name != "c":
                trial.start(name)
        trial.kill("server")
        until(lambda: not listens(trial.port), trial)
        assert renew(trial.folder, "certificate")[0] == 0
        status, said = renew(trial.folder, "switch")
        assert status == 0 and signer in said, said
        trial.start("server")
        trial.start("c")
        assert len(rounds(trial.folder)) <= done + 1 < 25
        trial.finish()
        assert [(body["site"], body["key"]) for body in trial.of_kind("renewed")][1:] == [(None, signer)]
        assert len({body["round"] for body in rounds(trial.folder)}) == 25
        assert set(rounds(trial.folder)[-1]["answered"]) == set(SIZES)
        assert trial.of_kind("refused") == []
    finally:
        trial.end()
