"""Methods in detail: what they are given by default, who has which options, and numbers worked out by hand."""

from dataclasses import dataclass, replace
from itertools import pairwise
from math import exp, tanh

import pytest
import torch

from fedsac import Config, FedsacError
from fedsac.compute.samples import Samples
from fedsac.methods import make
from fedsac.methods.base import Assignment, Task, Updates
from fedsac.methods.cffl import CFFL
from fedsac.methods.cgsv import CGSV
from fedsac.methods.fedave import FedAVE
from fedsac.methods.fedavg import FedAvg
from fedsac.methods.fedrac import FedRAC
from fedsac.methods.fedsac import FedSAC
from fedsac.methods.iafl import IAFL
from fedsac.methods.qffl import QFFL
from fedsac.methods.shared.gradients import contribution_shares, rescaled
from tests.golden import small
from tests.golden.small import add, length, times, weighted


def test_a_task_made_by_hand_trains_as_a_config_says():
    given = small.task()
    bare = Task(
        given.layout,
        given.initial,
        given.clients,
        given.samples,
        given.contributions,
        given.validation,
        rounds=1,
        seed=0,
    )
    assert (bare.lr, bare.batch) == (Config().lr, Config().batch)
    assert bare.size_shares == () and not bare.sizes_are_classes
    assert bare.metric is given.metric


def test_an_assignment_asks_for_nothing_but_a_model():
    given = Assignment(torch.zeros(1, 12), torch.ones(3, 2, dtype=torch.bool))
    assert not (given.extra_epoch or given.local_losses or given.batch_losses)
    assert given.reputations is None
    updates = Updates(0, (0, 2), torch.zeros(2, 12), given)
    assert (updates.losses, updates.diverged, updates.remarks, updates.memory) == ((), (), {}, {})
    assert updates.local_losses is updates.batch_losses is updates.traffic is None


def test_importance_is_exact_unless_told_otherwise():
    """Eq. 3, neuron by neuron and sample by sample."""
    given = small.task()
    before = sum(small.losses(small.INITIAL)) / len(small.LABELS)
    rises = [sum(small.losses(small.INITIAL, [n])) / len(small.LABELS) - before for n in (0, 1)]
    assert given.importance(given.initial).tolist() == pytest.approx(rises, abs=1e-12)
    roughly = given.importance(given.initial, exact=False)
    assert roughly.tolist() != pytest.approx(rises, abs=1e-3)


def test_the_model_that_a_client_is_given():
    common, own = torch.arange(4.0).view(1, 4), torch.arange(12.0).view(3, 4)
    neurons = torch.ones(3, 1, dtype=torch.bool)
    assert [Assignment(common, neurons).model(i).tolist() for i in range(3)] == [[0, 1, 2, 3]] * 3
    assert [Assignment(own, neurons).model(i)[0].item() for i in range(3)] == [0, 4, 8]
    assert [Assignment(own[:2], neurons[:2]).model(i)[0].item() for i in range(2)] == [0, 4]


def test_what_a_client_would_keep_is_what_it_trains_unless_it_is_said_otherwise():
    models, neurons = torch.arange(4.0).view(1, 4), torch.ones(3, 1, dtype=torch.bool)
    kept, part = 2 * models, ~neurons
    plain = Assignment(models, neurons, (1.0, 2.0, 3.0))
    assert plain.reward() is plain
    for reward_models, reward_neurons in ((kept, None), (None, part), (kept, part)):
        given = replace(plain, reward_models=reward_models, reward_neurons=reward_neurons)
        reward = given.reward()
        assert reward.models is (kept if reward_models is not None else models)
        assert reward.neurons is (part if reward_neurons is not None else neurons)
        assert reward.reward() is reward and reward.reputations == (1.0, 2.0, 3.0)


