"""The server step of every method against numbers worked out by hand, or by plain loops over the protocol."""

from dataclasses import replace
from itertools import combinations
from math import exp, log, sinh, tanh

import pytest
import torch

from fedsac.core.units import Layout
from fedsac.methods.ablations import NoAggregation, NoAllocation, OverN
from fedsac.methods.aequa import Aequa
from fedsac.methods.cffl import CFFL
from fedsac.methods.cgsv import CGSV, quota
from fedsac.methods.fedave import FedAVE
from fedsac.methods.fedavg import FedAvg
from fedsac.methods.fedrac import FedRAC, rising_steps
from fedsac.methods.fedsac import FedSAC
from fedsac.methods.iafl import IAFL
from fedsac.methods.qffl import QFFL
from fedsac.methods.rffl import RFFL
from fedsac.methods.shared.largest import largest_entries
from fedsac.methods.standalone import Standalone
from tests.golden import small
from tests.golden.small import INITIAL, SAMPLES, STEPS, add, cosine, length, shares, times, weighted

CLIENTS = range(3)


def same(ours: torch.Tensor, plain: object) -> None:
    torch.testing.assert_close(ours, torch.tensor(plain, dtype=ours.dtype), rtol=0, atol=1e-12)


# --- parts that several methods share


def test_keep_the_largest_entries():
    layout, update = Layout((1, 1, 5)), torch.tensor([3.0, 2.0, 9, 9, 9, 9, 9, 0.5, -0.1, 0.3, -0.7, 0.2])
    tail = {
        0.4: [0.5, 0, 0, -0.7, 0],
        0.41: [0.5, 0, 0.3, -0.7, 0],  # ceil(5 * .41) = 3
        1.0: [0.5, 0, 0.3, -0.7, 0.2],  # with q = 1 the smallest entry still goes
        7.0: [0.5, 0, 0.3, -0.7, 0.2],
        1e-6: [0, 0, 0, -0.7, 0],  # ceil: the smallest share is still one entry
        0.0: [0, 0, 0, 0, 0],  # k = 0 keeps nothing
        -0.5: [0, 0, 0, 0, 0],
    }
    kept = largest_entries(layout, update, torch.tensor(list(tail), dtype=torch.float64))
    for row, expected in zip(kept, tail.values(), strict=True):
        assert row[-5:].tolist() == torch.tensor(expected).tolist()
        assert row[:2].tolist() == [0, 0]  # tensors of one entry: k is at most n - 1 = 0
    # Ties are kept: all five weights are 9, so whoever gets one of them gets them all.
    assert kept[:, 2:7].sum(1).tolist() == [45, 45, 45, 45, 45, 0, 0]


def test_keep_looks_at_each_tensor_by_itself():
    update = [1.0, -2.0, 3.0, -4.0, 0.1, 0.2, 100.0, 200.0, -300.0, 400.0, 0.01, -0.02]
    kept = largest_entries(Layout(small.SIZES), torch.tensor(update), torch.tensor([0.5]))[0]
    assert kept.tolist() == torch.tensor([0, 0, 3, -4, 0, 0.2, 0, 0, -300, 400, 0, -0.02]).tolist()


def test_keep_counts_entries_as_a_person_would():
    """7 % of 100 entries are 7, though .07 * 100 is 7.000000000000001 in floating point."""
    update = torch.arange(1.0, 122.0)
    kept = largest_entries(Layout((10, 10, 1)), update, torch.tensor([0.07, 0.07 + 1e-6], dtype=torch.float64))
    assert (kept[:, :100] != 0).sum(1).tolist() == [7, 8]


def test_cgsv_quotas():
    r = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    assert quota(r, 1.0).tolist() == pytest.approx([0.262319, 0.519479, 0.766715, 1], abs=5e-7)
    assert quota(r, 2.0).tolist() == pytest.approx([0.297236, 0.572181, 0.808765, 1], abs=5e-7)


# --- one model for all


def test_fedavg():
    """Shares of the data are .1, .3, .6. The last bias moves by -.012 + .066 + .018 = .072, then by .055."""
    states = small.rounds(FedAvg(), small.task())
    assert float(states[1]["model"][11]) == pytest.approx(-0.05 + 0.072)
    assert float(states[2]["model"][11]) == pytest.approx(-0.05 + 0.072 + (0.007 - 0.072 + 0.12))
    plain = INITIAL
    for steps, state in zip(STEPS, states[1:], strict=True):
        plain = weighted([0.1, 0.3, 0.6], [add(plain, step) for step in steps])
        same(state["model"], plain)


def test_standalone():
    states = small.rounds(Standalone(), small.task())
    same(states[2]["models"], [add(INITIAL, STEPS[0][i], STEPS[1][i]) for i in CLIENTS])


def test_qffl_by_hand():
    """L = 10; F = 2, 1, .5. G = (-1, 0), (0, -2), (-1, -1); sum F G = (-2.5, -2.5); h = 1 + 20, 4 + 10, 2 + 5."""
    steps = [[0.1, 0] + [0] * 10, [0, 0.2] + [0] * 10, [0.1, 0.1] + [0] * 10]
    start = [0.0] * 12
    states = small.rounds(QFFL(), small.task(initial=start), [steps], local_losses=torch.tensor([2.0, 1.0, 0.5]))
    same(states[1]["model"], [2.5 / 42, 2.5 / 42] + [0.0] * 10)


