"""What a run is made of, in numbers worked out by hand: sizes of clients, and when rounds are committed."""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import fedsac
from fedsac import Config, FedsacError
from fedsac.compute.evaluation import evaluate
from fedsac.contributions.base import Contributions
from fedsac.core.metrics import macro_f1
from fedsac.methods.fedavg import FedAvg
from fedsac.runs import running
from fedsac.runs.checkpoint import Checkpoint, pack, peek
from fedsac.runs.comparing import compare
from fedsac.runs.folder import Folder
from fedsac.runs.labels import of_clients
from fedsac.runs.local import LocalEngine
from fedsac.runs.loop import play
from fedsac.runs.prepared import Members
from fedsac.runs.running import Running
from fedsac.runs.setup import prepare, prepare_split
from fedsac.runs.start import nobody_absent
from fedsac.runs.watcher import RunInfo, Watcher, Watchers

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


def test_commits_take_a_fiftieth_of_the_time_at_most(tmp_path, monkeypatch):
    """Two seconds for a commit: the second one comes when a hundred have gone by, the third after another hundred."""
    seconds = Seconds(monkeypatch)
    fedsac.run_together([TINY.replace(rounds=210, eval_every=210)], [tmp_path / "run"], seconds, every_round=False)
    assert seconds.commits == [0, 98, 196, 210]


def test_commits_go_from_run_to_run(tmp_path, monkeypatch):
    """A round of both runs takes two seconds, and so does a commit of one: each has one of its own in its turn."""
    seconds, rounds = Seconds(monkeypatch), {"fedavg": [], "fedsac": []}
    commit = Folder.commit

    def noted(folder, checkpoint, *others):
        rounds[folder.config.method].append(checkpoint.round)
        return commit(folder, checkpoint, *others)

    monkeypatch.setattr(Folder, "commit", noted)
    configs = [TINY.replace(method=method, rounds=260, eval_every=260) for method in rounds]
    fedsac.run_together(configs, [tmp_path / method for method in rounds], seconds, every_round=False)
    # Four seconds by the first round: 200 must have gone by, 300 for the next commit, and so on.
    assert rounds == {"fedavg": [0, 98, 196, 260], "fedsac": [0, 147, 245, 260]}


def test_commits_after_every_round_where_that_is_asked_for(tmp_path, monkeypatch):
    seconds = Seconds(monkeypatch)
    fedsac.run_together([TINY.replace(rounds=3)], [tmp_path / "run"], seconds)
    assert seconds.commits == [0, 1, 2, 3]


@dataclass(frozen=True)
class CannotLearn(FedAvg):
    """A method that fails in its first round, for a reason that the user can put right."""

    def learn(self, task, state, updates):
        raise FedsacError("lower --lr")


def test_a_run_that_fails_in_its_first_round_leaves_no_folder(tmp_path):
    config = TINY.replace(method=f"{__name__}:CannotLearn", rounds=2)
    with pytest.raises(FedsacError, match="lower --lr"):
        fedsac.run(config, tmp_path / "new" / "run")
    assert list(tmp_path.iterdir()) == [tmp_path / "new"] and not any((tmp_path / "new").iterdir())
    there = tmp_path / "there"
    there.mkdir()
    with pytest.raises(FedsacError, match="lower --lr"):
        fedsac.run(config, there)
    assert there.is_dir() and not any(there.iterdir())  # somebody else has made it


def test_a_comparison_where_no_folder_can_be(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FedsacError, match=r"cannot be written .*name another folder"):
        compare(TINY.replace(rounds=1), ["fedavg"], 1, tmp_path / "file" / "out")


def test_a_comparison_in_a_folder_that_is_there_and_empty(tmp_path):
    (row, *_) = compare(TINY.replace(rounds=1), ["fedavg"], 1, tmp_path)
    assert row.method == "fedavg" and (tmp_path / "results.json").exists()


def test_float32_is_the_precision_that_every_device_has():
    assert prepare([TINY.replace(precision="float32")])[0].config == prepare([TINY])[0].config
    with pytest.raises(FedsacError, match="precision tf32 is a GPU's"):
        prepare([TINY.replace(precision="tf32", device="cpu")])


def test_only_a_runs_folder_can_be_taken_up(tmp_path):
    with pytest.raises(FedsacError, match="is not a run's folder"):
        fedsac.resume(tmp_path)
    assert not any(tmp_path.iterdir())


def test_the_name_of_a_run():
    config = TINY.replace(method="fedavg", data="digits", scene="cla", seed=3)
    assert RunInfo(config).name == "fedavg-digits-cla-seed3"
    assert RunInfo(config, Path("somewhere") / "mine").name == "mine"


def test_a_run_goes_on_with_other_clients():
    prepared = prepare([TINY.replace(method="fedavg")])[0]
    run = Running(prepared)
    run.begin(Contributions((0.1, 0.2, 0.3, 0.4), (0.5, 0.6, 0.7, 0.8)))
    assert run.info.folder is None and run.info.clients == prepared.members.names
    run.state = {"model": run.state["model"] + 1}
    some = Members.of(("client-03", "new"), (30, 10))
    run.change_members(Contributions((0.3, 0.25), (0.7, 0.65)), some)
    assert (run.task.clients, run.task.samples, run.task.size_shares) == (("client-03", "new"), (30, 10), (1.0, 1 / 3))
    assert run.task.contributions == (0.3, 0.25)
    assert torch.equal(run.state["model"], prepared.initial + 1)
    assert len(run.assignment.neurons) == len(run.submodels) == 2


