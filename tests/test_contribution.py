"""What clients bring, by every measure: known answers, plain recomputation, whole runs."""

from dataclasses import replace
from itertools import permutations
from math import factorial

import numpy as np
import pytest
import torch

import fedsac
from fedsac import Config, FedsacError
from fedsac.clients.population import Clients
from fedsac.compute.samples import Samples
from fedsac.contributions import cosine, leave_one_out, shapfed, shapley
from fedsac.contributions.base import STANDALONE, Contributions, in_unit_range
from fedsac.contributions.coalitions import CoalitionScores
from fedsac.contributions.fedavg_rounds import FedAvgRound, train_fedavg
from fedsac.contributions.measurement import Measurement, decided, is_measured
from fedsac.contributions.standalone import standalone
from fedsac.core import metrics
from fedsac.doors import CONTRIBUTIONS, METHODS
from fedsac.models.mlp import initial_weights
from fedsac.models.network import Network
from fedsac.rng import stream
from fedsac.runs.labels import chosen, judged
from fedsac.runs.setup import prepare
from fedsac.runs.watcher import Watcher
from tests import plain

MEASURES = [name for name in CONTRIBUTIONS if name != STANDALONE]
TINY = Config(rounds=3, clients=4, hidden=(16,), local_steps=8, standalone_steps=24)
FULL_BATCH = 64  # more than any made client has: everybody takes all samples at every step, and no draw matters


def made(parts, *, rounds=4, dtype=torch.float64):
    """A run on ten-dimensional data of four classes; `parts` names each client's rows, "noise" ones with labels that
    mean nothing. Rows 0 to 299 are the clients', the rest V and the test set."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(4, 10)) * 1.5
    y = rng.integers(0, 4, size=900)
    x = torch.from_numpy(centres[y] + rng.normal(size=(900, 10))).to(dtype)
    y[250:300] = rng.integers(0, 4, size=50)
    one, zero, labels = torch.ones(1, 10, dtype=dtype), torch.zeros(1, 10, dtype=dtype), torch.from_numpy(y)

    def samples(rows):
        return Samples(x[rows], labels[rows], one, zero)

    layout, rows = fedsac.Layout((10, 12, 4)), tuple(np.asarray(rows) for rows in parts.values())
    clients = Clients(layout, tuple(parts), rows, samples(slice(0, 300)), 0.2, FULL_BATCH, 5, seed=0)
    start = initial_weights(layout, 0, dtype)
    return Measurement(clients, start, 5 * rounds, samples(slice(300, 600)), samples(slice(600, 900)), metrics.accuracy)


A, B, C, NOISE = range(40), range(40, 80), range(80, 120), range(250, 300)


# Every measure


@pytest.mark.parametrize("name", MEASURES)
def test_equal_clients_bring_the_same(name):
    values = CONTRIBUTIONS.resolve(name)(run := made({"one": A, "two": A, "three": A}), run.validation)
    assert values == pytest.approx([values[0]] * 3, abs=1e-12)


@pytest.mark.parametrize("name", MEASURES)
def test_a_duplicate_brings_what_its_twin_brings(name):
    run = made({"one": A, "other": B, "twin": A, "noise": NOISE})
    one, other, twin, _ = CONTRIBUTIONS.resolve(name)(run, run.validation)
    assert one == pytest.approx(twin, abs=1e-12)
    assert one != pytest.approx(other, abs=1e-6)


@pytest.mark.parametrize("name", MEASURES)
def test_labels_that_mean_nothing_bring_least(name):
    run = made({"a": A, "b": B, "noise": NOISE, "c": C})
    values = CONTRIBUTIONS.resolve(name)(run, run.validation)
    assert int(np.argmin(values)) == 2
    assert values[2] < min(values[:2] + values[3:]) - 0.005


@pytest.mark.parametrize("name", MEASURES)
def test_the_samples_that_judge_are_the_ones_named(name):
    run = made({"a": A, "b": B, "noise": NOISE})
    on_v, on_test = (CONTRIBUTIONS.resolve(name)(run, samples) for samples in (run.validation, run.test))
    swapped = replace(run, validation=run.test, test=run.validation)
    assert CONTRIBUTIONS.resolve(name)(swapped, swapped.validation) == on_test
    assert (on_v == on_test) == (name in ("cosine", "shapfed"))


@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.parametrize("clients", [4, 8])
def test_the_order_of_the_clients_does_not_matter(name, clients):
    parts = {f"client-{i}": range(30 * i, 30 * i + 25) for i in range(clients)}
    order = list(np.random.default_rng(1).permutation(list(parts)))
    run, other = made(parts), made({key: parts[key] for key in order})
    values = dict(zip(parts, CONTRIBUTIONS.resolve(name)(run, run.validation), strict=True))
    permuted = dict(zip(order, CONTRIBUTIONS.resolve(name)(other, other.validation), strict=True))
    assert permuted == pytest.approx(values, abs=1e-9)


@pytest.mark.parametrize("name", MEASURES)
def test_a_client_that_diverges_is_set_aside(name):
    """Its values overflow: the others' values are those of a federation without it, and it brings nothing."""
    run = made({"a": A, "b": B, "wild": range(200, 240)})
    run.clients.pool.x[200:240] *= 1e200
    values = CONTRIBUTIONS.resolve(name)(run, run.validation)
    without = made({"a": A, "b": B})
    assert values[:2] == pytest.approx(CONTRIBUTIONS.resolve(name)(without, without.validation), abs=1e-9)
    assert values[2] == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("name", MEASURES)
