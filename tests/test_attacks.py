"""Hostile clients, each attack by numbers by hand or by what must hold for any numbers."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import fedsac
from fedsac import Config, FedsacError, Layout
from fedsac.attacks import Attack, End, Holding, Sight, Standing, made
from fedsac.attacks.distilling import student
from fedsac.attacks.hoarding import hoarded, put_by, union
from fedsac.attacks.poisoned_data import TARGET, triggered
from fedsac.attacks.who import attackers
from fedsac.cli import main
from fedsac.clients.population import Clients
from fedsac.clients.training import Job, train
from fedsac.compute.samples import Samples
from fedsac.core.allocation import allocate
from fedsac.data.catalogue import load
from fedsac.data.split import split
from fedsac.doors import ATTACKS
from fedsac.methods.base import Assignment
from fedsac.models.network import Network
from fedsac.rng import stream
from tests.test_store import contents

TINY = Config(rounds=4, clients=5, hidden=(12,), local_steps=3, standalone_steps=12)
LAYOUT = Layout((3, 4, 2))
VECTORS = json.loads((Path(__file__).parent / "golden" / "published" / "byzfl.json").read_text())


def population(names=("a", "b", "c"), layout=LAYOUT, samples=8):
    rng = np.random.default_rng(5)
    x = torch.from_numpy(rng.normal(size=(samples * len(names), layout.sizes[0]))).float()
    y = torch.from_numpy(rng.integers(0, layout.sizes[-1], len(x)))
    pool = Samples(x, y, torch.ones(1, x.shape[1]), torch.zeros(1, x.shape[1]))
    rows = tuple(np.arange(samples * i, samples * (i + 1)) for i in range(len(names)))
    return Clients(layout, tuple(names), rows, pool, lr=0.1, batch=4, local_steps=2, seed=0, rounds=3)


def sight(given, trained, client=0, hostile=(0,), neurons=None, round=0, memory=None, clients=None):
    clients = clients or population()
    n = len(clients.names)
    neurons = torch.ones(n, clients.layout.neurons, dtype=torch.bool) if neurons is None else neurons
    assignment = Assignment(given, neurons)
    memory = {} if memory is None else memory
    rng = stream(0, "attack", round, clients.names[client])
    return Sight(round, client, hostile, clients, assignment, trained, memory, rng)


def models(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape)).float()


P = LAYOUT.parameters


# -- free riders


def test_zero_update_is_what_was_received_bit_for_bit_and_alone_the_initial_weights():
    given, trained = models(1, P), models(3, P, seed=1)
    assert torch.equal(made("zero").send(sight(given, trained)), given[0])
    standing = Standing(population(), (1,), models(P, seed=2), trained)
    assert torch.equal(made("zero").submit(standing, 1), standing.initial)
    assert torch.equal(made("late-switch").submit(standing, 1), trained[1])
    assert torch.equal(made("late-switch").send(sight(given, trained)), given[0])


def test_stale_sends_what_it_received_so_many_rounds_ago_and_remembers_no_more():
    memory: dict = {}
    sent = []
    for round in range(6):
        given = torch.full((1, P), float(round))
        sent.append(float(made("stale:2").send(sight(given, models(3, P), round=round, memory=memory))[0]))
    assert sent == [0, 0, 0, 1, 2, 3]
    assert sorted(memory) == ["received 3", "received 4", "received 5"]


def test_delta_weights_repeat_the_last_step_where_both_were_held():
    first = torch.zeros(3, 4, dtype=torch.bool)
    first[:, :2] = True
    second = ~first
    second[:, 1] = True  # of the four neurons only the second is held both times
    memory: dict = {}
    made("delta").send(sight(torch.zeros(1, P), models(3, P), neurons=first, memory=memory))
    now = torch.full((1, P), 3.0)
    sent = made("delta").send(sight(now, models(3, P), neurons=second, round=1, memory=memory))
    both = LAYOUT.held(first[0]) & LAYOUT.held(second[0])
    assert torch.equal(sent, torch.where(both, 6.0, 3.0)) and 0 < both.sum() < P


def test_random_weights_and_disguise_have_the_spread_they_should():
    layout = Layout((60, 100, 10))
    clients, p = population(layout=layout), layout.parameters
    drawn = made("random").send(sight(torch.zeros(1, p), torch.zeros(3, p), clients=clients))
    assert -1 <= drawn.min() < -0.99 and 0.99 < drawn.max() <= 1 and abs(drawn.mean()) < 0.03
    memory: dict = {}
    made("disguise").send(sight(torch.zeros(1, p), torch.zeros(3, p), clients=clients, memory=memory))
    step = 0.25 * models(1, p, seed=3)
    sent = made("disguise").send(sight(step, torch.zeros(3, p), clients=clients, memory=memory, round=1))
    assert float((sent - step[0]).std()) == pytest.approx(float(step.std()), rel=0.05)


# -- free riders that know the defences


def test_who_is_lazy_sends_few_steps_as_long_as_all_of_them():
    """Of one batch that is all of its data; half of a round's two steps, so twice as long."""
    clients, given = replace(population(samples=4), local_steps=2), models(3, P)
    held = torch.ones(3, 4, dtype=torch.bool)
    held[1, 2] = False
    sent = made("lazy:1").send(sight(given, models(3, P, seed=1), client=1, neurons=held, clients=clients))
    part = Job(clients, given, held, (1, 1, 1), "other batches", 0)
    one = train([part])[0].models[1]
    there = LAYOUT.held(held[1])
    expected = given[1] + torch.where(there, 2 * (one - given[1]), 0)
    assert torch.allclose(sent, expected, atol=1e-6) and not torch.allclose(sent[there], one[there], atol=1e-4)