@pytest.mark.parametrize("q", [0.0, 0.5, 1.0, 2.0])
def test_qffl(q):
    told = [1.4, 0.9, 0.3]
    states = small.rounds(QFFL(q), small.task(), local_losses=torch.tensor(told, dtype=torch.float64))
    plain = INITIAL
    for steps, state in zip(STEPS, states[1:], strict=True):
        upper, lower = [0.0] * 12, 0.0
        for loss, step in zip(told, steps, strict=True):
            gradient = times(-1 / 0.1, step)
            upper = add(upper, times(loss**q, gradient))
            lower += q * loss ** (q - 1) * length(gradient) ** 2 + loss**q / 0.1
        plain = add(plain, times(-1 / lower, upper))
        torch.testing.assert_close(state["model"], torch.tensor(plain, dtype=torch.float64), rtol=0, atol=1e-9)


# --- gradients as rewards: each client has a model of its own


def test_cffl_shares():
    state = small.rounds(CFFL(), small.task())[1]
    assert state["r"].tolist() == pytest.approx([0.203327, 0.316877, 0.479795], abs=5e-7)


def plain_cffl(steps, by):
    models, removed, found, size = [INITIAL] * 3, [], [], [1 / 6, 0.5, 1.0]
    for own in steps:
        trained = [add(m, d) for m, d in zip(models, own, strict=True)]
        if by == "own":
            share = shares([0.0 if i in removed else small.accuracy(trained[i]) for i in CLIENTS])
        else:
            share = shares([0.3, 0.4, 0.5])
        r = shares([(sinh(5 * s) + s) / 2 for s in share])
        if by == "own":
            removed = [i for i in CLIENTS if i in removed or r[i] < 1 / 9]
            r = shares([0.0 if i in removed else r[i] for i in CLIENTS])
        g = [times(0.5 / length(d), d) for d in own]
        total = weighted([0.0 if i in removed else w for i, w in enumerate([0.1, 0.3, 0.6])], g)
        for i in CLIENTS:
            if i in removed:
                continue
            models[i] = add(trained[i], small.keep(total, size[i] * r[i] / max(r)), times(-size[i], g[i]))
        found.append((r, list(models)))
    return found


@pytest.mark.parametrize("by", ["contribution", "own"])
def test_cffl(by):
    states = small.rounds(CFFL(reward_by=by), small.task())
    for state, (r, models) in zip(states[1:], plain_cffl(STEPS, by), strict=True):
        same(state["r"], r)
        same(state["models"], models)


# Neuron 0 fires where 3 x + 2 y > 15, which is the rule behind most labels; its opposite is wrong where that is right.
RIGHT = [6.0, 0, 8, 0, -3, 0, 0, 1, 0, 0, 0.01, 0]
WRONG = [6.0, 0, 8, 0, -3, 0, 0, -1, 0, 0, -0.01, 0]


def test_cffl_keeps_those_below_the_threshold_where_they_were():
    """For good: in the second round, Ann's model would be as right as the others'."""
    steps = [[add(model, times(-1, INITIAL)) for model in models] for models in ((WRONG, RIGHT, RIGHT), [RIGHT] * 3)]
    states = small.rounds(CFFL(reward_by="own"), small.task(), steps)
    for state, (r, models) in zip(states[1:], plain_cffl(steps, "own"), strict=True):
        assert r[0] == 0 and models[0] == INITIAL and state["removed"] == [0]
        same(state["r"], r)
        same(state["models"], models)


def test_cffl_as_in_its_paper_keeps_a_running_credit():
    """Half the old one (1/3 at first) and half the new, sinh alone."""
    states = small.rounds(CFFL(reward_by="own", reading="paper"), small.task())
    r, models = [1 / 3] * 3, states[0]["models"]
    for steps, state in zip(STEPS, states[1:], strict=True):
        trained = [add(m, d) for m, d in zip(models.tolist(), steps, strict=True)]
        fresh = shares([sinh(5 * s) for s in shares([small.accuracy(model) for model in trained])])
        r = shares([0.5 * old + 0.5 * new for old, new in zip(r, fresh, strict=True)])
        same(state["r"], r)
        models = state["models"]


@pytest.mark.parametrize(("low", "classes", "removed"), [(0.115, False, []), (0.1, False, [0]), (0.1, True, [])])
def test_cffl_removes_below_a_third_or_in_cla_below_a_sixth_of_an_equal_share(low, classes, removed):
    """Of three clients: below .1111, or .0556 where the clients have classes in the sizes' place."""
    given = small.task(samples=(20, 20, 20)) if classes else small.task()
    assert given.sizes_are_classes == classes
    r = torch.tensor([low, 0.3, 0.7 - low], dtype=torch.float64)
    kept, gone = CFFL(reward_by="own").without_the_low(given, r, [0, 1, 2], [], 3)
    assert gone == removed
    same(kept, shares([0.0, 0.3, 0.7 - low]) if removed else r.tolist())