def test_everybody_diverging_leaves_nothing(name):
    run = made({"a": A, "b": B})
    run.clients.pool.x[:] *= 1e200
    assert CONTRIBUTIONS.resolve(name)(run, run.validation) == (0, 0)


def test_an_unknown_measure_lists_what_there_is(tmp_path):
    with pytest.raises(FedsacError) as raised:
        fedsac.run(TINY.replace(contribution="shaply"), tmp_path / "run")
    assert str(raised.value) == (
        "no contribution 'shaply' (did you mean shapley?); there are standalone, leave-one-out, shapley, cosine, "
        "shapfed, or module:attribute"
    )
    assert not (tmp_path / "run").exists()


def sample_counts(run, on):
    return tuple(float(len(rows)) for rows in run.clients.rows)


def test_a_measure_is_one_function():
    result = fedsac.run(TINY.replace(contribution="tests.test_contribution:sample_counts", beta=2.0))
    assert result.contributions.deciding == result.samples
    share = np.array(result.samples) / max(result.samples)
    assert result.reputations == pytest.approx(100 * np.exp(2 * (share - 1)))


def one_too_few(run, on):
    return [0.5] * (len(run.clients.names) - 1)


def one_not_a_number(run, on):
    return [float("nan"), *one_too_few(run, on)]


def words(run, on):
    return ["much", "little"]


@pytest.mark.parametrize(
    ("name", "shown"),
    [("one_too_few", "[0.5]"), ("one_not_a_number", "[nan, 0.5]"), ("words", "['much', 'little']")],
)
def test_a_measure_gives_a_number_for_every_client(name, shown):
    run = made({"a": A, "b": B})
    config = TINY.replace(contribution=f"tests.test_contribution:{name}")
    with pytest.raises(FedsacError) as raised:
        decided(config, run, standalone([run])[0])
    assert str(raised.value).endswith(f"{name} must give a number for each of 2 clients, not {shown}")


def test_whether_there_is_a_measure_beside_standing_alone():
    assert not is_measured(TINY)
    assert is_measured(TINY.replace(contribution="cosine"))
    assert not is_measured(TINY.replace(contributions="given.csv"))


# Standing alone