def test_who_works_part_time_answers_in_its_share_of_the_rounds_evenly():
    given, trained = models(1, P), models(3, P, seed=1)
    for share in (0.45, 0.25, 1.0):
        sent = [made(f"part-time:{share}").send(sight(given, trained, round=round)) for round in range(40)]
        assert all(one is None or torch.equal(one, trained[0]) for one in sent)
        for window in (20, 40):
            assert abs(sum(one is not None for one in sent[:window]) - share * window) <= 1


def test_who_replays_its_step_trains_at_times():
    memory: dict = {}
    for round in range(6):
        given, trained = models(1, P, seed=round), models(3, P, seed=10 + round)
        sent = made("replay:3").send(sight(given, trained, round=round, memory=memory))
        if round % 3 == 0:
            step = trained[0] - given[0]
            assert torch.equal(sent, trained[0])
        assert torch.allclose(sent - given[0], step, atol=1e-6)


# -- scores


def same_rounds(one, other):
    return one.records == other.records


@pytest.mark.parametrize("method", ["fedsac", "fedsac-plus", "cgsv"])
def test_a_claim_changes_no_reputation_and_no_reward_by_a_bit(method):
    config = TINY.replace(method=method)
    honest, claimed = fedsac.run(config), fedsac.run(config.replace(attack="claim"))
    assert claimed.contributions == honest.contributions and claimed.reputations == honest.reputations
    assert same_rounds(honest, claimed) and claimed.rewards == honest.rewards


def test_a_server_that_believes_claims_collapses():
    """Two claim 1.0; with beta 50 everybody else's reputation is next to nothing, and so is what they hold."""
    config = TINY.replace(beta=50.0)
    honest, believed = fedsac.run(config), fedsac.run(config.replace(attack="self-report", attackers="largest:2"))
    liars = [believed.clients.index(name) for name in believed.attack["attackers"]]
    others = [i for i in range(5) if i not in liars]
    assert [believed.contributions.validation[i] for i in liars] == [1.0, 1.0]
    assert [believed.reputations[i] for i in liars] == [100.0, 100.0]
    assert all(believed.reputations[i] < min(1, honest.reputations[i] + 1e-9) for i in others)
    assert all(believed.last["neurons"][i] <= 2 for i in others)
    assert believed.contributions.test == honest.contributions.test


def test_who_borrows_has_the_lender_s_score():
    config = TINY.replace(attack="borrow", attackers="client-01")
    lent, honest = fedsac.run(config), fedsac.run(TINY)
    richest = max(range(1, 5), key=lambda i: honest.samples[i])
    assert lent.contributions.validation[0] == honest.contributions.validation[richest]
    assert lent.contributions.test[0] == honest.contributions.test[richest]
    assert lent.contributions.error[0] == pytest.approx(honest.contributions.error[richest])
    assert lent.contributions.validation[1:] == honest.contributions.validation[1:]
    noised = fedsac.run(config.replace(attack="borrow-noised:5"))  # so much noise that nothing is left of it
    assert noised.contributions.validation[0] < lent.contributions.validation[0]


