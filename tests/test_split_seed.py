"""A split's seed of its own: the data stays where it is, and everything else follows the run's seed."""

import json

import numpy as np
import pytest

import fedsac
from fedsac import Config, FedsacError
from fedsac.cli import main
from fedsac.runs.setup import prepare
from tests.data.test_silos import folder

SMALL = Config(rounds=2, clients=4, hidden=(16, 12), local_steps=4, standalone_steps=12)


def prepared(**settings):
    (ready,) = prepare([SMALL.replace(**settings)])
    return ready


def same_split(one, other):
    mine, theirs = ((*ready.split.rows, ready.split.validation, ready.split.x_test) for ready in (one, other))
    return all(np.array_equal(a, b) for a, b in zip(mine, theirs, strict=True))


@pytest.mark.parametrize("scene", ["pow", "cla", "dir:1.0"])
def test_two_seeds_of_one_split_differ_in_their_start_and_not_in_their_data(scene):
    one, other = (prepared(scene=scene, seed=seed, split_seed=5) for seed in (0, 1))
    assert same_split(one, other)
    assert not (one.initial == other.initial).all()
    assert not same_split(one, prepared(scene=scene, seed=0, split_seed=6))


def test_the_split_is_that_of_its_seed_and_the_start_that_of_the_runs():
    both = prepared(seed=1, split_seed=5)
    assert same_split(both, prepared(seed=5))
    assert (both.initial == prepared(seed=1).initial).all()


def test_a_split_seed_that_is_the_seed_changes_no_number():
    follows, named = (fedsac.run(SMALL.replace(seed=3, split_seed=split)) for split in (None, 3))
    assert follows.records == named.records
    assert follows.contributions == named.contributions


def test_batches_and_contributions_follow_the_seed():
    """On one split, two seeds train differently."""
    one, other = (fedsac.run(SMALL.replace(seed=seed, split_seed=5)) for seed in (0, 1))
    assert one.samples == other.samples
    assert one.contributions.test != other.contributions.test


def test_without_a_split_seed_a_run_is_told_from_others_as_before():
    """Neither the file nor the fingerprint, by which a resumed run is recognised, has the new setting."""
    assert "split_seed" not in SMALL.toml()
    assert prepared().fingerprint != prepared(split_seed=0).fingerprint
    assert "split_seed = 4" in SMALL.replace(split_seed=4).toml()


def test_own_silos_have_no_split_to_draw(tmp_path):
    silos = folder(tmp_path)
    with pytest.raises(FedsacError, match="own silos are dealt out already; leave --split-seed out"):
        fedsac.run(Config(data=str(silos), split_seed=1))


def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    quick = ["--rounds", "2", "--clients", "3", "--hidden", "8", "--local-steps", "2", "--standalone-steps", "4"]
    assert main(["run", *quick, "--seed", "2", "--split-seed", "7"]) == 0
    assert "seed 2, split seed 7" in capsys.readouterr().out
    place = tmp_path / "runs" / "digits-pow-fedsac-seed2-split7"
    assert json.loads((place / "summary.json").read_text())["split_seed"] == 7
    assert "split seed 7" in (place / "README.md").read_text()
    assert "split seed 7" in (place / "report.html").read_text()
    assert main(["run", "--resume", str(place), "--split-seed", "8"]) == 2
