"""How runs are dealt out to workers, and what cannot be asked of them. The workers themselves: end_to_end."""

from collections import Counter
from pathlib import Path

import pytest

from fedsac import Config, FedsacError
from fedsac.cli import main
from fedsac.runs.workers import Workers, shards

SMALL = Config(clients=3, rounds=2)


def runs(methods, seeds):
    return {Path(f"{m}-{s}"): SMALL.replace(method=m, seed=s) for m in methods for s in range(seeds)}


@pytest.mark.parametrize("count", [1, 2, 3, 5, 100])
def test_every_run_has_one_worker_and_workers_have_about_equally_many(count):
    configs = runs(["fedsac", "fedavg", "cgsv"], 4)
    parts = shards(configs, count)
    assert sorted(path for part in parts for path in part) == sorted(configs)
    assert len(parts) == min(count, 12) and all(parts)
    assert max(map(len, parts)) - min(map(len, parts)) <= 3  # the runs of one seed


def test_runs_that_share_their_clients_stay_together():
    """Then clients stand alone once for all methods."""
    configs = runs(["fedsac", "fedavg", "cgsv"], 4)
    for part in shards(configs, 2):
        assert set(Counter(configs[path].seed for path in part).values()) == {3}


@pytest.mark.parametrize(
    "text",
    ["", "0", "1001", "2.5", "dask", "ray:", "ray:0", "ray:-1", "ray:x", "ray:2:3", "ray:²", "ray:" + "9" * 5000],
)
def test_workers_that_are_none_are_one_line(text, capsys, tmp_path):
    with pytest.raises(FedsacError, match=r"workers must be a number from 1 to 1000, ray, or ray:NUMBER"):
        Workers.named(text)
    assert main(["compare", "--methods", "fedavg", "--workers", text, "--out", str(tmp_path / "out")]) == 2
    assert not (tmp_path / "out").exists()


def test_workers_are_named():
    assert (Workers.named("ray"), Workers.named("ray:2")) == (Workers(None), Workers(2))
    assert Workers.named("3") == Workers(3, ray=False) and Workers.named("3").processes == 3


def test_logs_are_of_this_process(capsys, tmp_path):
    assert main(["compare", "--workers", "ray", "--log", "csv", "--out", str(tmp_path / "out")]) == 2
    assert "leave one of them out" in capsys.readouterr().err and not (tmp_path / "out").exists()