def test_cffl_as_published_measures_a_third_against_those_who_are_left():
    """Ann is gone, ben's and cem's models are equally right: .8 (.25, .75) + .2 (.5, .5) = .3 and .7. Ben then has
    sinh 1.5 / (sinh 1.5 + sinh 3.5) = .114, which is more than a third of 1/3, and less than a third of 1/2."""
    given, method = small.task(), CFFL(reward_by="own", reading="code")
    before = method.start(given) | {"r": torch.tensor([0, 0.25, 0.75], dtype=torch.float64), "removed": [0]}
    ben = sinh(1.5) / (sinh(1.5) + sinh(3.5))
    assert 1 / 9 < ben < 1 / 6
    after = small.answer(method, given, before, 3, {i: [0.0] * 12 for i in CLIENTS})
    assert after["removed"] == [0, 1]
    same(after["r"], [0.0, 0.0, 1.0])


def test_cffl_as_published_where_nobody_is_right():
    """Then all have a third of the fresh share: .8 (.3, .3, .4) + .2 / 3."""
    given, method = small.task(), CFFL(reward_by="own", reading="code")
    wrong = torch.tensor([int(a > b) for a, b in (small.scores(INITIAL, point) for point in small.POINTS)])
    given = replace(given, validation=replace(given.validation, y=wrong))
    before = method.start(given) | {"r": torch.tensor([0.3, 0.3, 0.4], dtype=torch.float64)}
    after = small.answer(method, given, before, 1, {i: [0.0] * 12 for i in CLIENTS})
    same(after["r"], shares([sinh(5 * (0.8 * old + 0.2 / 3)) for old in (0.3, 0.3, 0.4)]))


def plain_cgsv(steps, by, beta):
    models, found = [INITIAL] * 3, []
    r = shares([0.3, 0.4, 0.5]) if by == "contribution" else [0.0] * 3
    for round, own in enumerate(steps):
        g = [times(0.5 / length(d), d) for d in own]
        total = weighted(r if round else [0.1, 0.3, 0.6], g)
        if by == "own":
            r = shares([max(1e-3, 0.95 * old + 0.05 * cosine(d, total)) for old, d in zip(r, g, strict=True)])
        q = [tanh(beta * value) / tanh(beta * max(r)) for value in r]
        models = [add(model, small.keep(total, share)) for model, share in zip(models, q, strict=True)]
        found.append((r, models))
    return found


OPPOSED = [[times(-1, steps[2]), steps[1], steps[2]] for steps in STEPS]


@pytest.mark.parametrize("beta", [1.0, 2.0, 1e7])
@pytest.mark.parametrize("steps", [STEPS, OPPOSED], ids=["plain", "opposed"])
@pytest.mark.parametrize("by", ["contribution", "own"])
def test_cgsv(by, steps, beta):
    states = small.rounds(CGSV(beta=beta, reward_by=by), small.task(), steps)
    for state, (r, models) in zip(states[1:], plain_cgsv(steps, by, beta), strict=True):
        same(state["r"], r)
        same(state["models"], models)


def test_cgsv_whoever_is_opposed_falls_to_the_floor():
    """The floor comes before the sum: r = .001 / (.001 + the others')."""
    first = small.rounds(CGSV(reward_by="own"), small.task(), OPPOSED)[1]["r"]
    g = [times(0.5 / length(d), d) for d in OPPOSED[0]]
    others = sum(0.05 * cosine(d, weighted([0.1, 0.3, 0.6], g)) for d in g[1:])
    assert float(first[0]) == pytest.approx(0.001 / (0.001 + others))


def plain_rffl(steps, by, gamma):
    models, removed, found = [INITIAL] * 3, [], []
    r = shares([0.3, 0.4, 0.5]) if by == "contribution" else [0.0] * 3
    for round, own in enumerate(steps):
        d = [times(min(1.0, gamma / length(step)), step) for step in own]
        members = [i for i in CLIENTS if i not in removed]
        weights = shares([(r if round else SAMPLES)[i] for i in members])
        total = weighted(weights, [d[i] for i in members])
        if by == "own":
            r = [0.95 * r[i] + 0.05 * cosine(d[i], total) if i in members else 0.0 for i in CLIENTS]
            r = shares(r)
            if round >= 10:
                removed = removed + [i for i in members if r[i] < 1 / 3 / len(members)]
                r = shares([0.0 if i in removed else r[i] for i in CLIENTS])
        for i in CLIENTS:
            models[i] = add(models[i], d[i])  # also of those who were removed: they train alone
            if i not in removed:
                models[i] = add(models[i], small.keep(total, r[i] / max(r)))
        found.append((r, removed, list(models)))
    return found


def aside(steps):
    """Ann moves the hidden biases and nothing else; the other two leave them alone, and go much the same way."""
    ben, cem = ([0.0 if p in (4, 5) else step for p, step in enumerate(own)] for own in steps[1:])
    return [[0, 0, 0, 0, 0.6, -0.5, 0, 0, 0, 0, 0, 0], ben, add(ben, times(0.3, cem))]


