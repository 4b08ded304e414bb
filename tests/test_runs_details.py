"""What a run is made of, in numbers worked out by hand: sizes of clients, and when rounds are committed."""

import time
from types import SimpleNamespace

import numpy as np
import pytest

import fedsac
from fedsac import Config
from fedsac.runs import running
from fedsac.runs.folder import Folder
from fedsac.runs.setup import prepare
from fedsac.runs.watcher import Watcher

TINY = Config(clients=4, hidden=(4,), local_steps=1, standalone_steps=1)


def test_clients_of_cla_count_by_their_classes_and_others_by_their_samples():
    cla, power = prepare([TINY.replace(scene="cla"), TINY.replace(scene="pow")])
    classes = [len(set(cla.split.data.y[own].tolist())) for own in cla.clients.rows]
    samples = [len(own) for own in cla.clients.rows]
    shares = [count / max(classes) for count in classes]
    assert shares != pytest.approx([n / max(samples) for n in samples])  # there is a difference to see
    assert cla.members.size_shares == pytest.approx(shares)
    assert cla.members.samples == tuple(samples)

    sizes = np.array([len(own) for own in power.clients.rows])
    assert len(set(sizes)) > 1
    assert power.members.size_shares == pytest.approx(sizes / sizes.max())


class Seconds(Watcher):
    """A clock by which a round takes a second and a commit two; and the rounds after which there was a commit."""

    def __init__(self, monkeypatch):
        self.now, self.commits = 1000.0, []
        commit = Folder.commit

        def slow(folder, checkpoint, *others):
            self.now += 2
            self.commits.append(checkpoint.round)
            return commit(folder, checkpoint, *others)

        monkeypatch.setattr(Folder, "commit", slow)
        clock = SimpleNamespace(monotonic=lambda: self.now, perf_counter=time.perf_counter)
        monkeypatch.setattr(running, "time", clock)

    def round(self, run, record):
        self.now += 1


def test_commits_take_a_twentieth_of_the_time_at_most(tmp_path, monkeypatch):
    """Two seconds for a commit: the next one comes when forty have gone by."""
    seconds = Seconds(monkeypatch)
    fedsac.run_together([TINY.replace(rounds=90, eval_every=90)], [tmp_path / "run"], seconds, every_round=False)
    assert seconds.commits == [0, 40, 80, 90]


def test_commits_after_every_round_where_that_is_asked_for(tmp_path, monkeypatch):
    seconds = Seconds(monkeypatch)
    fedsac.run_together([TINY.replace(rounds=3)], [tmp_path / "run"], seconds)
    assert seconds.commits == [0, 1, 2, 3]