FEDSAC = {
    **{"beta": 5.0, "importance_every": 1, "damping": 0.0, "server_steps": 0, "server_share": 0.5},
    **{"calibrated": False, "room": 2.0, "smooth": 4, "generous": 0.0},
    **{"first_order": False, "importance_samples": 0},
    "by_cost": False,
    "slow": False,
}
GRADIENTS = {"length": 0.5, "reward_by": "contribution"}
FEDRAC = {"beta": 80.0, "step": 8, "early_rounds": 100, "reading": "code"}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("fedsac", FEDSAC),
        ("fedsac-plus", FEDSAC | {"damping": 0.5, "server_steps": 20, "calibrated": True, "generous": 0.005}),
        ("cgsv", GRADIENTS | {"beta": 1.0, "reading": "code"}),
        ("qffl", {"q": 1.0}),
        ("cffl", GRADIENTS | {"sharpness": 5.0, "reading": "fedsac", "clip": 0.001, "upload": 0.1}),
        ("rffl", GRADIENTS | {"reading": "code"}),
        ("fedave", GRADIENTS | {"beta": 5.0, "reading": "code", "one_object": False}),
        ("iafl", {"kappa": 0.5, "q": 0.1, "reading": "code"}),
        ("fedrac", FEDRAC),
        ("aequa", {"least_width": 0.05, "widths": 64, "targets": "range", "timing": "after"}),
        ("server-alone", {"server_steps": 20, "server_share": 1.0}),
        ("fedavg-server", {"server_steps": 20, "server_share": 0.5}),
        ("fedavg-v-client", {"server_steps": 20, "server_share": 1.0}),
        ("fedrac-server", FEDRAC | {"server_steps": 20, "server_share": 0.5}),
        ("fedsac-server", FEDSAC | {"server_steps": 20}),
    ],
)
def test_a_methods_options_without_set(name, options):
    """As the papers, their code and docs/fedsac-plus.md have them; of the type that `--set` converts to."""
    for made in (make(Config(method=name)), type(make(Config(method=name)))()):
        assert [(key, type(value), value) for key, value in vars(made).items()] == [
            (key, type(value), value) for key, value in options.items()
        ]


def test_cgsvs_length_on_cifar10():
    assert make(Config(method="cgsv", data="cifar10")).length == 0.15
    assert make(Config(method="cgsv", data="cifar10", options={"length": "0.5"})).length == 0.5


def joined_and_left(given: Task) -> Task:
    """Ben has left, dora has joined, and the others have changed places."""
    return replace(
        given,
        clients=("cem", "dora", "ann"),
        samples=(60, 20, 10),
        contributions=(0.5, 0.2, 0.3),
        size_shares=(1, 1, 1),
    )


def test_a_common_model_stays_when_clients_join_and_leave():
    given, method = small.task(), make(Config(method="fedsac"))
    state = small.rounds(method, given)[-1]
    changed = joined_and_left(given)
    carried = method.carry_over(changed, state, given.clients)
    assert carried["model"].tolist() == state["model"].tolist() != given.initial.tolist()
    # Everything else is as if a federation of the new clients began with this model.
    fresh = method.start(replace(changed, initial=state["model"]))
    assert carried["importance"].tolist() == fresh["importance"].tolist()
    assert carried["neurons"].tolist() == fresh["neurons"].tolist()
    assert carried["neurons"][0].all() and not carried["neurons"][1:].all()  # the best is the first one now
    assert method.removed(carried) == ()


@pytest.mark.parametrize("name", ["standalone", "cgsv"])
def test_clients_keep_models_of_their_own_when_others_join_and_leave(name):
    given, method = small.task(), make(Config(method=name))
    state = small.rounds(method, given)[-1]
    ann, ben, cem = state["models"].tolist()
    assert small.INITIAL not in (ann, ben, cem)
    carried = method.carry_over(joined_and_left(given), state, given.clients)
    assert carried["models"].tolist() == [cem, small.INITIAL, ann]
    if name == "cgsv":
        assert carried["r"].tolist() == pytest.approx([0.5, 0.2, 0.3])


def test_who_was_removed_stays_removed_under_another_number():
    given, method = small.task(), make(Config(method="rffl"))
    state = small.rounds(method, given)[-1] | {"removed": [0, 1]}
    assert method.removed(state) == (0, 1)
    carried = method.carry_over(joined_and_left(given), state, given.clients)
    assert method.removed(carried) == (2,)
    assert carried["models"][2].tolist() == state["models"][0].tolist()


@dataclass(frozen=True)
class WithoutDefault(FedAvg):
    """A method whose option has to be named."""

    width: int


def test_an_option_without_a_default_is_taken_as_it_is():
    assert make(Config(method=f"{__name__}:WithoutDefault", options={"width": 7})).width == 7