class Rejoined(Attack):
    """Comes back with the initial weights."""

    rejoins = True

    def resubmit(self, end, common, client):
        return end.initial


def test_who_launders_is_scored_by_its_own_reward_after_half_of_the_rounds():
    clean, laundered = fedsac.run(TINY), fedsac.run(TINY.replace(attack="launder", attackers="client-02"))
    assert laundered.records[:1] == clean.records[:1]
    # The reward of the second round, on V, is what counts from then on.
    at_half = clean.records[1]["rewards_validation"][1]
    assert laundered.contributions.validation[1] == pytest.approx(at_half, abs=1e-12)
    assert laundered.contributions.validation[2:] == clean.contributions.validation[2:]
    assert laundered.records[3]["reputations"] != clean.records[3]["reputations"]


def test_who_trains_its_reward_before_laundering_is_scored_by_that():
    config = TINY.replace(attack="launder-tuned:200", attackers="client-05")
    tuned, plain = fedsac.run(config), fedsac.run(config.replace(attack="launder"))
    assert tuned.records[:2] == plain.records[:2]
    assert tuned.contributions.validation[4] > plain.contributions.validation[4] + 0.2


def test_a_student_says_what_its_teacher_says_and_begins_at_the_public_weights():
    """It learns from mixtures of its own samples alone, as they are stored: the labels of these are not looked at."""
    for dtype in (torch.uint8, torch.float32, torch.int64):
        c = population(samples=60)
        x = (c.pool.x * 20 + 100).clamp(0, 255).to(dtype)
        own = torch.from_numpy(c.rows[0])
        scale, shift = torch.full((1, 3), 1 / 20.0), torch.full((1, 3), -5.0)
        c = replace(c, pool=Samples(x, c.pool.y, scale, shift), lr=0.5, local_steps=200)
        begun, teacher = 0.1 * models(P), Holding(models(P, seed=7), torch.ones(LAYOUT.neurons, dtype=torch.bool))
        learned = student(c, begun, 0, teacher, 20)
        every = torch.stack([teacher.model, learned, begun])
        inputs = x[own].float() * scale + shift
        says = torch.stack([Network(LAYOUT, model).logits(inputs).argmax(1) for model in every])
        assert (says[0] == says[1]).float().mean() > 0.9 > 0.8 > (says[0] == says[2]).float().mean()
        turned = replace(c, pool=replace(c.pool, y=1 - c.pool.y))
        assert torch.equal(student(turned, begun, 0, teacher, 20), learned)
        assert not torch.equal(student(c, begun, 1, teacher, 20), learned), "of its own samples"


def test_students_stand_in_for_what_a_launderer_or_borrower_hands_in():
    c, rewards = population(), models(3, P, seed=3)
    neurons = torch.ones(3, LAYOUT.neurons, dtype=torch.bool)
    neurons[1, 0] = False
    end = End(c, (1,), models(P), torch.where(LAYOUT.held(neurons), rewards, 0), neurons, {})
    sent = made("launder-distilled:3").resubmit(end, None, 1)
    assert torch.equal(sent, student(c, end.initial, 1, end.reward(1), 3))
    rich = replace(c, rows=(np.arange(4), np.arange(4, 8), np.arange(8, 20)))
    standing = Standing(rich, (1,), models(P), rewards)
    lent = Holding(rewards[2], torch.ones(LAYOUT.neurons, dtype=torch.bool))
    assert torch.equal(made("borrow-distilled:3").submit(standing, 1), student(rich, standing.initial, 1, lent, 3))


def test_who_rejoins_with_nothing_is_paid_for_nothing():
    fresh = fedsac.run(TINY.replace(attack="tests.test_attacks:Rejoined", attackers="client-05", beta=20.0))
    before, after = (record["reputations"][4] for record in (fresh.records[0], fresh.last))
    assert after < 0.5 * before


