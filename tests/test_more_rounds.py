"""A finished run goes on: the same contributions, and the numbers of a run that had all rounds from the start."""

import json
import re

import numpy as np
import pytest
from sklearn.datasets import load_digits

import fedsac
from fedsac import Config, FedsacError
from fedsac.cli import main
from fedsac.runs.watcher import Watcher
from tests.test_store import contents

SHORT = Config(rounds=4, clients=4, hidden=(16, 12), local_steps=4)


@pytest.mark.parametrize("method", ["fedsac", "cgsv", "fedsac-plus"])
def test_it_ends_as_if_it_had_had_all_rounds_from_the_start(tmp_path, method):
    fixed = SHORT.replace(standalone_steps=12, method=method)
    fedsac.run(fixed, tmp_path / "grown")
    fedsac.resume(tmp_path / "grown", rounds=7)
    fedsac.run(fixed.replace(rounds=7), tmp_path / "whole")
    assert contents(tmp_path / "grown") == contents(tmp_path / "whole")


def test_contributions_stay_though_their_steps_follow_the_rounds(tmp_path):
    """Standing alone takes rounds x local steps unless a number is given: 16 here, and 16 it stays."""
    before = fedsac.run(SHORT, tmp_path / "run")
    after = fedsac.resume(tmp_path / "run", rounds=7)
    assert after.contributions == before.contributions
    assert after.records[:4] == before.records
    assert (after.config.rounds, after.config.standalone_steps) == (7, 16)
    fedsac.run(SHORT.replace(rounds=7, standalone_steps=16), tmp_path / "whole")
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")
    again = fedsac.resume(tmp_path / "run", rounds=9)
    assert again.contributions == before.contributions


class Stop(Watcher):
    def round(self, run, record):
        if record["round"] == 5:
            raise KeyboardInterrupt


def test_it_may_be_interrupted(tmp_path):
    """After a round, and before the first commit of the longer run: the checkpoint is still the shorter one's."""
    for name, cut in (("late", False), ("early", True)):
        run = tmp_path / name
        fedsac.run(SHORT, run)
        with pytest.raises(KeyboardInterrupt):
            fedsac.resume(run, rounds=7, watcher=Stop())
        if cut:
            (run / "checkpoints" / "round-000005.safetensors").unlink()
        assert not (run / "summary.json").exists()
        fedsac.resume(run)
    fedsac.run(SHORT.replace(rounds=7, standalone_steps=16), tmp_path / "whole")
    assert contents(tmp_path / "late") == contents(tmp_path / "early") == contents(tmp_path / "whole")


def test_what_cannot_go_on_is_left_as_it_was(tmp_path):
    run = tmp_path / "run"
    fedsac.run(SHORT, run)
    before = contents(run)
    for rounds, says in (
        (4, "has had 4 rounds; --rounds must be more, not 4"),
        (0, "rounds must be a whole number of at least 1"),
        (10**30, "the records of 1e.30 rounds take at least"),
    ):
        with pytest.raises(FedsacError, match=says):
            fedsac.resume(run, rounds=rounds)
    assert contents(run) == before
    with pytest.raises(KeyboardInterrupt):
        fedsac.resume(run, rounds=7, watcher=Stop())
    with pytest.raises(FedsacError, match="not finished; first finish its 7 rounds"):
        fedsac.resume(run, rounds=9)


def test_other_data_cost_the_finished_run_nothing(tmp_path):
    """They are refused before the run is made longer: its summary is still there."""
    rng = np.random.default_rng(0)
    x, y = rng.random((200, 6)), rng.integers(0, 2, 200)
    fedsac.run(SHORT, tmp_path / "run", data=(x, y))
    before = contents(tmp_path / "run")
    with pytest.raises(FedsacError, match="the data or the settings are not what this run began with"):
        fedsac.resume(tmp_path / "run", rounds=7, data=(x + 1, y))
    assert contents(tmp_path / "run") == before and "summary.json" in before
    assert fedsac.resume(tmp_path / "run", rounds=7, data=(x, y)).config.rounds == 7


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"lr_schedule": "cosine"}, "its learning rate (cosine)"),
        ({"lr_schedule": "step"}, "its learning rate (step)"),
        ({"hardened": "slow-order"}, "the growth of its submodels (slow-order)"),
        ({"hardened": "all"}, "the growth of its submodels (slow-order)"),
        ({"attack": "launder"}, "its attack (launder)"),
    ],
)
def test_what_is_spread_over_all_rounds_cannot_be_made_longer(tmp_path, settings, says):
    """What came out would be the run that the config then describes no more."""
    fedsac.run(SHORT.replace(**settings), tmp_path / "run")
    before = contents(tmp_path / "run")
    with pytest.raises(FedsacError, match=rf"{re.escape(says)} was spread over 4 rounds; begin a run of 7"):
        fedsac.resume(tmp_path / "run", rounds=7)
    assert contents(tmp_path / "run") == before


@pytest.mark.parametrize("hardened", ["work+originals+bounds+robust+commit", None])
def test_other_defences_are_the_same_in_a_longer_run(tmp_path, hardened):
    config = SHORT.replace(hardened=hardened, standalone_steps=SHORT.alone())
    fedsac.run(config, tmp_path / "run")
    longer = fedsac.resume(tmp_path / "run", rounds=7)
    assert longer.rewards == fedsac.run(config.replace(rounds=7)).rewards


def test_whose_model_it_is_must_not_have_been_decided_too_early(tmp_path):
    """Two clients with one data set: four rounds decide with less than a longer run would have known."""
    x, y = load_digits(return_X_y=True)
    parts = {"a": slice(60), "b": slice(60), **{name: slice(60 * k, 60 * k + 60) for k, name in enumerate("cdef", 1)}}
    silos = {name: (x[rows], y[rows]) for name, rows in parts.items()}
    silos |= {"validation": (x[300:500], y[300:500]), "test": (x[500:800], y[500:800])}
    for rounds, early in ((4, True), (6, False)):
        run = tmp_path / str(rounds)
        config = fedsac.Config(rounds=rounds, hidden=(16,), hardened="originals", standalone_steps=150)
        last = fedsac.run(config, run, data=silos).last
        assert set(last["suspected"]) in ({"a"}, {"b"})
        before = contents(run)
        if early:
            with pytest.raises(FedsacError, match=r"a and b handed in was decided in the last of 4 rounds.*run of 9"):
                fedsac.resume(run, rounds=9, data=silos)
            assert contents(run) == before
        else:
            assert (
                fedsac.resume(run, rounds=9, data=silos).rewards
                == fedsac.run(config.replace(rounds=9), data=silos).rewards
            )


def test_the_command(tmp_path, capsys):
    run = tmp_path / "run"
    fedsac.run(SHORT, run)
    assert main(["run", "--resume", str(run), "--rounds", "6", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rounds"] == 6
    assert main(["run", "--resume", str(run), "--rounds", "9", "--lr", "1"]) == 2
    assert "leave --lr out" in capsys.readouterr().err