def test_streams_of_other_names_draw_other_numbers():
    given = small.task()
    names = [("a",), ("b",), ("a", 0), ("a", 1)]
    draws = [given.stream(*name).random() for name in names]
    assert len(set(draws)) == 4
    assert [given.stream(*name).random() for name in names] == draws
    assert replace(given, seed=1).stream("a").random() not in draws


def gradient(params: torch.Tensor, samples: Samples) -> torch.Tensor:
    """Of the mean cross-entropy, by torch's own autograd."""
    params = params.clone().requires_grad_()
    (w, b), (v, c) = small.task().layout.views(params)
    hidden = torch.relu((samples.x * samples.scale + samples.shift) @ w + b)
    torch.nn.functional.cross_entropy(hidden @ v + c, samples.y).backward()
    return params.grad


@pytest.mark.parametrize(("dtype", "error"), [(torch.float64, 1e-12), (torch.float32, 1e-6)])
def test_the_servers_steps_are_sgd_on_its_samples(dtype, error):
    """On 20 samples, fewer than a batch, a step takes them all."""
    given = small.task()
    v = given.part(torch.arange(20))
    own = Samples(v.x.to(dtype), v.y, v.scale.to(dtype), v.shift.to(dtype))
    expected = start = given.initial.to(dtype)
    for _ in range(3):
        expected = expected - given.lr * gradient(expected, own)
    found = given.steps(start, own, 3, 0)
    assert found.dtype == dtype
    assert found.tolist() == pytest.approx(expected.tolist(), rel=0, abs=error)


def test_the_server_draws_other_batches_in_another_round():
    given = small.task()  # 150 samples, 32 a batch
    once, again, next_round = (given.steps(given.initial, given.validation, 1, r).tolist() for r in (3, 3, 4))
    assert once == again != next_round


def test_cgsv_weighs_those_who_answered_by_their_part_of_the_reputation():
    """Ben and cem alone, with reputations .4/1.2 and .5/1.2: of the two, 4/9 and 5/9."""
    given, method = small.task(), CGSV()
    first = small.rounds(method, given)[1]
    steps = {1: small.STEPS[1][1], 2: small.STEPS[1][2]}
    state = small.answer(method, given, first, 1, steps)
    total = weighted([4 / 9, 5 / 9], [times(0.5 / length(d), d) for d in steps.values()])
    for i, c in enumerate((0.3, 0.4, 0.5)):
        part = small.keep(total, tanh(c / 1.2) / tanh(0.5 / 1.2))
        assert state["models"][i].tolist() == pytest.approx(add(first["models"][i].tolist(), part))


def test_who_has_one_model_for_all_rewards_copies_trained_one_epoch_more():
    given = small.task()
    asked = {kind: kind().assign(given, kind().start(given)) for kind in (FedAvg, QFFL, FedSAC, CGSV)}
    assert [asked[kind].extra_epoch for kind in asked] == [True, True, False, False]
    assert [asked[kind].local_losses for kind in asked] == [False, True, False, False]


LEAST = {
    **{"beta": 0.0, "importance_every": 1, "damping": 0.0, "server_steps": 0},
    **{"room": 0.0, "smooth": 0, "importance_samples": 0},
}


@pytest.mark.parametrize("name", LEAST)
def test_the_least_that_an_option_may_be(name):
    assert vars(FedSAC(**{name: LEAST[name]}))[name] == LEAST[name]
    with pytest.raises(FedsacError, match=f"option {name} must be at least {LEAST[name]:g}"):
        FedSAC(**{name: LEAST[name] - (1 if isinstance(LEAST[name], int) else 1e-6)})


@pytest.mark.parametrize("share", [-0.5, 0.0, 1.0, 1.5])
def test_both_parts_of_v_have_samples(share):
    with pytest.raises(FedsacError, match="server_share must lie between 0 and 1"):
        FedSAC(server_share=share)
    assert FedSAC(server_share=0.001) and FedSAC(server_share=0.999)


def test_importance_is_measured_every_third_round_and_after_the_last():
    given, method = small.task(rounds=7), FedSAC(importance_every=3)
    states = small.rounds(method, given, [small.STEPS[r % 2] for r in range(7)])
    importance = [method.importance(state).tolist() for state in states]
    assert [after != before for before, after in pairwise(importance)] == [False, False, True, False, False, True, True]
    models = [state["model"].tolist() for state in states]
    assert all(after != before for before, after in pairwise(models))
    for r in (0, 3, 6, 7):
        assert importance[r] == given.importance(states[r]["model"]).tolist()