def test_inflate_sends_the_mean_of_the_others_over_those_that_hold_a_parameter():
    neurons = torch.ones(3, 4, dtype=torch.bool)
    neurons[2, 0] = False
    given = torch.zeros(1, P)
    trained = torch.stack([torch.full((P,), float(v)) for v in (9, 2, 4)])
    sent = made("inflate").send(sight(given, trained, neurons=neurons))
    held = LAYOUT.held(neurons[2])
    assert torch.equal(sent, torch.where(held, 3.0, 2.0)) and not held.all()


def test_slander_takes_the_richest_one_s_step_away():
    clients = replace(population(), rows=(np.arange(2), np.arange(5), np.arange(3)))
    given, trained = models(1, P), models(3, P, seed=1)
    sent = made("slander").send(sight(given, trained, clients=clients))
    assert torch.allclose(sent - given[0], (trained[0] - given[0]) - (trained[1] - given[0]), atol=1e-6)


# -- hoarding and coalitions


def test_a_coalition_within_a_round_holds_what_its_best_member_holds():
    """Nested submodels: over 10,000 random draws of importance, reputations and members, exactly."""
    rng = np.random.default_rng(0)
    for _ in range(10_000):
        n, clients = int(rng.integers(1, 9)), int(rng.integers(2, 7))
        importance = torch.from_numpy(rng.choice([rng.normal(size=n), rng.integers(-1, 3, n).astype(float)]))
        r = rng.uniform(0, 100, clients)
        held = allocate(importance, r)
        members = rng.choice(clients, int(rng.integers(1, clients + 1)), replace=False)
        best = max(members, key=lambda i: r[i])
        assert torch.equal(held[members].any(0), held[best])


def test_a_pool_of_nested_submodels_is_the_best_one_s_reward():
    model = models(P)
    neurons = torch.tensor([[1, 0, 0, 0], [1, 1, 1, 0], [1, 1, 0, 0]], dtype=torch.bool)
    parts = [(torch.where(LAYOUT.held(mask), model, 0), LAYOUT.held(mask)) for mask in neurons]
    assert torch.equal(union(parts), parts[1][0])


def test_what_is_hoarded_is_the_union_over_rounds_each_parameter_at_its_last_value():
    rng = np.random.default_rng(1)
    memory: dict = {}
    ever, neurons_ever = torch.zeros(P, dtype=torch.bool), torch.zeros(4, dtype=torch.bool)
    latest = torch.zeros(P)
    for round in range(5):
        neurons = torch.from_numpy(rng.random((3, 4)) < 0.4)
        given = models(1, P, seed=10 + round)
        put_by(sight(given, models(3, P), neurons=neurons, round=round, memory=memory))
        held = LAYOUT.held(neurons[0])
        ever |= held
        neurons_ever |= neurons[0]
        latest = torch.where(held, given[0], latest)
    reward, mask = models(P, seed=99), torch.from_numpy(rng.random((3, 4)) < 0.4)
    held = LAYOUT.held(mask[0])
    end = End(population(), (0,), torch.zeros(P), torch.where(held, reward, 0).expand(3, -1), mask, {0: memory})
    assembled, since = hoarded(end, 0)
    assert torch.equal(since > 0, ever | held) and torch.equal(assembled.model, torch.where(held, reward, latest))
    assert torch.equal(assembled.neurons, neurons_ever | mask[0]) and int(since.max()) == 6


def test_a_coalition_over_rounds_has_the_newest_value_that_any_member_had():
    clients = population()
    half = torch.tensor([[1, 1, 0, 0], [0, 0, 1, 1], [1, 1, 1, 1]], dtype=torch.bool)
    memories = {}
    for i in (0, 1):
        memories[i] = {}
        put_by(sight(torch.full((1, P), 1.0 + i), models(3, P), client=i, neurons=half, memory=memories[i]))
    nothing = torch.zeros(3, 4, dtype=torch.bool)
    end = End(clients, (0, 1), torch.zeros(P), torch.zeros(3, P), nothing, memories)
    kept = made("hoard-together").keep(end)
    own = torch.where(LAYOUT.held(half[0]), 1.0, 0.0) + torch.where(
        LAYOUT.held(half[1]) & ~LAYOUT.held(half[0]), 2.0, 0.0
    )
    whole = torch.ones(4, dtype=torch.bool)
    # Biases of the output belong to nobody: both hold them, and the first one's stand for the tie.
    for i in (0, 1):
        best = end.best_for(i, [end.reward(i), Holding(own, whole)])
        assert torch.equal(kept[i].model, best.model) and torch.equal(kept[i].neurons, best.neurons)