@pytest.mark.parametrize("by", ["contribution", "own"])
def test_rffl(by):
    """At a length of .7, the first and the third client's first updates are shortened, the second's is not."""
    assert [length(step) > 0.7 for step in STEPS[0]] == [True, False, True]
    states = small.rounds(RFFL(length=0.7, reward_by=by), small.task())
    for state, (r, removed, models) in zip(states[1:], plain_rffl(STEPS, by, 0.7), strict=True):
        same(state["r"], r)
        same(state["models"], models)
        assert state["removed"] == removed == []


def test_rffl_removes_an_outsider_after_the_tenth_round():
    steps = [aside(STEPS[round % 2]) for round in range(13)]
    states = small.rounds(RFFL(reward_by="own"), small.task(rounds=13), steps)
    for state, (r, removed, models) in zip(states[1:], plain_rffl(steps, "own", 0.5), strict=True):
        same(state["r"], r)
        same(state["models"], models)
        assert state["removed"] == removed
    assert all(float(state["r"][0]) < 1 / 9 for state in states[3:11])  # long before, and yet
    assert [state["removed"] for state in states[10:]] == [[], [0], [0], [0]]
    alone = add(*(times(0.5 / length(own[0]), own[0]) for own in steps[11:]))
    same(states[13]["models"][0], add(states[11]["models"][0].tolist(), alone))


def test_rffl_measures_a_third_against_those_who_are_left():
    """Ann is gone. Ben's r of about .14 is more than a third of 1/3, but less than a third of 1/2. Cem's becomes 1."""
    given, method, steps = small.task(), RFFL(length=0.7, reward_by="own"), dict(enumerate(STEPS[1]))
    before = method.start(given) | {"r": torch.tensor([0, 0.13, 0.87], dtype=torch.float64), "removed": [0]}
    after = small.answer(method, given, before, 11, steps)
    total = weighted([0.13, 0.87], [times(min(1.0, 0.7 / length(d)), d) for d in STEPS[1][1:]])
    ben, _ = shares([0.95 * r + 0.05 * cosine(d, total) for r, d in zip((0.13, 0.87), STEPS[1][1:], strict=True)])
    assert 1 / 9 < ben < 1 / 6
    assert after["removed"] == [0, 1]
    same(after["r"], [0.0, 0.0, 1.0])


def test_rffl_who_has_more_than_a_third_of_an_equal_share_stays():
    """All go the same way: .95 (.15, .4, .45) + .05, over 1.1. Ann's .175 is more than 1/9, though not 2/9."""
    given, method = small.task(), RFFL(reward_by="own")
    before = method.start(given) | {"r": torch.tensor([0.15, 0.4, 0.45], dtype=torch.float64)}
    after = small.answer(method, given, before, 11, dict.fromkeys(CLIENTS, STEPS[0][1]))
    assert after["removed"] == []
    same(after["r"], [(0.95 * r + 0.05) / 1.1 for r in (0.15, 0.4, 0.45)])


@pytest.mark.parametrize(
    ("r", "who", "removed", "weights"),
    [
        ((0.3, 0.2, 0.5), [0, 1, 2], [], [0.3, 0.2, 0.5]),
        ((0.3, 0.2, 0.5), [1, 2], [], [2 / 7, 5 / 7]),  # ann is absent
        ((0.3, -0.1, 0.8), [1, 2], [], [0, 1]),  # what is negative then counts as 0
        ((0.3, -0.1, 0.8), [0, 1, 2], [], [0.3, -0.1, 0.8]),
        ((0, -0.25, 1.25), [1, 2], [0], [-0.25, 1.25]),  # ann is removed: nobody is absent
        ((1, -0.5, 0), [1, 2], [], [1 / 3, 2 / 3]),  # nobody who answered has a reputation: 30 and 60 samples
    ],
)
def test_rffl_weights(r, who, removed, weights):
    found = RFFL(reward_by="own").weights(small.task(), 3, torch.tensor(r, dtype=torch.float64), who, removed)
    same(found, weights)


def test_rffl_rewards_depend_on_what_they_go_by():
    """Shares of .6 and more keep all but the small entries, so accuracies may agree; the models may not."""
    own, contribution = (small.rounds(RFFL(reward_by=by), small.task())[2] for by in ("own", "contribution"))
    assert (own["r"] != contribution["r"]).all()
    assert (own["models"] != contribution["models"]).any(1).all()


OWN_LOSSES = [[0.8, 1.1], [1.1, 0.8, 0.9], [0.5, 0.6, 0.7, 0.8, 0.7]]  # per batch, as the clients report them


def plain_likeness(models):
    """K = 1 / KL(own || V) of the losses per batch of 64, lists cut to equal length; the largest is 1."""
    found = []
    for own, model in zip(OWN_LOSSES, models, strict=True):
        on_v = small.losses(model)
        batches = [sum(part) / len(part) for part in (on_v[:64], on_v[64:128], on_v[128:])]
        n = min(len(own), len(batches))
        p, q = shares(own[:n]), shares(batches[:n])
        found.append(1 / sum(a * log(a / b) for a, b in zip(p, q, strict=True)))
    found = shares(found)
    return [value / max(found) for value in found]


