"""Every method in whole runs: with clients that drop out, in another order, interrupted, asked for by wrong names."""

import json
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch

import fedsac
from fedsac import Config, FedsacError
from fedsac.contributions.base import Contributions
from fedsac.data.catalogue import load
from fedsac.data.split import split
from fedsac.doors import METHODS
from fedsac.methods import make
from fedsac.runs.local import LocalEngine
from fedsac.runs.loop import play
from fedsac.runs.running import Running
from fedsac.runs.setup import prepare
from fedsac.runs.start import nobody_absent
from fedsac.runs.watcher import Watcher
from tests import plain

TINY = Config(rounds=3, clients=4, hidden=(16,), local_steps=3, standalone_steps=10)
VARIANTS = [TINY.replace(method=name) for name in METHODS]
VARIANTS += [
    TINY.replace(method=name, options={"reward_by": "own"})
    for name in METHODS
    if "reward_by" in (option.name for option in fields(METHODS.resolve(name)))
]
VARIANTS += [
    TINY.replace(method=name, options={"reward_by": "own", "reading": reading})
    for name, reading in (("cffl", "code"), ("cffl", "paper"), ("cgsv", "paper"), ("rffl", "paper"))
]
VARIANTS += [TINY.replace(method="aequa", options=o) for o in ({"timing": "during"}, {"targets": "gain"})]
every_method = pytest.mark.parametrize("config", VARIANTS, ids=lambda c: "-".join([c.method, *c.options.values()]))


def test_there_are_methods_that_reward_in_two_ways():
    assert {c.method for c in VARIANTS if "reward_by" in c.options} == {"cffl", "cgsv", "fedave", "rffl"}


@every_method
def test_it_survives_an_absent_client_and_a_round_nobody_answers(config):
    def absent(round, name):
        return round == 1 or (round == 0 and name == "client-02")

    result = fedsac.run_together([config], absent=absent)[0]
    assert [len(record["answered"]) for record in result.records] == [3, 0, 4]
    assert result.records[1]["bytes"]["up"] == 0 < result.records[1]["bytes"]["down"]
    json.dumps(result.summary(), allow_nan=False)
    assert len(result.reward_models) == 4
    for network, reward in zip(result.reward_models, result.rewards, strict=True):
        assert network.params.isfinite().all() and 0 <= reward <= 1
    if not make(config).assign(*begun(config)).extra_epoch:  # such copies are trained anew after each round
        assert result.records[1]["rewards"] == result.records[0]["rewards"]
    assert result.records[2]["rewards"] != result.records[1]["rewards"]


def begun(config):
    """The task and the first state of a run."""
    c = (0.3, 0.4, 0.5, 0.6)
    prepared = prepare([config])[0]
    task = prepared.task(prepared.members, Contributions(c, c))
    return task, make(config).start(task)


@every_method
def test_permuted_clients_give_permuted_results(config):
    config = config.replace(dtype="float64")
    digits = load("digits")
    # Pixels that are black in every image have equal gradients: rounding would decide which of them are the largest.
    noise = np.random.default_rng(0).normal(0, 0.01, digits.x.shape)
    uneven = replace(digits, x=digits.x + noise.astype(np.float32))
    dealt, order = split(uneven, "pow", 4, None, seed=0), [2, 0, 3, 1]
    one, other = (fedsac.run_together([config], splits=[s])[0] for s in (dealt, dealt.permuted(order)))
    for ours, i in enumerate(order):
        assert other.clients[ours] == one.clients[i]
        assert plain.worst(other.reward_models[ours].params, one.reward_models[i].params) < 1e-6
        assert other.rewards[ours] == pytest.approx(one.rewards[i], abs=1e-12)
        assert other.last["neurons"][ours] == one.last["neurons"][i]
        if one.reputations is not None and other.reputations is not None:
            assert other.reputations[ours] == pytest.approx(one.reputations[i], abs=1e-6)
    if one.global_model is not None and other.global_model is not None:
        assert plain.worst(other.global_model.params, one.global_model.params) < 1e-6


@every_method
def test_its_state_is_tensors_and_json(config):
    running = Running(prepare([config])[0])
    play([running], LocalEngine(Watcher(), nobody_absent), Watcher())
    values = {name: value for name, value in running.state.items() if not isinstance(value, torch.Tensor)}
    assert len(values) < len(running.state)
    assert json.loads(json.dumps(values, allow_nan=False)) == values  # no tuples either: they would come back as lists


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != "timing.json")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


class StopAfter(Watcher):
    """Gives up after a round, as a kill would."""

    def __init__(self, last: int) -> None:
        self.last = last

    def round(self, run, record):
        if record["round"] == self.last:
            raise KeyboardInterrupt