def test_progress_is_told_in_steps_of_the_longest_run():
    """Rounds of 5 steps, and so parts of 5: of 7 steps, and of 12."""
    run, told = made({"a": A, "b": B}), []
    standalone([replace(run, steps=7), replace(run, steps=12)], told.append)
    assert told == [5, 10, 12]


def test_standing_alone_is_plain_training():
    run = made({"a": A, "noise": NOISE, "b": range(40, 50)})
    found = standalone([run])[0]
    for i, rows in enumerate(run.clients.rows):
        start = Network(run.clients.layout, run.initial).module()
        mine = plain.train(start, run.clients.pool.x, run.clients.pool.y, [rows] * run.steps, run.clients.lr)
        model = Network.of(mine).params
        assert found.validation[i] == pytest.approx(accuracy(run.clients.layout, model, run.validation), abs=1e-12)
        assert found.test[i] == pytest.approx(accuracy(run.clients.layout, model, run.test), abs=1e-12)
    assert found.validation[0] > found.validation[2] > found.validation[1]
    assert found.deciding is None


# Training together


def test_rounds_are_fedavgs():
    """Against torch modules and autograd, one client at a time."""
    run = made({"a": A, "b": range(40, 60), "c": C}, rounds=3)
    model, count = run.initial, 0
    for (played,) in train_fedavg([run.clients], run):
        assert plain.worst(played.received, model) < 1e-9
        new = torch.zeros_like(model)
        for rows, n in zip(run.clients.rows, (40, 20, 40), strict=True):
            start = Network(run.clients.layout, model).module()
            mine = plain.train(start, run.clients.pool.x, run.clients.pool.y, [rows] * 5, run.clients.lr)
            new += Network.of(mine).params * n / 100
        model, count = new, count + 1
        assert plain.worst(played.aggregated, model) < 1e-9
    assert count == 3


def accuracy(layout, model, on):
    logits = Network(layout, model).logits(on.x.to(model.dtype) * on.scale + on.shift)
    return float((logits.argmax(1) == on.y).double().mean())


def utility_of(layout, played, on):
    """The accuracy of each coalition's model, one model at a time."""

    def utility(coalitions):
        worth = []
        for row in coalitions:
            n = played.samples[row]
            worth.append(accuracy(layout, (n / n.sum()) @ played.trained[row] if len(n) else played.received, on))
        return np.array(worth)

    return utility


@pytest.mark.parametrize("hidden", [(7,), (7, 6), (7, 6, 5)])
def test_coalitions_are_worth_what_their_models_reach(hidden):
    layout = fedsac.Layout((5, *hidden, 4))
    models = torch.stack([Network.of(plain.random_module(layout.sizes, seed)).params for seed in range(5)])
    played = FedAvgRound(0, models[4], (0, 1, 3, 4), models[:4], torch.tensor([1.0, 20, 3, 4], dtype=torch.float64))
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (200, 5), generator=generator, dtype=torch.uint8)
    y = torch.randint(0, 4, (200,), generator=generator)
    on = Samples(x, y, torch.rand(1, 5).double() / 100, torch.randn(1, 5).double() / 10)
    coalitions = (np.arange(16)[:, None] >> np.arange(4) & 1).astype(bool)[np.random.default_rng(0).permutation(16)]
    coalitions = np.concatenate([coalitions, coalitions[:5]])  # more than are evaluated at a time
    worth = CoalitionScores(layout, played, on, metrics.accuracy)(coalitions)
    assert len(set(worth)) > 8
    assert worth == pytest.approx(utility_of(layout, played, on)(coalitions), abs=1e-12)


# Leave-one-out