@pytest.mark.parametrize("by", ["contribution", "own"])
def test_fedave(by):
    told = {"batch_losses": [torch.tensor(own, dtype=torch.float64) for own in OWN_LOSSES]}
    states = small.rounds(FedAVE(reward_by=by, reading="paper"), small.task(), **told)
    models, k = [INITIAL] * 3, [1.0] * 3
    rep = shares([0.3, 0.4, 0.5]) if by == "contribution" else [0.0] * 3
    for round, (steps, state) in enumerate(zip(STEPS, states[1:], strict=True)):
        trained = [add(m, d) for m, d in zip(models, steps, strict=True)]
        if by == "own":
            k = plain_likeness(trained)
            worth = [small.accuracy(model) * own**2 for model, own in zip(trained, k, strict=True)]
            rep = shares([max(1e-3, 0.95 * old + 0.05 * new) for old, new in zip(rep, worth, strict=True)])
        if round > 0:  # no reward in round 0
            q = [tanh(5 * value) / tanh(5 * max(rep)) * own for value, own in zip(rep, k, strict=True)]
            total = weighted([0.1, 0.3, 0.6], [times(0.5 / length(d), d) for d in steps])
            models = [add(model, small.keep(total, share)) for model, share in zip(models, q, strict=True)]
        same(state["rep"], rep)
        same(state["k"], k)
        same(state["models"], models)
    assert states[1]["models"].tolist() == [INITIAL] * 3 != states[2]["models"].tolist()


# --- as many of the others' updates as earned


def test_iafl_with_everything_shared_is_the_mean():
    """kappa = 1: gamma^0 (N - 1) = everybody. q = 0: nobody is reset."""
    states = small.rounds(IAFL(kappa=1.0, q=0.0), small.task())
    plain = INITIAL
    for steps, state in zip(STEPS, states[1:], strict=True):
        plain = add(plain, weighted([1 / 3] * 3, steps))
        same(state["models"], [plain] * 3)
        same(state["model"], plain)


@pytest.mark.parametrize(("kappa", "others"), [(0.0, (1, 2, 2)), (0.5, (1, 2, 2)), (0.9, (2, 2, 2))])
def test_iafl_averages_as_many_as_earned(kappa, others):
    """gamma = .2, .6, 1: times N - 1 = 2, rounded up, 1 2 2; .2^.5 * 2 = .894, .2^.1 * 2 = 1.7."""
    given = small.task(contributions=(0.1, 0.3, 0.5))
    states = small.rounds(IAFL(kappa=kappa, q=0.0), given)
    for steps, before, after in zip(STEPS, states, states[1:], strict=False):
        for i in CLIENTS:
            moved = (after["models"][i] - before["models"][i]).tolist()
            rest = [j for j in CLIENTS if j != i]
            means = [
                weighted([1 / (1 + others[i])] * (1 + others[i]), [steps[i], *(steps[j] for j in picked)])
                for picked in combinations(rest, others[i])
            ]
            assert any(moved == pytest.approx(mean, abs=1e-12) for mean in means)


def test_iafl_draws_the_others_evenly():
    drawn = []
    for seed in range(200):
        given = small.task(contributions=(0.1, 0.3, 0.5), seed=seed)
        state = small.rounds(IAFL(kappa=0.0, q=0.0), given, STEPS[:1])[1]
        with_ben = add(INITIAL, weighted([0.5, 0.5], STEPS[0][:2]))
        drawn.append(state["models"][0].tolist() == pytest.approx(with_ben, abs=1e-12))
    assert 70 < sum(drawn) < 130  # 100 expected; four standard deviations are 28


def test_iafl_recovery():
    """q = 1: everybody is reset to the reference, which every update moves by the mean; q = .25: a quarter are."""
    means = [weighted([1 / 3] * 3, steps) for steps in STEPS]
    for method in (IAFL(q=1.0), IAFL(q=1.0, reading="paper")):
        given = small.task()
        received = [method.assign(given, state).models for state in small.rounds(method, given)]
        same(received[1], [add(INITIAL, means[0])] * 3)
        same(received[2], [add(INITIAL, *means)] * 3)
    reset = 0
    method = IAFL(kappa=0.0, q=0.25)
    for seed in range(200):
        given = small.task(contributions=(0.1, 0.1, 0.5), seed=seed)
        state = small.rounds(method, given, STEPS[:1])[1]
        reset += int((method.assign(given, state).models[:2] == state["model"]).all(1).sum())
    assert 65 < reset < 135  # 100 of 400 expected; four standard deviations are 35


@pytest.mark.parametrize("reading", ["code", "paper"])
def test_iafl_pays_with_the_reference_model_in_the_paper_s_reading_only(reading):
    """kappa = 0: with one other's update each, ann and ben have models of their own, until they are reset."""
    method, given = IAFL(kappa=0.0, q=1.0, reading=reading), small.task(contributions=(0.1, 0.1, 0.5))
    state = small.rounds(method, given, STEPS[:1])[1]
    paid = method.assign(given, state).reward().models
    assert (paid == state["model"]).all(1).tolist() == ([False, False, True] if reading == "code" else [True] * 3)


