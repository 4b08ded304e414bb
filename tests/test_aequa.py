"""Aequa: widths are nested, never fall with contribution, and are dealt out to be trained as the sandwich rule says."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import fedsac
from fedsac import Config, FedsacError
from fedsac.core.units import Layout
from fedsac.methods.aequa import Aequa, allot, first_neurons, sandwich
from tests.golden import small
from tests.test_calibration import detectors

UNIT = st.floats(0, 1)


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=8), st.lists(UNIT, min_size=2, max_size=20), st.data())
def test_who_contributes_more_gets_no_less(c, accuracy, data):
    targets = data.draw(st.sampled_from(["range", "gain"]))
    contributions = np.array(c)
    got = allot(contributions, np.array(accuracy), targets)
    by_contribution = got[contributions.argsort(kind="stable")]
    assert (np.diff(by_contribution) >= 0).all()
    assert (got[contributions == contributions.max()] == len(accuracy) - 1).all()
    assert all(len(set(got[contributions == value])) == 1 for value in c)


@given(st.lists(UNIT, min_size=2, max_size=8), st.lists(UNIT, min_size=2, max_size=20))
def test_targets_on_a_line_are_met_where_there_are_such_accuracies(c, accuracy):
    """Whoever is not the best gets the width whose accuracy, the highest so far, comes nearest to a line in c."""
    contributions, best = np.array(c), np.maximum.accumulate(np.array(accuracy))
    lowest, highest = contributions.min(), contributions.max()
    for value, width in zip(contributions, allot(contributions, np.array(accuracy), "range"), strict=True):
        if value < highest:
            target = np.interp(value, [lowest, highest], [best[0], best[-1]])
            assert abs(best[width] - target) <= np.abs(best - target).min() + 1e-9


@given(st.lists(st.integers(1, 30), min_size=1, max_size=3), st.lists(st.floats(0.01, 1), min_size=2, max_size=6))
def test_widths_are_nested_in_every_layer(hidden, widths):
    layout, ordered = Layout((3, *hidden, 2)), torch.tensor(sorted(widths), dtype=torch.float64)
    masks = first_neurons(layout, ordered)
    assert (masks[:-1] <= masks[1:]).all()
    for layer, h in zip(layout.by_layer(masks), hidden, strict=True):
        assert layer[:, 0].all()
        assert (layer[:, 1:] <= layer[:, :-1]).all()  # the first neurons of the layer
        assert ((layer.sum(1) - ordered * h).abs() <= 1).all()
    assert first_neurons(layout, torch.ones(1).double()).all()


def test_a_whole_number_of_neurons_is_that_number():
    masks = first_neurons(Layout((1, 200, 1)), torch.linspace(0.25, 1, 151, dtype=torch.float64))
    assert masks.sum(1).tolist() == list(range(50, 201))


def test_each_round_trains_the_widest_the_least_and_something_between():
    names = tuple(f"client-{i}" for i in range(9))
    given = small.task()
    task = type(given)(**{**vars(given), "clients": names})
    seen, between = set(), set()
    for round in range(40):
        drawn = sandwich(task, np.full(9, 10), round)
        assert (drawn == 10).sum() >= 3 and (drawn == 0).sum() >= 3
        seen.add(tuple(drawn))
        between |= set(drawn)
    assert len(seen) == 40 and between == set(range(11))
    limits = np.arange(9)
    assert (sandwich(task, limits, 0) <= limits).all()


def test_widths_are_allotted_to_the_neuron():
    """k of 100 neurons are right on k of 125 samples, and the widths are .25, .26, ..., 1: contributions that rise in
    equal steps earn 25, 26, ..., 100 neurons."""
    names = tuple(f"client-{i:02}" for i in range(76))
    given = replace(detectors(tuple(0.1 + 0.004 * i for i in range(76))), clients=names)
    method = Aequa(least_width=0.25, widths=76)
    assigned = method.assign(given, method.start(given))
    assert assigned.reward().neurons.sum(1).tolist() == list(range(25, 101))
    assert assigned.reputations == pytest.approx(range(25, 101), rel=1e-12)


@pytest.mark.parametrize("answers", [{0: 0}, {0: 0, 1: 1, 2: 2}], ids=["one", "all"])
def test_the_widths_to_train_are_those_of_the_round(answers):
    """Dealt out by the number of the round, so that a run that was interrupted goes on as it would have."""
    given, method = detectors((0.1, 0.4, 0.2)), Aequa(least_width=0.25)
    names = np.array(method.start(given)["widths"].tolist())
    assert names.tolist() == pytest.approx([0.25, 1, names[2]])
    still = dict.fromkeys(answers, [0.0] * given.layout.parameters)
    state, seen = method.start(given), []
    for round in range(5):
        drawn = sandwich(given, np.full(3, 63), round)
        assert state["neurons"].sum(1).tolist() == [int(np.ceil(25 + 75 * k / 63 - 1e-9)) for k in drawn]
        seen.append(tuple(drawn))
        state = small.answer(method, given, state, round, still)
    assert len(set(seen)) > 1


@pytest.mark.parametrize(
    ("option", "possible", "impossible"),
    [
        *(("least_width", 1.0, 1.001), ("least_width", 0.001, 0.0), ("widths", 2, 1)),
        *(("targets", "gain", "gains"), ("timing", "during", "before")),
    ],
)
def test_options_at_the_ends_of_what_is_possible(option, possible, impossible):
    assert getattr(Aequa(**{option: possible}), option) == possible
    with pytest.raises(FedsacError, match=f"{option} must be"):
        Aequa(**{option: impossible})


@dataclass(frozen=True)
class Recorded(Aequa):
    """Aequa that writes down what clients are given to train, and what they would keep."""

    given: ClassVar[list] = []

    def assign(self, task, state):
        assigned = super().assign(task, state)
        self.given.append((assigned.neurons, assigned.reward().neurons))
        return assigned


@pytest.mark.parametrize("timing", ["after", "during"])
def test_during_training_nobody_is_given_more_than_it_has_earned(timing):
    Recorded.given.clear()
    config = Config(
        method="tests.test_aequa:Recorded", rounds=6, clients=5, hidden=(16, 8), local_steps=5, standalone_steps=20
    )
    result = fedsac.run(config.replace(options={"timing": timing}))
    c = np.array(result.contributions.validation)
    more = False
    assert len(Recorded.given) >= 6
    for trained, kept in Recorded.given:
        more |= bool((trained > kept).any())
        widths = kept.sum(1)[torch.from_numpy(c.argsort(kind="stable"))]
        assert (widths.diff() >= 0).all()
    assert more == (timing == "after")
