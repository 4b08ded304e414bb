"""What clients do besides training honestly: absent, late, hostile; reproducible, resumable, kept apart."""

import json

import numpy as np
import pytest
import torch

import fedsac
from fedsac import Config, Layout
from fedsac.data.catalogue import load
from fedsac.data.split import split
from fedsac.doors import METHODS
from fedsac.runs.watcher import Watcher
from tests.test_store import contents

HERE = "tests.test_behaviour"
TINY = Config(rounds=3, clients=4, hidden=(16,), local_steps=3, standalone_steps=10)
FEDAVG = TINY.replace(method="fedavg")


def answered(result):
    return [set(record["answered"]) for record in result.records]


# -- absent


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.8])
def test_absent_misses_rounds_with_its_probability(probability):
    """Of 600 draws, within four standard deviations."""
    result = fedsac.run(FEDAVG.replace(rounds=30, clients=20, local_steps=1, behaviour=f"absent:{probability}"))
    missed = sum(20 - len(who) for who in answered(result))
    assert abs(missed - 600 * probability) < 4 * np.sqrt(600 * probability * (1 - probability))
    assert all(0 < len(who) < 20 for who in answered(result)[:5]) or probability == 0.1
    assert result.records[0]["bytes"]["up"] < result.records[0]["bytes"]["down"]


def test_absent_is_reproducible_and_the_seeds():
    config = FEDAVG.replace(rounds=8, behaviour="absent:0.5")
    one, again, other = (fedsac.run(c) for c in (config, config, config.replace(seed=1)))
    assert one.records == again.records
    assert answered(one) != answered(other)


def test_absent_does_not_depend_on_the_order_of_the_clients():
    config = FEDAVG.replace(rounds=8, behaviour="absent:0.5")
    dealt, order = split(load("digits"), "pow", 4, None, seed=0), [2, 0, 3, 1]
    one, other = (fedsac.run_together([config], splits=[s])[0] for s in (dealt, dealt.permuted(order)))
    assert one.clients != other.clients
    assert answered(one) == answered(other)
    assert len({frozenset(who) for who in answered(one)}) > 2


def test_nobody_ever_comes():
    result = fedsac.run(FEDAVG.replace(behaviour="absent:1"))
    assert answered(result) == [set()] * 3
    assert len({record["global_accuracy"] for record in result.records}) == 1


@pytest.mark.parametrize("method", list(METHODS))
def test_every_method_lives_with_absent_clients(method):
    result = fedsac.run(TINY.replace(method=method, behaviour="absent:0.5"))
    assert sum(map(len, answered(result))) < 12
    json.dumps(result.summary(), allow_nan=False)
    assert all(network.params.isfinite().all() for network in result.reward_models)


# -- late


def test_late_sends_the_model_of_the_round_before():
    """If everybody always is late, FedAvg has after each round the mean that it would have had a round earlier."""
    late = [fedsac.run(FEDAVG.replace(rounds=n, behaviour="late:1")).global_model.params for n in (1, 2, 3, 4)]
    honest = [fedsac.run(FEDAVG.replace(rounds=n)).global_model.params for n in (1, 2)]
    assert torch.equal(late[0], honest[0])  # there is nothing older to send yet
    assert torch.equal(late[1], honest[0])
    assert torch.equal(late[2], honest[1])
    assert not torch.equal(late[3], late[2])


def test_late_is_late_now_and_then():
    seen = spied(FEDAVG.replace(rounds=12, behaviour=f"{HERE}:spied_late:0.4"))
    late = [torch.equal(s["sent"], s["before"]) for s in seen if s["before"] is not None]
    fresh = [torch.equal(s["sent"], s["trained"]) for s in seen if s["before"] is not None]
    assert len(late) == 11 * 4 and all(a != b for a, b in zip(late, fresh, strict=True))
    assert abs(sum(late) - 44 * 0.4) < 4 * np.sqrt(44 * 0.24)


SEEN = []


def spied(config):
    SEEN.clear()
    fedsac.run(config)
    return list(SEEN)


def spied_late(round, client, update):
    from fedsac.clients.behaviour import late

    before = next((s["trained"] for s in reversed(SEEN) if s["client"] == client), None)
    sent = late(round, client, update)
    SEEN.append({"client": client, "trained": update.trained, "sent": sent, "before": before})
    return sent


# -- what a behaviour is given


def look(round, client, update):
    SEEN.append({"round": round, "client": client, "update": update, "drawn": update.rng.random()})
    return update.trained