def test_leave_one_out_is_two_trainings(monkeypatch):
    run = made({"a": A, "b": B, "noise": NOISE, "c": C})
    run = replace(run, clients=replace(run.clients, batch=16))  # clients draw, and must draw alike in both

    def after(clients):
        for played in train_fedavg([clients], run):
            model = played[0].aggregated
        return accuracy(clients.layout, model, run.test)

    expected = []
    for i in range(4):
        kept = [k for k in range(4) if k != i]
        names, rows = (tuple(part[k] for k in kept) for part in (run.clients.names, run.clients.rows))
        expected.append(after(run.clients) - after(replace(run.clients, names=names, rows=rows)))
    assert leave_one_out.measure(run, run.test) == pytest.approx(expected, abs=1e-12)
    # In stacks of one federation each, as with a hundred clients.
    monkeypatch.setattr("fedsac.contributions.leave_one_out.MODELS_AT_ONCE", 1)
    assert leave_one_out.measure(run, run.test) == pytest.approx(expected, abs=1e-12)


# Shapley


def by_definition(utility, n):
    """The mean over all n! orders of what each adds to those before it."""
    values = np.zeros(n)
    for order in permutations(range(n)):
        joined = np.zeros(n, dtype=bool)
        for i in order:
            before = utility(joined[None])[0]
            joined[i] = True
            values[i] += utility(joined[None])[0] - before
    return values / factorial(n)


def airport(costs):
    """A runway costs what its largest plane needs; Shapley values share each stretch among those who use it."""
    costs = np.asarray(costs, dtype=float)
    return lambda coalitions: np.array([costs[row].max(initial=0) for row in coalitions])


def game(n, seed=0):
    """Any worth at all for each coalition, nothing for nobody."""
    worth = np.random.default_rng(seed).uniform(size=2**n)
    worth[0] = 0
    return lambda coalitions: worth[coalitions @ (1 << np.arange(n))]


def test_exact_values_of_known_games():
    assert shapley.exact_shapley(airport([3, 1, 2]), 3) == pytest.approx([1 / 3 + 1 / 2 + 1, 1 / 3, 1 / 3 + 1 / 2])
    gloves = shapley.exact_shapley(lambda s: np.minimum(s[:, 0], s[:, 1] | s[:, 2]).astype(float), 3)
    assert gloves == pytest.approx([2 / 3, 1 / 6, 1 / 6])
    assert shapley.exact_shapley(lambda s: s @ np.array([0.3, -0.2, 0.5, 0]), 4) == pytest.approx([0.3, -0.2, 0.5, 0])


@pytest.mark.parametrize("n", [1, 2, 5])
def test_exact_values_are_those_of_the_definition(n):
    assert shapley.exact_shapley(game(n), n) == pytest.approx(by_definition(game(n), n), abs=1e-12)


def test_orders_are_guided():
    drawn = shapley.draw_orders(7, 30, stream(0, "shapley", 0))
    assert len(drawn) == 35
    assert (np.sort(drawn, axis=1) == np.arange(7)).all()
    assert np.bincount(drawn[:, 0]).tolist() == [5] * 7
    assert len(np.unique(drawn, axis=0)) > 30  # the rest is drawn


def test_sampling_all_orders_is_exact_and_sampling_some_comes_near():
    n, utility = 5, game(5)
    everything = np.array(list(permutations(range(n))))
    assert shapley.sampled_shapley(utility, everything, truncate=0) == pytest.approx(
        shapley.exact_shapley(utility, n), abs=1e-12
    )
    # A marginal contribution here has a deviation of about 0.4: 3000 orders leave 0.008, of which this is 4.
    some = shapley.draw_orders(n, 3000, stream(0, "shapley", 0))
    assert shapley.sampled_shapley(utility, some, truncate=0) == pytest.approx(
        shapley.exact_shapley(utility, n), abs=0.03
    )


