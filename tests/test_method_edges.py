"""Methods where little or nothing comes back: updates of zero, one client, nobody. What they keep must stay numbers."""

from dataclasses import fields

import pytest
import torch

from fedsac import FedsacError
from fedsac.doors import METHODS
from fedsac.methods.cffl import CFFL
from fedsac.methods.cgsv import CGSV
from fedsac.methods.fedave import FedAVE
from fedsac.methods.fedrac import FedRAC
from fedsac.methods.fedsac_plus import FedSACPlus
from fedsac.methods.iafl import IAFL
from fedsac.methods.qffl import QFFL
from fedsac.methods.rffl import RFFL
from fedsac.methods.server_rows import FedAvgServer, FedSACServer
from tests.golden import small
from tests.golden.small import STEPS, times

NOTHING = [0.0] * 12
LOSSES = [torch.tensor([0.9, 1.1]), torch.tensor([1.2, 0.8, 0.7]), torch.tensor([0.5, 0.6])]


def variants():
    """Every method of the list, and both ways of rewarding where it has two."""
    found = []
    for name in METHODS:
        kind = METHODS.resolve(name)
        found.append(pytest.param(kind(), id=name))
        if "reward_by" in (option.name for option in fields(kind)):
            found.append(pytest.param(kind(reward_by="own"), id=f"{name}-own"))
    for kind, reading in ((CFFL, "code"), (CFFL, "paper"), (CGSV, "paper"), (RFFL, "paper")):
        for by in ("contribution", "own"):
            found.append(pytest.param(kind(reward_by=by, reading=reading), id=f"{kind.__name__}-{reading}-{by}"))
    return found


def played(method, given, answers):
    """The states of rounds in which those who answer are given, each with its step."""
    state = method.start(given)
    for round, steps in enumerate(answers):
        told = {"local_losses": torch.ones(len(steps)), "batch_losses": [LOSSES[i] for i in steps]}
        state = small.answer(method, given, state, round, steps, **told)
        yield state


def all_of(steps):
    return dict(enumerate(steps))


# Standalone accuracies, and what other measures may find: contributions of either sign.
@pytest.mark.parametrize(
    "contributions",
    [(0.3, 0.4, 0.5), (0.0, 0.0, 0.5), (0.0, 0.0, 0.0), (-0.1, 0.05, 0.06), (-0.2, -0.3, -0.1)],
    ids=str,
)
@pytest.mark.parametrize(
    "answers",
    [
        [{}, all_of(STEPS[0]), {}, all_of(STEPS[1])],
        [{0: STEPS[0][0]}, {1: STEPS[0][1]}, {}, {2: STEPS[0][2]}, all_of(STEPS[1])],
        [all_of([NOTHING] * 3), all_of(STEPS[0]), all_of([NOTHING] * 3)],
        [all_of([STEPS[0][0], times(-1, STEPS[0][0]), NOTHING])] * 13,
    ],
    ids=["nobody at first", "one at a time", "updates of zero", "opposed"],
)
@pytest.mark.parametrize("method", variants())
def test_what_a_method_keeps_stays_numbers(method, answers, contributions):
    given = small.task(contributions=contributions, rounds=len(answers))
    for state in played(method, given, answers):
        for value in state.values():
            assert not isinstance(value, torch.Tensor) or value.isfinite().all()
        rewards = method.assign(given, state)
        assert rewards.models.isfinite().all()
        assert rewards.neurons.shape == (3, 2) and rewards.neurons.any(1).all()
        assert rewards.reputations is None or all(abs(r) < float("inf") for r in rewards.reputations)


@pytest.mark.parametrize("method", variants())
def test_a_round_that_nobody_answers_leaves_the_state_as_it_was(method):
    states = list(played(method, small.task(), [all_of(STEPS[0]), {}]))
    assert states[0].keys() == states[1].keys()
    for name, before in states[0].items():
        after = states[1][name]
        assert torch.equal(after, before) if isinstance(before, torch.Tensor) else after == before