# --- submodels: a hidden layer of four neurons

WIDE = (2, 4, 2)
START = [
    0.9,
    0.8,
    -1,
    -0.6,
    1.1,
    1.2,
    -1,
    -1,
    -0.5,
    -0.4,
    0.3,
    0.5,
    -0.9,
    0.8,
    -0.5,
    0.7,
    0.7,
    -0.5,
    0.8,
    -0.4,
    0.1,
    -0.1,
]
WIDE_STEPS = [[[steps[i][5 * p % 12] for p in range(22)] for i in CLIENTS] for steps in STEPS]


def prefixes(order, lengths):
    return [sorted(order[:n]) for n in lengths]


def numbers(mask):
    return [row.nonzero().squeeze(1).tolist() for row in mask]


def plain_importance(model):
    before = sum(small.losses(model, (), WIDE)) / 150
    return [sum(small.losses(model, [n], WIDE)) / 150 - before for n in range(4)]


def plain_submodels(importance, r):
    order = sorted(range(4), key=lambda n: (importance[n], n))
    percent = [100 * max(0.0, value) / sum(max(0.0, other) for other in importance) for value in importance]
    held = []
    for reputation in r:
        n = 1
        while n < 4 and sum(percent[p] for p in order[: n + 1]) <= reputation + 1e-3:
            n += 1
        held.append(order[: 4 if reputation == max(r) else n])
    return [sorted(neurons) for neurons in held]


def kept(trained, held, model):
    """The clients' models, with the global value where a client holds nothing."""
    return [
        [w if h else g for w, h, g in zip(own, mine, model, strict=True)]
        for own, mine in zip(trained, held, strict=True)
    ]


@pytest.mark.parametrize("method", [FedSAC(), NoAggregation(), OverN()], ids=["fedsac", "no-aggregation", "over-n"])
def test_fedsac_and_other_ways_to_aggregate(method):
    given = small.task(WIDE, START)
    r = [100 * exp(5 * (c - 0.5)) for c in (0.3, 0.4, 0.5)]
    state, model, sizes = method.start(given), START, []
    for round, steps in enumerate([*WIDE_STEPS, None]):
        neurons = plain_submodels(plain_importance(model), r)
        sizes.append([len(own) for own in neurons])
        rewards = method.assign(given, state)
        assert numbers(rewards.neurons) == neurons
        assert rewards.reputations == pytest.approx(r)
        same(rewards.models, [model])
        if steps is None:
            break
        held = [small.holds(own, WIDE) for own in neurons]
        trained = [add(model, step) for step in steps]
        if isinstance(method, NoAggregation):
            # Where a client holds nothing, it has what the global model had.
            model = weighted([0.1, 0.3, 0.6], kept(trained, held, model))
        elif isinstance(method, OverN):
            model = weighted([1 / 3] * 3, kept(trained, held, model))
        else:
            model = small.merged(trained, held, model)
        state = small.answer(method, given, state, round, dict(enumerate(steps)))
    assert sizes[0] == [1, 2, 4] and sizes[1] != sizes[0]  # the three differ, and so do the rounds


def test_fedsac_without_allocation():
    """Four neurons of 25 % each: reputations of 36.8, 60.7 and 100 are worth one, two and four of them."""
    orders = set()
    for seed in range(20):
        given, model = small.task(WIDE, START, seed=seed), START
        states = small.rounds(NoAllocation(), given, WIDE_STEPS)
        drawn = numbers(NoAllocation().assign(given, states[0]).neurons)
        assert [len(own) for own in drawn] == [1, 2, 4] and set(drawn[0]) < set(drawn[1])
        for steps, state in zip(WIDE_STEPS, states[1:], strict=True):
            model = small.merged([add(model, d) for d in steps], [small.holds(own, WIDE) for own in drawn], model)
            same(state["model"], model)
            assert numbers(NoAllocation().assign(given, state).neurons) == drawn  # one order for the whole run
        orders.add(tuple(map(tuple, drawn)))
    assert len({drawn[0] for drawn in orders}) == 4  # each neuron comes first for some seed


def plain_fedrac(model, trained, c, beta, t):
    """Prefixes of the rarely trained neurons: the longest with at most c_i + acc (1 - al) r_i / 100 on V."""
    order = sorted(range(4), key=lambda n: (trained[n], n))
    worth = [small.accuracy(model, [p for p in range(4) if p not in order[:n]], WIDE) for n in range(1, 5)]
    al = (0.2 if t <= 100 else 0.8) * (1 - 1 / log(0.3 * t + 3))
    lengths = []
    for own in c:
        goal = own + worth[-1] * (1 - al) * exp(beta * (own - max(c)))
        lengths.append(4 if own == max(c) else max([n for n in range(1, 5) if worth[n - 1] <= goal], default=1))
    return prefixes(order, lengths)