def test_truncation_saves_evaluations_and_costs_at_most_its_threshold():
    seen = []

    def utility(coalitions):
        seen.extend(map(tuple, coalitions.tolist()))
        return airport([8, 8, 8, 8, 8, 8, 8, 8])(coalitions)

    drawn = shapley.draw_orders(8, 30, stream(0, "shapley", 0))
    assert shapley.sampled_shapley(utility, drawn, truncate=1e-3) == pytest.approx([1] * 8)
    # Whoever is first brings everything: after eight single clients, nobody and all, nothing is evaluated.
    assert len(seen) == len(set(seen)) == 10
    utility = game(8)
    cut, whole = (shapley.sampled_shapley(utility, drawn, truncate=t) for t in (0.05, 0))
    assert (cut != whole).any()
    gain = utility(np.ones((1, 8), dtype=bool))[0]
    assert whole.sum() == pytest.approx(gain, abs=1e-12)
    assert cut.sum() == pytest.approx(gain, abs=0.05)


def test_a_rounds_values_add_up_to_its_gain():
    run = made({"a": A, "b": B, "noise": NOISE, "c": C}, rounds=1)
    ((played,),) = list(train_fedavg([run.clients], run))
    nobody, everybody = utility_of(run.clients.layout, played, run.test)(np.array([[False] * 4, [True] * 4]))
    assert everybody - nobody > 0.1
    assert sum(shapley.measure(run, run.test)) == pytest.approx(everybody - nobody, abs=1e-12)


def test_shapley_is_the_sum_over_rounds_of_the_definition():
    run = made({"a": A, "b": B, "noise": NOISE, "c": C})
    expected = sum(
        by_definition(utility_of(run.clients.layout, played, run.test), 4)
        for (played,) in train_fedavg([run.clients], run)
    )
    assert shapley.measure(run, run.test) == pytest.approx(expected, abs=1e-12)


def test_sampled_values_come_near_the_exact_ones(monkeypatch):
    parts = {f"client-{i}": range(30 * i, 30 * i + 25) for i in range(7)} | {"noise": NOISE}
    run = made(parts)
    sampled = np.array(shapley.measure(run, run.validation))
    monkeypatch.setattr(shapley, "EXACT_CLIENTS", 8)
    exact = np.array(shapley.measure(run, run.validation))
    assert (sampled != exact).any()
    # 104 orders a round; the values lie between -0.4 and 0.3.
    assert np.abs(sampled - exact).max() < 0.03
    assert sampled.sum() == pytest.approx(exact.sum(), abs=4 * shapley.TRUNCATE_GAIN)


def test_a_round_that_gains_nothing_counts_for_nobody(monkeypatch):
    run = made({"a": A, "b": B, "noise": NOISE})
    assert any(shapley.measure(run, run.validation))
    monkeypatch.setattr(shapley, "SKIP_GAIN", 1.1)
    assert shapley.measure(run, run.validation) == (0, 0, 0)


# Cosine


def test_cosine_is_numpys():
    run = made({"a": A, "b": range(40, 60), "noise": NOISE})
    found, n = [], np.array([40, 20, 50])
    for (played,) in train_fedavg([run.clients], run):
        d = (played.trained - played.received).numpy()
        common = (n[:, None] * d).sum(0) / n.sum()
        found.append([row @ common / np.linalg.norm(row) / np.linalg.norm(common) for row in d])
    assert len(found) == 4
    assert cosine.measure(run, run.validation) == pytest.approx(np.mean(found, axis=0), abs=1e-12)


# ShapFed


def test_shapfed_is_numpys():
    """Class by class, the last layer's weights and bias; clients weigh the same however many samples they have."""
    run = made({"a": A, "b": range(40, 60), "noise": NOISE})
    running = None
    for (played,) in train_fedavg([run.clients], run):
        last = (played.trained - played.received).numpy()[:, -(12 * 4 + 4) :]
        found = np.zeros(3)
        for k in range(4):
            rows = [[*own[:48].reshape(12, 4)[:, k], own[48 + k]] for own in last]
            common = np.mean(rows, axis=0)
            found += [row @ common / np.linalg.norm(row) / np.linalg.norm(common) / 4 for row in np.array(rows)]
        running = found if running is None else 0.9 * running + 0.1 * found
    assert shapfed.measure(run, run.validation) == pytest.approx(running, abs=1e-12)