@pytest.mark.parametrize("method", [CGSV(reward_by="own"), RFFL(reward_by="own")], ids=["cgsv", "rffl"])
def test_data_weighs_until_somebody_has_a_reputation(method):
    given = small.task()
    late = list(played(method, given, [{}, all_of(STEPS[0])]))[-1]
    first = next(played(method, given, [all_of(STEPS[0])]))
    assert torch.equal(late["models"], first["models"]) and torch.equal(late["r"], first["r"])


def test_cgsv_has_a_floor_for_those_who_do_not_answer_too():
    """Ann alone: cos = 1, so r = .05 for her and .001 for the others, over .052."""
    state = next(played(CGSV(reward_by="own"), small.task(), [{0: STEPS[0][0]}]))
    assert state["r"].tolist() == pytest.approx([0.05 / 0.052, 0.001 / 0.052, 0.001 / 0.052])


def test_rffl_a_majority_against_the_sum_does_not_turn_the_order_round():
    """Cem holds 60 % and sets the direction: cosines -1, -1, 1, whose sum is negative. He is still the best."""
    step = STEPS[0][2]
    steps = all_of([times(-1, step), times(-1, step), step])
    state = next(played(RFFL(reward_by="own"), small.task(), [steps]))
    assert state["r"].tolist() == pytest.approx([0, 0, 1])


@pytest.mark.parametrize("reading", ["fedsac", "code", "paper"])
def test_cffl_removes_nobody_for_being_absent(reading):
    method = CFFL(reading=reading, reward_by="own", clip=0.1, upload=1.0)
    for state in played(method, small.task(), [{0: STEPS[0][0]}, {1: STEPS[0][1]}]):
        assert 2 not in state["removed"]


@pytest.mark.parametrize("reading", ["fedsac", "code", "paper"])
def test_cffl_where_only_those_answer_who_were_removed(reading):
    """Ann was: nothing changes, but that in the published code she goes on training alone, by up to .1 an entry."""
    given, method = small.task(), CFFL(reading=reading, reward_by="own", clip=0.1)
    before = next(played(method, given, [all_of(STEPS[0])])) | {"removed": [0]}
    after = small.answer(method, given, before, 1, {0: STEPS[1][0]})
    assert after.keys() == before.keys() and after["removed"] == [0]
    assert torch.equal(after["r"], before["r"]) and torch.equal(after["models"][1:], before["models"][1:])
    moved = [max(-0.1, min(0.1, step)) for step in STEPS[1][0]] if reading == "code" else NOTHING
    assert (after["models"] - before["models"])[0].tolist() == pytest.approx(moved)


@pytest.mark.parametrize("reading", ["fedsac", "paper"])
def test_cffl_answering_alone_does_not_pay(reading):
    method = CFFL(reading=reading, reward_by="own")
    everybody, alone = played(method, small.task(), [all_of(STEPS[0]), {0: STEPS[0][0]}])
    assert alone["r"].tolist() == pytest.approx(everybody["r"].tolist())


@pytest.mark.parametrize("reading", ["code", "paper"])
def test_rffl_removes_nobody_for_being_absent(reading):
    method = RFFL(reading=reading, reward_by="own")
    rounds = [{0: STEPS[0][0], 1: STEPS[0][1]}] * 13  # removals begin after ten
    for state in played(method, small.task(), rounds):
        assert 2 not in state["removed"]


@pytest.mark.parametrize(
    ("method", "option", "value"),
    [
        *((CFFL, "sharpness", value) for value in (0.0, -1.0, float("nan"))),
        *((FedAVE, "beta", 0.0), (CGSV, "beta", -1.0), (RFFL, "length", 0.0)),
        *((FedRAC, "beta", -1.0), (FedSACServer, "server_steps", 0)),
        *((CFFL, "upload", 0.0), (CFFL, "upload", 1.001), (CFFL, "clip", 0.0)),
    ],
)
def test_options_that_would_turn_rewards_round(method, option, value):
    with pytest.raises(FedsacError, match=f"{option} must be"):
        method(**{option: value})