def test_samples_for_importance_are_drawn_anew_every_round():
    given, method = small.task(rounds=4), FedSAC(importance_samples=20)
    still = [[[0.0] * 12] * 3] * 4
    states = small.rounds(method, given, still)
    assert all(torch.allclose(state["model"], given.initial, rtol=0, atol=1e-14) for state in states)
    assert len({tuple(state["importance"].round(decimals=9).tolist()) for state in states}) == 5
    one = FedSAC(importance_samples=1).start(given)["importance"]
    assert not torch.allclose(one, given.importance(given.initial), rtol=0, atol=1e-6)


def test_importance_by_first_order_where_it_is_asked_for():
    given = small.task()
    found = [FedSAC(first_order=on).start(given)["importance"].tolist() for on in (False, True)]
    assert found == [given.importance(given.initial, exact=exact).tolist() for exact in (True, False)]


def test_damping_counts_at_least_that_share_of_those_who_answered():
    """With 1, updates are divided by 3 everywhere, whoever holds a parameter; with .5, by 1.5 or the holders."""
    given = small.task()
    for damping, least in ((1.0, 3.0), (0.5, 1.5)):
        method = FedSAC(damping=damping)
        state = method.start(given)
        held = given.layout.held(state["neurons"]).tolist()
        assert len({sum(own) for own in zip(*held, strict=True)}) > 1  # not everybody holds everything
        found = small.answer(method, given, state, 0, dict(enumerate(small.STEPS[0])))["model"].tolist()
        for p, value in enumerate(found):
            moves = [step[p] for step, own in zip(small.STEPS[0], held, strict=True) if own[p]]
            assert value == pytest.approx(small.INITIAL[p] + sum(moves) / max(len(moves), least))


def test_the_server_trains_on_other_batches_every_round():
    given, method = small.task(), FedSAC(server_steps=1)
    state = method.start(given)
    first, second = (small.answer(method, given, state, r, dict(enumerate(small.STEPS[0]))) for r in (0, 1))
    without = small.answer(FedSAC(), given, state, 0, dict(enumerate(small.STEPS[0])))
    assert len({tuple(each["model"].tolist()) for each in (first, second, without)}) == 3


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_model_that_diverged_is_not_allocated(value):
    given, method = small.task(), FedSAC()
    state = method.start(given) | {"importance": torch.tensor([0.1, value], dtype=torch.float64)}
    with pytest.raises(FedsacError, match="importance is not a number"):
        method.assign(given, state)


def test_updates_of_one_length_and_none_where_nothing_was_learned():
    updates = torch.tensor([[0.0, 0.0], [0.003, -0.004], [30.0, 40.0]], dtype=torch.float64)
    expected = [[0, 0], [0.3, -0.4], [0.3, 0.4]]
    for found, row in zip(rescaled(updates, 0.5).tolist(), expected, strict=True):
        assert found == pytest.approx(row)


@pytest.mark.parametrize("contributions", [(0.0, 0.0, 0.0, 0.0), (-0.1, 0.0, -0.2, -0.3)])
def test_where_nobody_contributes_all_shares_are_equal(contributions):
    assert contribution_shares(small.task(contributions=contributions)).tolist() == [0.25] * 4


@pytest.mark.parametrize(
    ("method", "reported"),
    [
        *((method, (3 / 12, 4 / 12, 5 / 12)) for method in (CGSV(), FedAVE())),
        (CFFL(), (1 / 3, 1 / 3, 1 / 3)),  # until the first answers
        *((IAFL(reading=reading), (0.3, 0.4, 0.5)) for reading in ("code", "paper")),
        *((FedRAC(reading=reading), (100 * exp(-16), 100 * exp(-8), 100)) for reading in ("code", "paper")),
        (FedSAC(), (100 * exp(-1), 100 * exp(-0.5), 100)),
    ],
    ids=lambda value: f"{type(value).__name__}-{getattr(value, 'reading', '')}" if not isinstance(value, tuple) else "",
)
def test_the_reputations_that_are_reported(method, reported):
    given = small.task()
    assert method.assign(given, method.start(given)).reputations == pytest.approx(reported)


