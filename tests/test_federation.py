"""Whole runs: repeatable, independent of order and company, calm when clients fail."""

import numpy as np
import pytest
import torch

import fedsac
from fedsac import Config, FedsacError
from fedsac.compute import batches
from fedsac.data.catalogue import load
from fedsac.data.split import split
from fedsac.models.network import Network
from fedsac.rng import stream
from fedsac.runs.setup import prepare
from fedsac.runs.watcher import Watcher
from tests import plain

SMALL = Config(rounds=4, clients=4, hidden=(24, 16), local_steps=8, standalone_steps=30)


def parameters(result):
    return result.global_model.params


def test_the_same_config_gives_the_same_bytes():
    one, two = fedsac.run(SMALL), fedsac.run(SMALL)
    assert one.summary() == two.summary()
    assert one.records == two.records
    assert (parameters(one) == parameters(two)).all()


def test_another_seed_gives_another_run():
    assert fedsac.run(SMALL).summary() != fedsac.run(SMALL.replace(seed=1)).summary()


@pytest.mark.parametrize("method", ["fedsac", "fedavg"])
def test_permuted_clients_give_permuted_results(method):
    config = SMALL.replace(method=method, dtype="float64")
    dealt = split(load("digits"), "pow", 4, None, seed=0)
    order = [2, 0, 3, 1]
    plain_run, permuted = (fedsac.run_together([config], splits=[s])[0] for s in (dealt, dealt.permuted(order)))
    assert plain.worst(parameters(permuted), parameters(plain_run)) < 1e-6
    for name in ("rewards", "contributions", "contributions_test", "samples", "neurons", "client_names"):
        ours, theirs = permuted.summary()[name], plain_run.summary()[name]
        assert ours == [theirs[i] for i in order]


def test_runs_do_not_depend_on_their_company():
    configs = [SMALL, SMALL.replace(seed=5), SMALL.replace(method="fedavg", rounds=3), SMALL.replace(lr=0.02, beta=10)]
    together = fedsac.run_together(configs)
    for config, result in zip(configs, together, strict=True):
        alone = fedsac.run(config)
        assert plain.worst(parameters(result), parameters(alone)) < 1e-5
        assert result.rewards == pytest.approx(alone.rewards, abs=0.01)


def test_the_loop_is_algorithm_1():
    """Two rounds of FedSAC written out with torch modules, autograd and the plain importance loop."""
    config = SMALL.replace(rounds=2, dtype="float64", hidden=(12, 9))
    result = fedsac.run(config)
    prepared = prepare([config])[0]
    pool, normal = prepared.clients.pool, prepared.validation
    x = pool.x.double() * pool.scale + pool.shift
    v = normal.x.double() * normal.scale + normal.shift
    model = Network(prepared.layout, prepared.initial)
    reputations = fedsac.reputation(result.contributions.validation, config.beta)
    for round in range(2):
        neurons = fedsac.allocate(plain.importance(model.module(), v, normal.y), reputations)
        total = torch.zeros_like(model.params)
        holders = torch.zeros_like(model.params)
        for i, name in enumerate(prepared.clients.names):
            own = prepared.clients.rows[i]
            mine = own[
                batches.client_batches(len(own), config.local_steps, config.batch, stream(0, "batches", round, name))
            ]
            small = plain.train(fedsac.extract(model, neurons[i]).module(), x, pool.y, list(mine), config.lr)
            held = prepared.layout.held(neurons[i])
            total[held] += Network.of(small).params
            holders[held] += 1
        model = Network(model.layout, torch.where(holders > 0, total / holders.clamp_min(1), model.params))
    assert plain.worst(parameters(result), model.params) < 1e-8
    final = fedsac.allocate(plain.importance(model.module(), v, normal.y), reputations)
    assert result.summary()["neurons"] == final.sum(1).tolist()
    test = prepared.test.x.double() * prepared.test.scale + prepared.test.shift
    for i, reward in enumerate(result.rewards):
        with torch.no_grad():
            predicted = fedsac.extract(model, final[i]).module()(test).argmax(1)
        assert reward == pytest.approx(float((predicted == prepared.test.y).double().mean()), abs=1e-12)