# The first neuron alone is right on 40 % of V, two on 61 %, three on 77 %, four on 87 %.
RISING = [0.2, -0.7, -1.2, -0.5, -0.5, 0.3, -0.3, -1.1, 0.1, 0.2, 0.3, 0.4, 0.8, -0.4, 0.6, -0.5, 0.7, -0.6, 0.8, -0.7]
RISING += [-0.4, 0.3]


def test_fedrac_prefixes():
    """Before the first round al = .2 (1 - 1/ln 3) = .018: goals of .32 + .867 * .982 * e^-.9 = .666 and of .783."""
    given = small.task(WIDE, RISING, contributions=(0.32, 0.36, 0.5))
    method = FedRAC(beta=5.0, step=1, reading="paper")
    assert numbers(method.assign(given, method.start(given)).neurons) == [[0, 1], [0, 1, 2], [0, 1, 2, 3]]


@pytest.mark.parametrize("first", [0, 98, 99, 100, 149])
@pytest.mark.parametrize("c", [(0.32, 0.36, 0.5), (0.3, 0.45, 0.5)])
@pytest.mark.parametrize("beta", [5.0, 80.0])
def test_fedrac(beta, c, first):
    given, method = small.task(WIDE, RISING, contributions=c), FedRAC(beta=beta, step=1, reading="paper")
    state, model, trained, t = method.start(given), RISING, [0] * 4, 0
    for round, steps in zip((first, first + 1), WIDE_STEPS, strict=True):
        neurons = plain_fedrac(model, trained, c, beta, t)
        assert numbers(method.assign(given, state).neurons) == neurons
        model = small.merged([add(model, d) for d in steps], [small.holds(own, WIDE) for own in neurons], model)
        trained = [count + sum(n in own for own in neurons) for n, count in enumerate(trained)]
        state, t = small.answer(method, given, state, round, dict(enumerate(steps))), round + 1
        same(state["model"], model)
        assert state["trained"].tolist() == trained
    assert numbers(method.assign(given, state).neurons) == plain_fedrac(model, trained, c, beta, t)


@pytest.mark.parametrize("t", [1, 20, 100, 101, 150])
def test_fedrac_goals(t):
    """Where ann's prefix grows by a neuron as her contribution rises tells what her goal is after t rounds."""
    method, worth = FedRAC(beta=5.0, step=1, reading="paper"), [0.4, 92 / 150, 116 / 150, 130 / 150]
    seen = set()
    for c in [0.2 + 0.002 * step for step in range(145)]:
        given = small.task(WIDE, RISING, contributions=(c, 0.1, 0.5))
        # Only cem, who holds everything, answers, and has learned nothing: the model and the order stay.
        state = small.answer(method, given, method.start(given), t - 1, {2: [0.0] * 22})
        goal = c + worth[3] * (1 - (0.2 if t <= 100 else 0.8) * (1 - 1 / log(0.3 * t + 3))) * exp(5 * (c - 0.5))
        lengths = [n for n in (1, 2, 3, 4) if worth[n - 1] <= goal]
        assert state["neurons"][0].sum() == max(lengths, default=1)
        seen.add(len(lengths))
    assert seen >= {0, 1, 2, 3}


def test_fedrac_goals_before_the_first_round():
    """t = 0 in the paper's reading: al = .2 (1 - 1 / ln 3)."""
    method, worth = FedRAC(beta=5.0, step=1, reading="paper"), [0.4, 92 / 150, 116 / 150, 130 / 150]
    for c in [0.2 + 0.0005 * step for step in range(580)]:
        state = method.start(small.task(WIDE, RISING, contributions=(c, 0.1, 0.5)))
        goal = c + worth[3] * (1 - 0.2 * (1 - 1 / log(3))) * exp(5 * (c - 0.5))
        assert state["neurons"][0].sum() == max([n for n in (1, 2, 3, 4) if worth[n - 1] <= goal], default=1)


@pytest.mark.parametrize("t", [2, 3, 100, 101])
def test_fedrac_goals_in_the_published_code(t):
    """The same with t the number of the next round, and with accuracies of one neuron more: ann, served first, gets s
    neurons where s + 1 are right on no more than her goal. Who joins or leaves changes nothing of the round."""
    method, worth, seen = FedRAC(beta=5.0, step=1), [0.4, 92 / 150, 116 / 150, 130 / 150], set()
    al = (0.2 if t <= 100 else 0.8) * (1 - 1 / log(0.3 * t + 3))
    for c in [0.15 + 0.001 * step for step in range(340)]:
        given = small.task(WIDE, RISING, contributions=(c, 0.495, 0.5))
        state = small.answer(method, given, method.start(given), t - 2, {2: [0.0] * 22})
        goal = c + worth[3] * (1 - al) * exp(5 * (c - 0.5))
        fitting = [s for s in (1, 2, 3) if worth[s] <= goal]
        assert state["neurons"][0].sum() == max(fitting, default=1)
        assert method.carry_over(given, state, given.clients)["neurons"].tolist() == state["neurons"].tolist()
        seen.add(len(fitting))
    assert seen >= {0, 1, 2}