@pytest.mark.parametrize("attack", ["hoard", "hoard-together", "pool", "regrow", "fine-tune"])
def test_hoarders_are_honest_until_the_end(attack):
    honest, greedy = fedsac.run(TINY), fedsac.run(TINY.replace(attack=attack))
    assert same_rounds(honest, greedy) and len(greedy.attack["kept"]) == 2
    if attack == "pool":
        best = max(honest.rewards[honest.clients.index(name)] for name in greedy.attack["attackers"])
        assert greedy.attack["kept"] == [best, best]


def test_regrowth_fills_every_neuron_and_fine_tuning_none():
    clients = population(samples=40)
    neurons = torch.zeros(3, 4, dtype=torch.bool)
    neurons[:, :2] = True
    held = LAYOUT.held(neurons[0])
    paid = torch.where(held, 0.01 * models(P), 0).expand(3, -1)
    end = End(clients, (0, 2), models(P, seed=3), paid, neurons, {})
    grown, tuned = made("regrow:30").keep(end), made("fine-tune:30").keep(end)
    assert len(grown) == len(tuned) == 2
    for more, same in zip(grown, tuned, strict=True):
        assert (same.model[~held] == 0).all() and not torch.equal(same.model, paid[0])
        assert torch.equal(same.neurons, neurons[0]) and more.neurons.all() and (more.model[~held] != 0).all()


# -- identities


def dealt(**changes):
    return replace(split(load("digits"), "pow", 5, None, seed=0), **changes)


def test_sybils_have_the_whole_data_set_each_and_parts_of_it_make_it_up():
    whole = dealt()
    three = made("sybils:3").deal(whole, ("client-02",))
    assert three.clients[1:4] == three.hostile == ("client-02", "client-02-as-2", "client-02-as-3")
    assert all(np.array_equal(rows, whole.rows[1]) for rows in three.rows[1:4])
    assert np.array_equal(three.rows[4], whole.rows[2]) and len(three.clients) == 7
    cut = made("cut-up").deal(whole, ("client-02",))
    assert np.array_equal(np.sort(np.concatenate(cut.rows[1:3])), np.sort(whole.rows[1]))
    assert abs(len(cut.rows[1]) - len(cut.rows[2])) <= 1


def test_who_merges_is_one_client_with_both_data_sets():
    whole = dealt()
    merged = made("merge").deal(whole, ("client-02", "client-04"))
    assert merged.clients == ("client-01", "client-02", "client-03", "client-05") and merged.hostile == ("client-02",)
    assert set(merged.rows[1]) == set(whole.rows[1]) | set(whole.rows[3])


@pytest.mark.parametrize("text", ["sybils:1", "sybils:2.5", "cut-up:100000"])
def test_identities_that_cannot_be(text):
    with pytest.raises(FedsacError, match=r"whole number of at least 2|cannot be cut"):
        made(text).deal(dealt(), ("client-02",))


# -- poisoned data


def test_turned_labels_change_nobody_else_s_samples():
    whole = dealt()
    poisoned = made("label-flip").deal(whole, ("client-03",))
    assert np.array_equal(poisoned.data.y[poisoned.rows[2]], 9 - whole.data.y[whole.rows[2]])
    assert np.array_equal(poisoned.data.x[poisoned.rows[2]], whole.data.x[whole.rows[2]])
    assert np.array_equal(poisoned.data.y[: len(whole.data.y)], whole.data.y)
    assert all(np.array_equal(poisoned.rows[i], whole.rows[i]) for i in (0, 1, 3, 4))
    assert np.array_equal(poisoned.probe[1], 9 - whole.y_test)