def test_fedavg_weighs_by_samples():
    config = SMALL.replace(rounds=5, dtype="float64", method="fedavg", hidden=(12,))
    result = fedsac.run(config)
    prepared = prepare([config])[0]
    pool = prepared.clients.pool
    x = pool.x.double() * pool.scale + pool.shift
    model = prepared.initial
    sizes = np.array([len(own) for own in prepared.clients.rows])
    for round in range(5):
        new = torch.zeros_like(model)
        for name, own, n in zip(prepared.clients.names, prepared.clients.rows, sizes, strict=True):
            mine = own[
                batches.client_batches(len(own), config.local_steps, config.batch, stream(0, "batches", round, name))
            ]
            start = Network(prepared.layout, model).module()
            new += Network.of(plain.train(start, x, pool.y, list(mine), config.lr)).params * n / sizes.sum()
        model = new
    assert plain.worst(parameters(result), model) < 1e-8


class Notes(Watcher):
    def __init__(self):
        self.said = []

    def note(self, text):
        self.said.append(text)


def test_a_client_that_drops_out_does_not_count():
    gone = fedsac.run_together([SMALL], absent=lambda round, name: round == 1 and name == "client-02")[0]
    everyone = fedsac.run(SMALL)
    assert gone.records[0] == everyone.records[0]
    assert gone.records[1]["answered"] == ["client-01", "client-03", "client-04"]
    assert gone.records[1]["bytes"]["up"] < gone.records[1]["bytes"]["down"]
    assert gone.records[1]["rewards"] != everyone.records[1]["rewards"]


@pytest.mark.parametrize("method", ["fedsac", "fedavg"])
def test_a_round_that_nobody_answers_changes_nothing(method):
    config = SMALL.replace(method=method)
    gone = fedsac.run_together([config.replace(rounds=4)], absent=lambda round, name: round == 3)[0]
    before = fedsac.run(config.replace(rounds=3, standalone_steps=30))
    assert (parameters(gone) == parameters(before)).all()
    assert gone.records[-1]["answered"] == [] and gone.records[-1]["bytes"]["up"] == 0


def with_a_wild_silo(folder):
    """Two silos that learn, and one whose values are so large that every training on them overflows."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 6))
    y = (x[:, 0] + x[:, 1] > 0).astype(int)
    x[300:] *= 1e25
    for name, rows in {
        "a": slice(0, 100),
        "b": slice(100, 200),
        "validation": slice(200, 300),
        "wild": slice(300, 400),
    }.items():
        np.savez(folder / f"{name}.npz", x=x[rows], y=y[rows])
    return Config(data=str(folder), rounds=3, hidden=(8,), standalone_steps=40)


def test_a_client_that_diverges_is_named_and_set_aside(tmp_path):
    """The run goes on without it."""
    notes = Notes()
    result = fedsac.run(with_a_wild_silo(tmp_path), watcher=notes)
    assert result.clients == ("a", "b", "wild")
    assert result.contributions.diverged == ("wild",) and result.contributions.test[2] == 0
    assert all(record["diverged"] == ["wild"] for record in result.records)
    assert all(record["answered"] == ["a", "b"] for record in result.records)
    assert parameters(result).isfinite().all()
    assert any("wild diverged while training alone" in text for text in notes.said)
    assert any("round 1: wild diverged" in text for text in notes.said)


def test_a_clients_outlier_stays_its_own(tmp_path):
    """A batch of a small client is filled up with rows that do not count; they must not be another's infinity."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 4))
    y = (x[:, 0] > 0).astype(int)
    x[0, 0] = 1e39  # the first row of all, in the silo that comes first
    for name, rows in {
        "a": slice(0, 60),
        "b": slice(60, 65),
        "c": slice(65, 125),
        "validation": slice(125, 200),
    }.items():
        np.savez(tmp_path / f"{name}.npz", x=x[rows], y=y[rows])
    result = fedsac.run(Config(data=str(tmp_path), rounds=2, hidden=(8,), standalone_steps=10))
    assert result.contributions.diverged == ("a",)
    assert all(record["answered"] == ["b", "c"] for record in result.records)


def test_a_copy_that_diverges_in_its_extra_epoch_stays_what_it_was(tmp_path):
    """FedAvg rewards with copies of the common model that clients have trained for one epoch more."""
    result = fedsac.run(with_a_wild_silo(tmp_path).replace(method="fedavg"))
    a, b, wild = (network.params for network in result.reward_models)
    assert torch.equal(wild, parameters(result))
    assert a.isfinite().all() and b.isfinite().all()
    assert not torch.equal(a, parameters(result)) and not torch.equal(b, parameters(result))


def test_everybody_diverging_is_an_error():
    with pytest.raises(FedsacError, match=r"every client's standalone training diverged.*lower --lr"):
        fedsac.run(SMALL.replace(lr=1e30))