@pytest.mark.parametrize(("reading", "held"), [("paper", [3, 3, 4]), ("code", [2, 3, 4])])
def test_fedrac_an_accuracy_that_is_the_goal_is_not_too_much(reading, held):
    """With so steep a beta that goals are the contributions: three neurons' accuracy exactly, and a bit more."""
    given = small.task(WIDE, RISING, contributions=(116 / 150, 117 / 150, 0.9))
    method = FedRAC(beta=1e7, step=1, reading=reading)
    state = method.start(given)
    if reading == "code":
        state = small.answer(method, given, state, 0, {2: [0.0] * 22})
    assert state["neurons"].sum(1).tolist() == held


def test_fedrac_only_the_best_gets_everything_however_close_another_is():
    given = small.task(WIDE, RISING, contributions=(0.3, 0.5 - 1e-10, 0.5))
    for c, best in ((given.contributions, [False, False, True]), ((0.3, 0.5, 0.5), [False, True, True])):
        found = FedRAC(step=1).allocated(replace(given, contributions=c), given.initial, torch.zeros(4), 2)
        assert found.all(1).tolist() == best


def test_fedrac_steps_where_there_are_hardly_any():
    """Nobody but the best gets the last step, and everyone gets one."""
    assert rising_steps([0.1, 0.2], [0.05, 0.05]) == [1, 1]
    assert rising_steps([0.1, 0.2, 0.3], [0.05, 0.05, 0.5]) == [1, 2, 2]
    assert rising_steps([0.1], [0.05, 0.5]) == [1, 1]


def test_fedrac_goes_in_steps_of_eight():
    """Of 20 neurons only number 16 does anything: without it all of V is called class 1, which is right for 39 %."""
    start = [0.0] * (40 + 20 + 40 + 2)
    start[16], start[20 + 16], start[40 + 16] = -6.0, -8.0, 3.0
    start[60 + 2 * 16], start[101] = 1.0, 0.01
    given = small.task((2, 20, 2), start, contributions=(0.3, 0.45, 0.5))
    method = FedRAC(reading="paper")
    # Goals of .3 (which no prefix is bad enough for: the shortest is given) and .47, and everything for the best.
    assert method.assign(given, method.start(given)).neurons.sum(1).tolist() == [8, 16, 20]


# --- Aequa


@pytest.mark.parametrize(
    ("targets", "c", "held"),
    [
        # Of 40, 61.3, 77.3 and 86.7 %, the nearest to targets of 40, 63.3 and 86.7 %.
        ("range", (0.3, 0.4, 0.5), [[0], [0, 1], [0, 1, 2, 3]]),
        # Targets of 86.7, 40 and 75 %.
        ("range", (0.6, 0.2, 0.5), [[0, 1, 2, 3], [0], [0, 1, 2]]),
        ("range", (0.3, 0.3, 0.3), [[0, 1, 2, 3]] * 3),
        # 86.7 % less .2, .1 and 0: 66.7, 76.7 and 86.7 %.
        ("gain", (0.3, 0.4, 0.5), [[0, 1], [0, 1, 2], [0, 1, 2, 3]]),
        # 36.7 % is below what there is.
        ("gain", (0.0, 0.5, 0.45), [[0], [0, 1, 2, 3], [0, 1, 2]]),
    ],
)
def test_aequa_widths(targets, c, held):
    given, method = small.task(WIDE, RISING, contributions=c), Aequa(least_width=0.25, widths=4, targets=targets)
    assigned = method.assign(given, method.start(given))
    assert numbers(assigned.reward().neurons) == held
    assert assigned.reputations == tuple(25.0 * len(own) for own in held)


@pytest.mark.parametrize("timing", ["after", "during"])
def test_aequa(timing):
    """Each parameter is the mean over those who trained it; of three clients one trains its widest and one a neuron."""
    given, method = small.task(WIDE, RISING), Aequa(least_width=0.25, widths=4, timing=timing)
    state, model = method.start(given), RISING
    for round, steps in enumerate(WIDE_STEPS):
        assigned = method.assign(given, state)
        trained, earned = numbers(assigned.neurons), numbers(assigned.reward().neurons)
        most = earned if timing == "during" else [[0, 1, 2, 3]] * 3
        assert any(own == widest for own, widest in zip(trained, most, strict=True)) and [0] in trained
        assert all(set(own) <= set(widest) for own, widest in zip(trained, most, strict=True))
        model = small.merged([add(model, d) for d in steps], [small.holds(own, WIDE) for own in trained], model)
        state = small.answer(method, given, state, round, dict(enumerate(steps)))
        same(state["model"], model)
        accuracy = [small.accuracy(model, without=range(n, 4), sizes=WIDE) for n in (1, 2, 3, 4)]
        best = [max(accuracy[: n + 1]) for n in range(4)]
        targets = [best[0], (best[0] + best[3]) / 2, best[3]]
        for own, target in zip(numbers(method.assign(given, state).reward().neurons)[:2], targets, strict=False):
            assert abs(best[len(own) - 1] - target) == pytest.approx(min(abs(b - target) for b in best))
        assert state["rewards"][2].all()