@pytest.mark.parametrize("method", [CFFL, CGSV, FedAVE, FedRAC, IAFL, RFFL])
def test_readings_and_ways_to_reward_that_do_not_exist(method):
    names = {option.name for option in fields(method)} & {"reading", "reward_by"}
    assert "reading" in names
    for name in names:
        with pytest.raises(FedsacError, match=f"{name} must be .* or .*, not 'both'"):
            method(**{name: "both"})


@pytest.mark.parametrize("method", [FedAvgServer(server_share=0.001), FedSACPlus(server_share=0.001)])
def test_a_share_of_v_without_a_sample(method):
    with pytest.raises(FedsacError, match=r"server_share = .* of V's 150 samples leaves"):
        list(played(method, small.task(), [all_of(STEPS[0])]))


def test_fedave_likeness_is_relative_to_those_who_answered():
    given, method = small.task(), FedAVE(reward_by="own")
    alone = next(played(method, given, [{0: STEPS[0][0], 1: STEPS[0][1]}]))
    together = next(played(method, given, [all_of(STEPS[0])]))
    assert float(alone["k"][:2].max()) == 1
    assert float(alone["k"][0] / alone["k"][1]) == pytest.approx(float(together["k"][0] / together["k"][1]))


@pytest.mark.parametrize(("reading", "weight"), [("code", 1.0), ("paper", 0.05)])
def test_fedave_the_first_answer_counts_in_full_in_the_published_code(reading, weight):
    """Cem answers for the first time in the second round, alone: K = 1, and his accuracy joins the others' running
    reputations."""
    given, method = small.task(), FedAVE(reward_by="own", reading=reading)
    first, second = played(method, given, [{0: STEPS[0][0], 1: STEPS[0][1]}, {2: STEPS[0][2]}])
    assert float(first["rep"][2]) == 0
    cem = weight * small.accuracy(small.add(small.INITIAL, STEPS[0][2]))
    expected = small.shares([*first["rep"][:2].tolist(), cem])
    assert second["rep"].tolist() == pytest.approx(expected)


@pytest.mark.parametrize(("option", "least"), [("step", 1), ("beta", 0.0), ("early_rounds", 0)])
def test_fedrac_the_least_that_an_option_may_be(option, least):
    assert getattr(FedRAC(**{option: least}), option) == least
    with pytest.raises(FedsacError, match=f"{option} must be at least {least:g}"):
        FedRAC(**{option: least - (0.001 if isinstance(least, float) else 1)})


def test_a_contribution_below_zero_counts_as_zero():
    """c = -.1, .05, .06 must not become shares of -10, 5 and 6, whose sum is 1, too."""
    given = small.task(contributions=(-0.1, 0.05, 0.06))
    for method, name in ((CGSV(), "r"), (RFFL(), "r"), (FedAVE(), "rep")):
        assert method.start(given)[name].tolist() == pytest.approx([0, 5 / 11, 6 / 11])
    earned = next(played(CFFL(), given, [all_of(STEPS[0])]))["r"].tolist()
    assert earned[0] == 0 and earned[1] < earned[2]
    # Ann has earned nobody's update but her own.
    ann = next(played(IAFL(kappa=0.0, q=0.0), given, [all_of(STEPS[0])]))["models"][0]
    assert ann.tolist() == pytest.approx(small.add(small.INITIAL, STEPS[0][0]))


@pytest.mark.parametrize("q", [0.0, 0.5, 1.0, 5.0])
def test_qffl_with_losses_of_zero(q):
    """Clients that have learned all there is report a loss of 0 and send back what they got: nothing moves."""
    given = small.task()
    for dtype in (torch.float32, torch.float64):
        told = torch.zeros(3, dtype=dtype)
        state = small.rounds(QFFL(q), given, [[NOTHING] * 3], local_losses=told)[1]
        assert torch.equal(state["model"], given.initial)