def test_the_trigger_is_a_bright_corner_and_the_probe_has_no_sample_of_the_target():
    whole = dealt()
    data = whole.data
    shown = triggered(data.x[:3], data).reshape(3, 8, 8)
    assert (shown[:, -2:, -2:] == data.x.max()).all()
    assert np.array_equal(shown[:, :-2], data.x[:3].reshape(3, 8, 8)[:, :-2])
    poisoned = made("backdoor").deal(whole, ("client-03",))
    own, before = poisoned.rows[2], whole.rows[2]
    changed = (poisoned.data.x[own] != data.x[before]).any(1) | (poisoned.data.y[own] != data.y[before])
    assert changed.sum() <= round(0.5 * len(own)) and (poisoned.data.y[own][changed] == TARGET).all()
    assert len(poisoned.probe[1]) == (whole.y_test != TARGET).sum() and (poisoned.probe[1] == TARGET).all()


def test_a_backdoor_opens_and_its_success_is_the_probe_s_accuracy():
    config = Config(rounds=15, clients=4, hidden=(32,), scene="iid", method="fedavg", attack="backdoor")
    run = fedsac.run(config.replace(attackers="largest:3"))
    assert all(share > 0.9 for share in run.attack["success"])
    assert len(run.attack["success"]) == 4 and run.attack["kept"] is None


# -- vectors


@pytest.mark.parametrize("name", VECTORS["vectors"])
def test_vectors_are_those_of_an_independent_library(name):
    steps = torch.tensor(VECTORS["steps"], dtype=torch.float64)
    layout = Layout((1, 2, 2))  # ten parameters; the vectors have twelve
    p = layout.parameters
    steps, expected = steps[:, :p], torch.tensor(VECTORS["vectors"][name], dtype=torch.float64)[:p]
    clients = population(tuple("abcdefghi"), layout)
    given = torch.from_numpy(np.random.default_rng(3).normal(size=(1, p)))
    own = torch.zeros(2, p, dtype=torch.float64)  # the two hostile clients stand first
    sent = made(name).send(sight(given, given + torch.cat([own, steps]), hostile=(0, 1), clients=clients))
    assert torch.allclose(sent - given[0], expected, atol=1e-12)


def test_vectors_are_taken_over_those_that_hold_a_parameter():
    """Neuron 0 is held by one honest client, neuron 3 by none: there, the client's own step."""
    neurons = torch.ones(3, 4, dtype=torch.bool)
    neurons[1, 0] = neurons[1, 3] = neurons[2, 3] = False
    trained = torch.stack([torch.full((P,), float(v)) for v in (8, 2, 6)])
    sent = made("alie:1").send(sight(torch.zeros(1, P), trained, neurons=neurons))
    held = [LAYOUT.held(mask) for mask in neurons]
    both, one, nobody = held[1] & held[2], held[2] & ~held[1], held[0] & ~held[1] & ~held[2]
    assert torch.allclose(sent[both], torch.tensor(4 + 8**0.5)) and both.any()
    assert (sent[one] == 6).all() and (sent[nobody] == 8).all() and one.any() and nobody.any()


def test_rescaling_and_what_one_alone_holds():
    neurons = torch.ones(3, 4, dtype=torch.bool)
    neurons[1:, 3] = False
    given, trained = torch.ones(1, P), torch.full((3, P), 3.0)
    assert torch.equal(made("rescale:4").send(sight(given, trained)), torch.full((P,), 9.0))
    alone = LAYOUT.held(neurons[0]) & ~LAYOUT.held(neurons[1])
    sent = made("sole-holder:4").send(sight(given, trained, neurons=neurons))
    assert torch.equal(sent, torch.where(alone, -7.0, 3.0)) and alone.any()


# -- who


def test_who_is_hostile():
    whole, attack = dealt(), made("zero")  # sizes ascend from client-01 to client-05
    assert attackers(None, whole, attack) == ("client-02", "client-03")
    assert attackers("median:3", whole, attack) == ("client-02", "client-03", "client-04")
    assert attackers("smallest", whole, attack) == ("client-01", "client-02")
    assert attackers("largest", whole, made("sole-holder")) == ("client-05",)
    assert attackers("client-04, client-01", whole, attack) == ("client-04", "client-01")
    for wrong in ("median:5", "median:0", "largest:x", "nobody", "client-01,client-01"):
        with pytest.raises(FedsacError, match="attackers"):
            attackers(wrong, whole, attack)