def test_shapfed_tells_classes_apart():
    """A client that has two of four classes is unlike the others in those that it lacks."""
    labels = made({"one": A}).clients.pool.y[:250].numpy()
    two = np.flatnonzero(labels < 2)[:60]
    run = made({"two classes": two, "a": A, "b": B, "c": C})
    found = shapfed.class_contributions(
        run.clients.layout, 4, (played for (played,) in train_fedavg([run.clients], run))
    )
    assert found.shape == (4, 4) and (found.abs() <= 1 + 1e-12).all()
    assert found[0].mean() < found[1:].mean(1).min()


def test_shapfed_of_updates_of_zero_is_zero():
    layout = fedsac.Layout((2, 3, 2))
    updates = torch.zeros(2, layout.parameters, dtype=torch.float64)
    assert shapfed.class_similarities(layout, updates).tolist() == [[0, 0], [0, 0]]
    nobody = shapfed.class_contributions(layout, 2, [])
    assert nobody.tolist() == [[0, 0], [0, 0]] and nobody.dtype == torch.float64


def test_shapfed_goes_by_directions_however_small_the_updates():
    layout = fedsac.Layout((2, 3, 2))
    updates = torch.from_numpy(np.random.default_rng(0).normal(size=(3, layout.parameters)))
    found = shapfed.class_similarities(layout, updates)
    torch.testing.assert_close(shapfed.class_similarities(layout, 1e-30 * updates), found)


# What methods and reports make of it


@pytest.mark.parametrize(
    ("values", "given"),
    [
        ((0.2, 0.1, -0.3), (1, 0.5, 0)),
        ((3.0, 1.5), (1, 0.5)),
        ((0.0, 0.0), (1, 1)),
        ((-0.1, -0.3), (1, 1)),
    ],
)
def test_methods_are_given_values_from_0_to_1(values, given):
    assert in_unit_range(values) == pytest.approx(given)
    assert Contributions((0.5,) * len(given), (0.6,) * len(given), deciding=values).for_method("test") == pytest.approx(
        given
    )


def test_accuracies_are_given_as_they_are():
    c = Contributions((0.3, 0.4), (0.5, 0.6))
    assert (c.for_method("validation"), c.for_method("test")) == ((0.3, 0.4), (0.5, 0.6))


def test_gamma_is_the_deciding_values_and_bcf_the_accuracies():
    accuracies = Contributions((0.1, 0.2, 0.3), (0.1, 0.2, 0.3))
    other = replace(accuracies, deciding=(0.02, 0.05, -0.01))
    rewards = [0.25, 0.3, 0.35]
    one, two = judged(accuracies, "validation", rewards), judged(other, "validation", rewards)
    assert two["gamma"] == pytest.approx(100 * np.corrcoef(other.deciding, rewards)[0, 1])
    assert one.pop("gamma") == pytest.approx(100) and two.pop("gamma") < 0
    # Values that are no scores bound no rewards.
    assert one.pop("gamma_attainable") is not None and two.pop("gamma_attainable") is None
    assert one == two
    assert judged(other, "validation", None)["gamma"] is None
    records = [
        {"round": i + 1, "rewards": rewards, "rewards_validation": on_v, "gamma": 0.0}
        for i, on_v in enumerate(([0.3, 0.5, 0.1], [0.2, 0.3, 0.4]))
    ]
    assert chosen(records, other)["selected"]["round"] == 1
    assert chosen(records, accuracies)["selected"]["round"] == 2