def test_data_that_is_dealt_out_already_is_prepared_the_same_way():
    prepared = prepare([TINY])[0]
    again = prepare_split(prepared.config, prepared.split)
    assert again.fingerprint == prepared.fingerprint
    assert torch.equal(again.initial, prepared.initial) and torch.equal(again.test.x, prepared.test.x)
    assert again.members == prepared.members


def test_threads_are_set_while_a_run_goes_on():
    class Threads(Watcher):
        def round(self, run, record):
            seen.append(torch.get_num_threads())

    before, seen = torch.get_num_threads(), []
    fedsac.run(TINY.replace(rounds=1, threads=before + 1), watcher=Threads())
    assert seen == [before + 1] and torch.get_num_threads() == before


def test_the_time_of_earlier_processes_counts(tmp_path):
    class Interrupted(Watcher):
        def round(self, run, record):
            if record["round"] == 2:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fedsac.run(TINY.replace(rounds=3), tmp_path / "run", watcher=Interrupted())
    timing = tmp_path / "run" / "timing.json"
    written = json.loads(timing.read_text())
    assert written["seconds"] > 0
    timing.write_text(json.dumps(written | {"seconds": 1000.0}))
    assert 1000 < fedsac.resume(tmp_path / "run").seconds < 1900


def test_the_engine_is_asked_who_takes_part_before_every_round():
    class Asked(LocalEngine):
        def gather(self, runs):
            rounds.append([run.round for run in runs])
            return super().gather(runs)

    rounds = []
    runs = [Running(prepared) for prepared in prepare([TINY.replace(rounds=3), TINY.replace(rounds=2, seed=1)])]
    play(runs, Asked(Watcher(), nobody_absent), Watcher())
    assert rounds == [[0, 0], [1, 1], [2]]


def test_the_common_model_is_scored_by_the_runs_metric():
    config = TINY.replace(rounds=1, method="fedavg", metric="macro-f1")
    found, test = fedsac.run(config), prepare([config])[0].test
    model = found.global_model
    scores, _ = evaluate(model.layout, model.params.unsqueeze(0), None, test, metric=macro_f1)
    assert found.last["global_accuracy"] == pytest.approx(float(scores[0]), abs=1e-6)
    assert found.last["global_accuracy"] != pytest.approx(
        fedsac.run(config.replace(metric="accuracy")).last["global_accuracy"]
    )


def test_a_checkpoint_without_its_log_does_not_count(tmp_path):
    fedsac.run(TINY.replace(rounds=2), tmp_path / "run")
    checkpoint, records = peek(tmp_path / "run")
    assert checkpoint.round == len(records) == 2
    assert set(checkpoint.state) == {"model", "importance", "neurons"}
    assert set(checkpoint.shown) == {"importance", "neurons"}
    (tmp_path / "run" / "rounds.jsonl").unlink()
    assert peek(tmp_path / "run") is None


def test_a_checkpoint_holds_numbers():
    contributions = Contributions((0.1,), (0.1,))
    assert pack(Checkpoint(1, {"a": 0.5}, contributions, "f"), b"")
    with pytest.raises(ValueError, match="JSON compliant"):
        pack(Checkpoint(1, {"a": float("nan")}, contributions, "f"), b"")


def test_rounds_of_other_clients_are_left_out():
    records = [{"round": 1, "clients": ["a"]}, {"round": 2, "clients": ["a", "b"]}, {"round": 3}]
    assert [record["round"] for record in of_clients(records, ("a", "b"))] == [2, 3]
    assert [record["round"] for record in of_clients(records, ("a",))] == [1, 3]


def test_what_is_wrong_is_said_before_data_is_read(tmp_path):
    config = TINY.replace(data="no-such-data.npz")
    with pytest.raises(FedsacError, match="no-such-data"):
        fedsac.run(config)
    for what in ("metric", "contribution", "behaviour"):
        with pytest.raises(FedsacError, match=f"{what} 'no_such_module:own' cannot be imported"):
            fedsac.run(config.replace(**{what: "no_such_module:own"}))
    (tmp_path / "letter.txt").write_text("somebody's")
    with pytest.raises(FedsacError, match="holds other files than a run's"):
        fedsac.run(config, tmp_path)


class Told(Watcher):
    """Keeps what it is told."""

    def __init__(self):
        self.told = []

    def alone(self, *what):
        self.told.append(("alone", *what))

    def begin(self, *what):
        self.told.append(("begin", *what))

    def round(self, *what):
        self.told.append(("round", *what))

    def end(self, *what):
        self.told.append(("end", *what))

    def note(self, *what):
        self.told.append(("note", *what))


def test_several_watchers_are_told_the_same():
    one, other = Told(), Told()
    all_of_them = Watchers(one, other)
    info = RunInfo(TINY)
    calls = [
        ("alone", 1, 2),
        ("begin", info, [{}]),
        ("round", info, {"round": 1}),
        ("end", info, "R"),
        ("note", "text"),
    ]
    for name, *what in calls:
        getattr(all_of_them, name)(*what)
    assert one.told == other.told == calls


def test_a_watcher_is_told_what_a_run_goes_on_from(tmp_path):
    first = Told()
    fedsac.run(TINY.replace(rounds=2), tmp_path / "run", watcher=first)
    assert [name for name, *_ in first.told if name != "alone"] == ["begin", "round", "round", "end"]
    again = Told()
    fedsac.resume(tmp_path / "run", watcher=again)
    (begin, info, records), (end, *_) = again.told
    assert (begin, end) == ("begin", "end") and info.folder == tmp_path / "run"
    assert [record["round"] for record in records] == [1, 2]