def test_what_a_behaviour_is_given():
    seen = spied(TINY.replace(rounds=2, behaviour=f"{HERE}:look:some:text"))
    assert [(s["round"], s["client"]) for s in seen] == [(r, f"client-0{i}") for r in (0, 1) for i in (1, 2, 3, 4)]
    assert len({s["drawn"] for s in seen}) == 8
    for i, s in enumerate(seen):
        update = s["update"]
        assert update.parameter == "some:text" and update.clients[i % 4] == s["client"]
        assert torch.equal(update.everyone[i % 4], update.trained)
        assert update.neurons.shape == (16,) and update.neurons.dtype == torch.bool
        assert not torch.equal(update.trained, update.received)
    assert torch.equal(seen[0]["update"].received, seen[3]["update"].received)  # all start from one model
    again = spied(TINY.replace(rounds=2, behaviour=f"{HERE}:look:some:text"))
    assert [s["drawn"] for s in again] == [s["drawn"] for s in seen]


def test_looking_changes_nothing():
    for method in ("fedsac", "fedavg", "cgsv"):
        one, other = (fedsac.run(TINY.replace(method=method, behaviour=b)) for b in (None, f"{HERE}:look"))
        assert one.records == other.records
        assert all(torch.equal(a.params, b.params) for a, b in zip(one.reward_models, other.reward_models, strict=True))


def vandal(round, client, update):
    """Spoils everything that it was given a copy of, and sends the honest answer."""
    honest = update.trained.clone()
    for tensor in (update.trained, update.received, *(v for v in update.memory.values() if torch.is_tensor(v))):
        tensor.fill_(7)
    update.neurons.zero_()
    update.memory["kept"] = honest
    return honest


@pytest.mark.parametrize("method", ["fedavg", "fedsac", "standalone", "iafl", "rffl"])
def test_changing_its_copies_in_place_spoils_nothing(method):
    config = TINY.replace(method=method)
    alone, (spoiling, beside) = (
        fedsac.run(config),
        fedsac.run_together([config.replace(behaviour=f"{HERE}:vandal"), config.replace(beta=4.0)]),
    )
    apart = fedsac.run(config.replace(beta=4.0))
    for one, other in ((alone, spoiling), (apart, beside)):
        assert other.rewards == pytest.approx(one.rewards, abs=0.01)
        for a, b in zip(one.reward_models, other.reward_models, strict=True):
            assert (a.params - b.params).abs().max() < 1e-5
    vandalised = fedsac.run(config.replace(behaviour=f"{HERE}:vandal"))
    assert [r["rewards"] for r in vandalised.records] == [r["rewards"] for r in alone.records]


def with_gradients(round, client, update):
    """As an attack that is optimised returns it; in another precision, too."""
    answer = update.trained.double().requires_grad_()
    update.memory["attack"] = answer
    return answer * 1.0


def test_what_is_sent_needs_no_gradient(tmp_path):
    honest = fedsac.run(FEDAVG)
    result = fedsac.run(FEDAVG.replace(behaviour=f"{HERE}:with_gradients"), tmp_path / "run")
    assert torch.equal(result.global_model.params, honest.global_model.params)
    assert not result.global_model.params.requires_grad


def scrambled(round, client, update):
    """What a client sends for neurons that it does not hold is nobody's matter."""
    held = Layout((64, 16, 10)).held(update.neurons)
    noise = torch.from_numpy(update.rng.normal(size=len(held))).to(update.trained)
    return torch.where(held, update.trained, noise)


@pytest.mark.parametrize("method", list(METHODS))
def test_entries_outside_its_neurons_have_no_meaning(method):
    config = TINY.replace(method=method, beta=20.0)
    one, other = (fedsac.run(config.replace(behaviour=b)) for b in (None, f"{HERE}:scrambled"))
    assert one.records == other.records
    for a, b in zip(one.reward_models, other.reward_models, strict=True):
        assert torch.equal(a.params, b.params)


def test_submodels_are_among_what_was_tried():
    result = fedsac.run(TINY.replace(beta=20.0))
    assert min(result.records[0]["neurons"]) < 16


# -- hostile


def nan_sender(round, client, update):
    return update.trained * float("nan") if (client, round) == ("client-02", 1) else update.trained


def quitter(round, client, update):
    return None if (client, round) == ("client-02", 1) else update.trained


class Notes(Watcher):
    def __init__(self):
        self.said = []

    def note(self, text):
        self.said.append(text)


def test_of_runs_side_by_side_it_is_said_in_which():
    notes = Notes()
    config = TINY.replace(behaviour=f"{HERE}:nan_sender")
    fedsac.run_together([config.replace(method=method) for method in ("fedavg", "cgsv")], watcher=notes)
    said = "-digits-pow-seed0, round 2: client-02 diverged (NaN or infinity) and was left out"
    assert notes.said == [f"fedavg{said}", f"cgsv{said}"]