@pytest.mark.parametrize("method", ["cgsv", "iafl", "rffl", "fedave", "fedrac", "aequa"])
def test_resumed_it_ends_with_the_same_bytes(method, tmp_path):
    config = TINY.replace(method=method, rounds=4)
    fedsac.run(config, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        fedsac.run(config, tmp_path / "resumed", watcher=StopAfter(2))
    fedsac.resume(tmp_path / "resumed")
    assert contents(tmp_path / "resumed") == contents(tmp_path / "whole")


def test_resumed_it_has_the_same_options_and_has_forgotten_nobody(tmp_path):
    """RFFL's list of those it removed, and the options of the method, go through the folder."""
    options = {"reward_by": "own", "length": 0.4}
    config = TINY.replace(method="rffl", rounds=14, clients=5, local_steps=20, scene="cla", options=options)
    whole = fedsac.run(config, tmp_path / "whole")
    assert whole.reputations[0] == 0  # who has one class only was removed after round 10
    with pytest.raises(KeyboardInterrupt):
        fedsac.run(config, tmp_path / "resumed", watcher=StopAfter(12))
    fedsac.resume(tmp_path / "resumed")
    assert contents(tmp_path / "resumed") == contents(tmp_path / "whole")


def test_a_reward_by_itself_is_another_than_by_contribution():
    for name in ("cffl", "cgsv", "fedave", "rffl"):
        pair = [fedsac.run(TINY.replace(method=name, options=o)) for o in ({}, {"reward_by": "own"})]
        differ = [not torch.equal(a.params, b.params) for a, b in zip(*(p.reward_models for p in pair), strict=True)]
        assert all(differ), name


MINE = """
from dataclasses import dataclass

import fedsac

class NoDataclass(fedsac.Method):
    def start(self, task): ...
    def assign(self, task, state): ...
    def learn(self, task, state, updates): ...

@dataclass
class NoLearn(fedsac.Method):
    def start(self, task): ...
    def assign(self, task, state): ...

@dataclass
class Old:
    def start(self, task): ...
    def rewards(self, task, state): ...
    def learn(self, task, state, updates): ...
"""


@pytest.mark.parametrize(
    ("method", "options", "says"),
    [
        ("qffl", {"p": 1}, "method qffl has no option 'p'; it has q"),
        ("fedavg", {"q": 1}, "method fedavg has no option 'q'; it has none"),
        ("qffl", {"q": "much"}, "option q must be a number, not 'much'"),
        ("fedrac", {"step": "2.5"}, "option step must be a whole number, not '2.5'"),
        ("fedsac", {"calibrated": "perhaps"}, "option calibrated must be true or false, not 'perhaps'"),
        ("cffl", {"reading": "mine"}, "reading must be fedsac or code or paper, not 'mine'"),
        ("cffl", {"clip": 0}, "clip must be above 0, not 0"),
        ("cffl", {"upload": 1.5}, "upload must be above 0 and at most 1, not 1.5"),
        ("cgsv", {"reward_by": "luck"}, "reward_by must be contribution or own, not 'luck'"),
        ("iafl", {"kappa": 2}, "kappa must be between 0 and 1, not 2"),
        ("iafl", {"q": "-0.1"}, "q must be between 0 and 1, not -0.1"),
        ("fedrac", {"step": 0}, "step must be at least 1, not 0"),
        ("aequa", {"least_width": 0}, "least_width must be above 0 and at most 1, not 0"),
        ("aequa", {"widths": 1}, "widths must be at least 2, not 1"),
        ("aequa", {"targets": "all"}, "targets must be range or gain, not 'all'"),
        ("aequa", {"timing": "never"}, "timing must be after or during, not 'never'"),
        ("fedsad", {}, "no method 'fedsad' (did you mean fedsac?); there are standalone, fedavg"),
        (
            "nowhere:FedMine",
            {},
            "method 'nowhere:FedMine' cannot be imported: No module named 'nowhere'; is it on PYTH",
        ),
        ("mine:FedMine", {}, "method 'mine:FedMine' cannot be imported: module 'mine' has no attribute 'FedMine'"),
        ("mine:NoLearn", {}, "method 'mine:NoLearn' lacks learn; see docs/adding-a-method.md"),
        (
            "mine:Old",
            {},
            "method 'mine:Old' must be a class derived from fedsac.Method; its function rewards is called assign now",
        ),
        ("mine:NoDataclass", {}, "method 'mine:NoDataclass' must be a dataclass"),
    ],
)
def test_what_is_wrong_with_a_method_is_said_in_a_line(method, options, says, tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(FedsacError) as raised:
        make(TINY.replace(method=method, options=options))
    assert str(raised.value).startswith(says) and "\n" not in str(raised.value)


def test_options_come_as_text_or_as_values():
    assert make(TINY.replace(method="qffl", options={"q": "2"})).q == 2.0
    assert make(TINY.replace(method="fedrac", options={"step": "4"})).step == 4
    for value in ("true", "True", True):
        assert make(TINY.replace(method="fedsac", options={"calibrated": value})).calibrated is True
    assert make(TINY.replace(method="fedsac-plus", options={"calibrated": "false"})).calibrated is False
    assert make(TINY.replace(method="fedsac", beta=7)).beta == 7.0
    assert make(TINY.replace(method="cgsv", data="cifar10")).length == 0.15
    assert make(TINY.replace(method="cgsv")).length == 0.5


def test_a_method_that_assigns_something_else_is_named(tmp_path, monkeypatch):
    (tmp_path / "threes.py").write_text("""from dataclasses import dataclass

import fedsac


@dataclass(frozen=True)
class Threes(fedsac.Method):
    def start(self, task):
        return {"model": task.initial}

    def assign(self, task, state):
        return 3

    def learn(self, task, state, updates):
        return state
""")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(FedsacError, match=r"method threes:Threes: assign must return a fedsac.Assignment, not int"):
        fedsac.run(Config(method="threes:Threes", rounds=1, clients=2, hidden=(4,), standalone_steps=2))
