"""Properties of reputations and submodels that hold for any contributions and any importance."""

from itertools import pairwise

import torch
from hypothesis import given
from hypothesis import strategies as st

import fedsac

accuracies = st.lists(st.floats(0, 1), min_size=1, max_size=8)
values = st.lists(st.floats(-2, 2), min_size=1, max_size=30)
betas = st.floats(0, 100)


def submodels(c, importance, beta):
    return fedsac.allocate(torch.tensor(importance, dtype=torch.float64), fedsac.reputation(c, beta))


@given(accuracies, values, betas)
def test_submodels_are_nested_in_the_order_of_contribution(c, importance, beta):
    mask = submodels(c, importance, beta)
    order = sorted(range(len(c)), key=lambda i: c[i])
    for worse, better in pairwise(order):
        assert (mask[worse] <= mask[better]).all()


@given(accuracies, values, betas)
def test_the_best_contributor_holds_everything_and_nobody_nothing(c, importance, beta):
    mask = submodels(c, importance, beta)
    assert all(mask[i].all() for i in range(len(c)) if c[i] == max(c))
    assert mask.any(1).all()


@given(accuracies, values, betas)
def test_a_submodel_is_the_longest_prefix_that_its_reputation_pays_for(c, importance, beta):
    shares = fedsac.shares(torch.tensor(importance, dtype=torch.float64))
    reputations = fedsac.reputation(c, beta).tolist()
    order = sorted(range(len(importance)), key=lambda j: (importance[j], j))
    for mask, r in zip(submodels(c, importance, beta).tolist(), reputations, strict=True):
        held = [j for j in order if mask[j]]
        assert held == order[: len(held)]
        if r == 100:
            continue
        cost = sum(float(shares[j]) for j in held)
        assert cost <= r + 1.001e-3 or len(held) == 1
        if len(held) < len(order):
            assert cost + float(shares[order[len(held)]]) > r + 0.999e-3


@given(accuracies, values, betas, st.randoms())
def test_permuting_clients_permutes_submodels(c, importance, beta, random):
    order = list(range(len(c)))
    random.shuffle(order)
    mask = submodels(c, importance, beta)
    assert (submodels([c[i] for i in order], importance, beta) == mask[order]).all()


@given(st.lists(st.floats(0, 1), min_size=2, max_size=8), betas)
def test_reputation_is_monotone_and_tops_out_at_100(c, beta):
    r = fedsac.reputation(c, beta).tolist()
    assert max(r) == 100
    for i in range(len(c)):
        for j in range(len(c)):
            assert c[i] < c[j] or r[i] >= r[j]