@pytest.mark.parametrize("reading", ["fedsac", "code", "paper"])
def test_cffl_where_nobody_is_right_about_anything_all_are_equal(reading):
    """Everyone sends back what it got, and V has the labels that this model does not give."""
    given = small.task()
    wrong = torch.tensor([int(a > b) for a, b in (small.scores(small.INITIAL, point) for point in small.POINTS)])
    given = replace(given, validation=replace(given.validation, y=wrong))
    assert given.evaluate(given.initial.unsqueeze(0), None).item() == 0
    method = CFFL(reading=reading, reward_by="own")
    state = small.rounds(method, given, [[[0.0] * 12] * 3])[-1]
    assert state["r"].tolist() == pytest.approx([1 / 3] * 3) and state["removed"] == []


def iafl_draws(names: tuple[str, ...], round: int) -> tuple[dict[str, list[str]], dict[str, bool]]:
    """Whose updates each client averages beside its own, and who is reset. Client i's update is 1 at parameter i and 0
    elsewhere. All but eve have .2 of her .5, that is ceil(.4 * 5) = 2 others."""
    c = tuple(0.5 if name == "eve" else 0.2 for name in names)
    given = replace(small.task(contributions=c), clients=names, samples=(1,) * 6)
    method = IAFL(kappa=0.0, q=0.5)
    steps = {i: [float(p == i) for p in range(12)] for i in range(6)}
    state = small.answer(method, given, method.start(given), round, steps)
    moved = (state["models"] - given.initial)[:, :6] > 1e-9
    assert moved.diagonal().all()
    others = {name: sorted(names[j] for j in range(6) if moved[i, j] and j != i) for i, name in enumerate(names)}
    return others, dict(zip(names, state["reset"].tolist(), strict=True))


def test_iafl_draws_anew_in_every_round_for_every_client_whatever_their_order():
    names = ("ann", "ben", "cem", "dora", "eve", "finn")
    drawn = [iafl_draws(names, round) for round in range(8)]
    for others, _ in drawn:
        assert {name: len(own) for name, own in others.items()} == dict.fromkeys(names, 2) | {"eve": 5}
    for name in set(names) - {"eve"}:
        assert len({tuple(others[name]) for others, _ in drawn}) > 2
        assert {reset[name] for _, reset in drawn} == {True, False}
    assert len({tuple(reset.values()) for _, reset in drawn}) > 4
    assert any(len(set(reset.values())) == 2 for _, reset in drawn)  # not all at once
    shuffled = ("finn", "cem", "eve", "ann", "dora", "ben")
    assert [iafl_draws(shuffled, round) for round in range(8)] == drawn


@pytest.mark.parametrize("contributions", [(0.0, 0.0, 0.0), (-0.2, -0.3, -0.1)])
def test_iafl_where_nobody_contributes_the_reference_model_moves_by_the_mean(contributions):
    """And everyone keeps to its own update."""
    given, method = small.task(contributions=contributions), IAFL(kappa=0.0, q=0.0)
    state = small.rounds(method, given, small.STEPS[:1])[-1]
    mean = weighted([1 / 3] * 3, small.STEPS[0])
    assert state["model"].tolist() == pytest.approx(add(small.INITIAL, mean))
    for model, own in zip(state["models"].tolist(), small.STEPS[0], strict=True):
        assert model == pytest.approx(add(small.INITIAL, own))


@pytest.mark.parametrize(("reading", "others"), [("code", 1), ("paper", 2)])
def test_iafl_clients_that_are_absent_count_in_the_papers_reading(reading, others):
    """Three of six answer. Two fifths are ceil(.4 * 2) = 1 of the two others, or ceil(.4 * 5) = 2."""
    names = ("ann", "ben", "cem", "dora", "eve", "finn")
    given = replace(small.task(contributions=(0.2, 0.2, 0.2, 0.2, 0.5, 0.2)), clients=names, samples=(1,) * 6)
    method = IAFL(kappa=0.0, q=0.0, reading=reading)
    steps = {i: [float(p == i) for p in range(12)] for i in range(3)}
    state = small.answer(method, given, method.start(given), 0, steps)
    moved = (state["models"] - given.initial).abs() > 1e-9
    assert moved.sum(1).tolist() == [1 + others] * 3 + [others, 3 if reading == "paper" else 2, others]