@pytest.mark.parametrize("name", MEASURES)
def test_a_whole_run(name):
    config = TINY.replace(contribution=name)
    result, plainly = fedsac.run(config), fedsac.run(TINY)
    summary = result.summary()
    assert summary["contribution"] == name and plainly.summary()["contribution"] == "standalone"
    assert plainly.summary()["contributions_deciding"] is None
    for key in ("contributions", "contributions_test"):
        assert summary[key] == plainly.summary()[key]
    p = prepare([config])[0]
    run = Measurement(p.clients, p.initial, config.alone(), p.validation, p.test, p.metric)
    assert summary["contributions_deciding"] == list(CONTRIBUTIONS.resolve(name)(run, p.validation))
    given = in_unit_range(summary["contributions_deciding"])
    assert result.reputations == tuple(fedsac.reputation(given, config.beta).tolist())
    assert result.last["gamma"] == fedsac.gamma(summary["contributions_deciding"], result.rewards)
    assert result.inside_bcf == tuple(fedsac.bcf(standalone([run])[0].test, result.rewards).tolist())


def test_the_test_set_decides_when_asked():
    config = TINY.replace(contribution="leave-one-out")
    on_v, on_test = fedsac.run_together([config, config.replace(contribution_on="test")])
    p = prepare([config])[0]
    run = Measurement(p.clients, p.initial, config.alone(), p.validation, p.test, p.metric)
    assert on_v.contributions.deciding == leave_one_out.measure(run, p.validation)
    assert on_test.contributions.deciding == leave_one_out.measure(run, p.test)


def signed(run, on):
    return 0.05, -0.02, 0.0, 0.01


@pytest.mark.parametrize("name", list(METHODS))
def test_every_method_can_take_values_below_0(name):
    result = fedsac.run(TINY.replace(method=name, contribution="tests.test_contribution:signed"))
    assert all(0 <= reward <= 1 for reward in result.rewards)
    assert all(network.params.isfinite().all() for network in result.reward_models)


class StopError(Exception):
    pass


class StopsAfter(Watcher):
    def __init__(self, rounds):
        self.rounds = rounds

    def round(self, run, record):
        if record["round"] == self.rounds:
            raise StopError


def test_a_resumed_run_has_the_same_bytes(tmp_path):
    config = TINY.replace(contribution="shapley")
    fedsac.run(config, tmp_path / "whole")
    with pytest.raises(StopError):
        fedsac.run(config, tmp_path / "cut", watcher=StopsAfter(2))
    resumed = fedsac.resume(tmp_path / "cut")
    assert resumed.contributions.deciding is not None
    names = {p.relative_to(tmp_path / "whole") for p in (tmp_path / "whole").rglob("*") if p.is_file()}
    assert names == {p.relative_to(tmp_path / "cut") for p in (tmp_path / "cut").rglob("*") if p.is_file()}
    for name in names:
        if name.name != "timing.json":
            assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "cut" / name).read_bytes(), name


def test_the_table_shows_what_decides(tmp_path, capsys):
    from fedsac.cli import main

    def heads(*arguments):
        settings = [
            "--rounds",
            "2",
            "--clients",
            "10",
            "--standalone-steps",
            "5",
            "--out",
            str(tmp_path),
            "--overwrite",
        ]
        assert main(["run", *settings, *arguments]) == 0
        out = capsys.readouterr().out
        table = [line for line in out.splitlines() if "│" in line or "┃" in line]
        assert max(map(len, table)) <= 80
        assert any("client-10 " in line for line in table)  # names are whole
        return next(line for line in table if "samples" in line), out

    head, _ = heads()
    assert "decides" not in head
    head, out = heads("--contribution", "cosine")
    assert "decides" in head and "contribution (cosine)" in " ".join(out.split())


def test_rounds_whose_gammas_differ_by_rounding_alone_are_ties():
    accuracies = Contributions(validation=(0.1, 0.2, 0.3), test=(0.1, 0.2, 0.3))
    rewards = {"rewards": [0.3, 0.4, 0.5], "rewards_validation": [0.3, 0.4, 0.6]}
    records = [rewards | {"round": i + 1, "gamma": 75 - i * 1e-13} for i in range(2)]
    assert [chosen(records, accuracies)[label]["round"] for label in ("selected", "best")] == [2, 2]