@pytest.mark.parametrize("method", ["fedavg", "fedsac", "cgsv", "qffl", "fedave"])
def test_whoever_sends_nan_is_left_out_and_named(method):
    notes = Notes()
    result = fedsac.run(TINY.replace(method=method, behaviour=f"{HERE}:nan_sender"), watcher=notes)
    assert [record["diverged"] for record in result.records] == [[], ["client-02"], []]
    assert [len(who) for who in answered(result)] == [4, 3, 4]
    assert notes.said == ["round 2: client-02 diverged (NaN or infinity) and was left out"]
    absent = fedsac.run(TINY.replace(method=method, behaviour=f"{HERE}:quitter"))
    assert [record["diverged"] for record in absent.records] == [[], [], []]
    assert result.rewards == absent.rewards
    for a, b in zip(result.reward_models, absent.reward_models, strict=True):
        assert torch.equal(a.params, b.params)


def returns_what_it_got(round, client, update):
    return update.received if client == "client-01" else update.trained


def test_who_diverges_and_sends_something_else_has_answered():
    """A server can only see what is sent."""
    wild = FEDAVG.replace(rounds=1, lr=1e12, local_steps=20, standalone_steps=1)
    assert fedsac.run(wild).records[0]["diverged"] == [f"client-0{i}" for i in (1, 2, 3, 4)]
    record = fedsac.run(wild.replace(behaviour=f"{HERE}:returns_what_it_got")).records[0]
    assert record["answered"] == ["client-01"]
    assert record["diverged"] == ["client-02", "client-03", "client-04"]


# -- memory


def accountant(round, client, update):
    """Remembers a tensor that it changes in place, a single number, a list and a tuple; answers depend on all."""
    memory = update.memory
    if not memory:
        memory |= {"sum": torch.zeros_like(update.trained), "rounds": [], "norm": torch.tensor(0.0), "pair": (0, 0)}
    assert isinstance(memory["rounds"], list) and memory["norm"].shape == () and len(memory["rounds"]) == round
    memory["sum"].add_(update.trained)
    memory["rounds"].append(round)
    memory["norm"] = memory["norm"] + update.trained.norm()
    memory["pair"] = (memory["pair"][1], round)
    if STOP and (round, client) == (2, "client-03"):
        raise KeyboardInterrupt
    return memory["sum"] / len(memory["rounds"]) + 1e-6 * memory["norm"]


STOP = []


class Stop(Watcher):
    def __init__(self, round):
        self._round = round

    def round(self, run, record):
        if record["round"] == self._round:
            raise KeyboardInterrupt


@pytest.mark.parametrize("behaviour", ["late:0.5", f"{HERE}:accountant", "absent:0.5"])
@pytest.mark.parametrize("round", [1, 3])
def test_a_resumed_run_ends_with_the_same_bytes(behaviour, round, tmp_path):
    config = TINY.replace(rounds=5, behaviour=behaviour)
    fedsac.run(config, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        fedsac.run(config, tmp_path / "run", watcher=Stop(round))
    fedsac.resume(tmp_path / "run")
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


def test_an_interruption_within_a_round_leaves_no_trace_of_it(tmp_path):
    """Commits are made at the interruption alone, when some clients of the round had already changed what they knew."""
    config = TINY.replace(rounds=5, behaviour=f"{HERE}:accountant")
    fedsac.run(config, tmp_path / "whole")
    STOP.append(True)
    try:
        with pytest.raises(KeyboardInterrupt):
            fedsac.run_together([config], [tmp_path / "run"], every_round=False)
    finally:
        STOP.clear()
    assert len((tmp_path / "run" / "rounds.jsonl").read_text().splitlines()) == 2
    fedsac.resume(tmp_path / "run")
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


def test_a_run_is_not_resumed_with_another_behaviour(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        fedsac.run(TINY.replace(behaviour="late:0.5"), tmp_path / "run", watcher=Stop(1))
    path = tmp_path / "run" / "config.toml"
    path.write_text(path.read_text().replace("late:0.5", "late:0.6"))
    with pytest.raises(fedsac.FedsacError, match="not what this run began with"):
        fedsac.resume(tmp_path / "run")


# -- side by side


def test_runs_side_by_side_keep_their_behaviours_apart():
    base = TINY.replace(method="fedavg", dtype="float64", rounds=4)
    behaviours = [None, "late:0.5", "absent:0.5", f"{HERE}:accountant", "late:0.9", None]
    configs = [base.replace(behaviour=b) for b in behaviours[:-1]] + [base.replace(method="fedsac")]
    together = fedsac.run_together(configs)
    for config, beside in zip(configs, together, strict=True):
        alone = fedsac.run(config)
        assert answered(alone) == answered(beside)
        assert beside.rewards == pytest.approx(alone.rewards, abs=1e-12)
        for a, b in zip(alone.reward_models, beside.reward_models, strict=True):
            assert (a.params - b.params).abs().max() < 1e-9
    models = [result.global_model.params for result in together[:-1]]
    assert all(not torch.equal(models[0], other) for other in models[1:])