def test_importance_every_keeps_the_order_in_between():
    config = SMALL.replace(rounds=5, importance_every=3)
    always, seldom = fedsac.run(SMALL.replace(rounds=5)), fedsac.run(config)
    assert always.records[0]["bytes"] == seldom.records[0]["bytes"]  # the first order is the same
    sizes = [record["neurons"] for record in seldom.records]
    # Measured after rounds 3 and 5 (the last): the submodels keep their sizes until then.
    assert sizes[0] == sizes[1] != sizes[2] == sizes[3] != sizes[4]


def test_rounds_that_are_not_evaluated_have_no_numbers():
    result = fedsac.run(SMALL.replace(rounds=5, eval_every=2))
    assert [record["rewards"] is not None for record in result.records] == [False, True, False, True, True]
    assert result.records[0]["gamma"] is None
    assert result.results["last"]["round"] == 5


def test_labels_pick_their_rounds():
    from fedsac.contributions.base import Contributions
    from fedsac.runs.labels import chosen

    c = Contributions(validation=(0.1, 0.2, 0.3), test=(0.1, 0.2, 0.3))
    straight, bent, flat = [0.4, 0.5, 0.6], [0.4, 0.6, 0.5], [0.5, 0.5, 0.5]

    def record(round, test, validation):
        return {"round": round, "rewards": test, "rewards_validation": validation, "gamma": fedsac.gamma(c.test, test)}

    records = [record(1, straight, bent), record(2, bent, straight), record(3, bent, straight), record(4, flat, flat)]
    picked = chosen(records, c)
    assert {label: r["round"] for label, r in picked.items()} == {"last": 4, "selected": 3, "best": 1}


def test_contributions_on_the_test_set_decide_when_asked():
    one, two = fedsac.run(SMALL), fedsac.run(SMALL.replace(contribution_on="test"))
    assert one.contributions == two.contributions
    assert two.reputations == tuple(fedsac.reputation(two.contributions.test, SMALL.beta).tolist())
    assert one.reputations == tuple(fedsac.reputation(one.contributions.validation, SMALL.beta).tolist())


def test_bytes_are_those_of_the_submodels_sent():
    result = fedsac.run(SMALL)
    for before, after in zip(result.records, result.records[1:], strict=False):
        assert after["bytes"]["down"] == 4 * sum(before["parameters"])
    assert [network.params.numel() for network in result.reward_models] == result.last["parameters"]


def test_silos_are_taken_as_they_come(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 5))
    y = (x @ rng.normal(size=5) > 0).astype(int)
    cuts = {"north": slice(0, 200), "south": slice(200, 250), "validation": slice(250, 350), "test": slice(350, 500)}
    for name, rows in cuts.items():
        np.savez(tmp_path / f"{name}.npz", x=x[rows], y=y[rows])
    config = Config(data=str(tmp_path), rounds=5, hidden=(16,))
    result = fedsac.run(config)
    assert result.clients == ("north", "south") and result.samples == (200, 50)
    assert result.config.scene == "silos" and result.reported_on == "test"
    with pytest.raises(FedsacError, match="leave --scene pow out"):
        fedsac.run(config.replace(scene="pow"))
    with pytest.raises(FedsacError, match="has 2 silos, not 5"):
        fedsac.run(config.replace(clients=5))
    (tmp_path / "test.npz").unlink()
    assert fedsac.run(config).reported_on == "validation"


def test_an_unknown_method_lists_the_known_ones():
    with pytest.raises(FedsacError, match=r"no method 'fedsad' .did you mean fedsac.*there are standalone, fedavg"):
        fedsac.run(SMALL.replace(method="fedsad"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_cuda_where_there_is_none():
    with pytest.raises(FedsacError, match="no CUDA device; use --device cpu"):
        fedsac.run(SMALL.replace(device="cuda"))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("method", ["fedsac", "fedavg"])
def test_cuda_agrees_with_the_cpu(method, tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(4, size=900)
    x = np.clip(rng.normal(100 + 20 * y[:, None], 40, size=(900, 30)), 0, 255).astype(np.uint8)
    np.savez(tmp_path / "own.npz", x=x, y=y)
    config = SMALL.replace(dtype="float64", method=method, data=str(tmp_path / "own.npz"))
    on_cpu, on_cuda = fedsac.run(config), fedsac.run(config.replace(device="cuda"))
    assert plain.worst(parameters(on_cuda), parameters(on_cpu)) < 1e-8
    assert on_cuda.rewards == on_cpu.rewards