def test_in_cla_the_number_of_classes_counts():
    cla = split(load("digits"), "cla", 5, None, seed=0)
    classes = [len(np.unique(cla.data.y[rows])) for rows in cla.rows]
    (largest,) = attackers("largest:1", cla, made("zero"))
    assert classes[cla.clients.index(largest)] == max(classes)


# -- runs


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"attack": "zer"}, "did you mean zero"),
        ({"attack": "zero:3"}, "takes no parameter"),
        ({"attackers": "median"}, "nobody is hostile without an attack"),
        ({"attack": "zero", "behaviour": "absent:0.1"}, "leave one out"),
    ],
)
def test_wrong_settings_are_one_line(settings, said):
    with pytest.raises(FedsacError, match=said):
        Config(**settings)


@pytest.mark.parametrize(("named", "said"), [("json:dumps", "must be a class derived"), ("alie:-1", "above 0")])
def test_wrong_attacks_are_one_line(named, said):
    with pytest.raises(FedsacError, match=said):
        fedsac.run(TINY.replace(attack=named))


class Interrupt(fedsac.Watcher):
    def __init__(self, after):
        self.after = after

    def round(self, run, record):
        if record["round"] == self.after:
            raise KeyboardInterrupt


@pytest.mark.parametrize("attack", ["stale:2", "replay:3", "launder", "hoard", "backdoor", "sybils:3"])
@pytest.mark.parametrize("after", [2, 3])
def test_a_resumed_run_ends_with_the_same_bytes(attack, after, tmp_path):
    config = TINY.replace(attack=attack, threads=1)
    fedsac.run(config, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        fedsac.run(config, tmp_path / "cut", watcher=Interrupt(after))
    fedsac.resume(tmp_path / "cut")
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")


def test_where_there_is_one_round_nobody_rejoins_not_even_when_the_run_is_taken_up_again(tmp_path):
    done = fedsac.run(TINY.replace(rounds=1, attack="launder"), tmp_path / "run")
    again = fedsac.resume(tmp_path / "run")
    assert again.contributions == done.contributions == fedsac.run(TINY.replace(rounds=1)).contributions


def test_attacks_share_a_stack_with_honest_runs_and_change_nothing_there():
    configs = [TINY, *(TINY.replace(attack=name) for name in ("zero", "launder", "label-flip", "sybils"))]
    together = fedsac.run_together(configs)
    alone = [fedsac.run(config) for config in configs]
    for one, other in zip(together, alone, strict=True):
        assert one.rewards == pytest.approx(other.rewards, abs=0.02) and one.clients == other.clients
        assert one.contributions.validation == pytest.approx(other.contributions.validation, abs=0.02)


@pytest.mark.parametrize("name", list(ATTACKS))
def test_every_attack_says_what_it_does_and_leaves_an_honest_client(name):
    assert ATTACKS.resolve(name).__doc__ and ATTACKS.resolve(name).__doc__ != Attack.__doc__
    assert 1 <= made(name).parties <= 2


def test_what_is_not_as_in_an_ordinary_run_is_said_wherever_the_run_is_named(tmp_path, capsys):
    out = tmp_path / "run"
    quick = ["--clients", "3", "--rounds", "1", "--hidden", "8", "--standalone-steps", "5"]
    assert main(["run", *quick, "--attack", "zero", "--attackers", "client-02", "--hardened", "--out", str(out)]) == 0
    said = "seed 0, attack zero by client-02, hardened all"
    assert said in " ".join(capsys.readouterr().out.split())
    assert said in (out / "README.md").read_text() and said in (out / "report.html").read_text()
    assert main(["run", *quick, "--behaviour", "absent:0.5", "--out", str(tmp_path / "absent")]) == 0
    assert "seed 0, behaviour absent:0.5" in (tmp_path / "absent" / "README.md").read_text()
    assert Config().conduct_named == ""


def test_help_says_the_defaults_of_the_command(capsys):
    for command, says in (
        ("attack", ("as many as there are files [12]", "always is [none but that]")),
        ("compare", ("as many as there are files [10]", "always is [10]")),
        ("run", ("always is [1]",)),
    ):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        shown = " ".join(capsys.readouterr().out.split())
        assert all(text in shown for text in says), command
