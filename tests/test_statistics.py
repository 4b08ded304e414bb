"""Intervals and paired tests over seeds, worked out by hand and by scipy."""

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedsac.runs.comparison import Row, judgements
from fedsac.runs.statistics import (
    BEATEN,
    FIRST,
    LEVEL,
    UNDECIDED,
    Difference,
    Judgement,
    holm,
    judge,
    mean_interval,
    t_critical,
    t_two_sided,
)


def of(*values):
    """Numbers by seed 0, 1, ..."""
    return dict(enumerate(values))


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 9, 10, 29, 100])
@pytest.mark.parametrize("t", [0.0, 0.3, 1.0, 2.5, -2.5, 12.7, 400.0])
def test_students_t_is_scipys(t, freedom):
    assert t_two_sided(t, freedom) == pytest.approx(2 * stats.t.sf(abs(t), freedom), abs=1e-13)
    assert t_critical(freedom) == pytest.approx(stats.t.ppf(1 - LEVEL / 2, freedom), abs=1e-9)


def test_an_interval_by_hand():
    """Mean 3, deviation sqrt(2.5), five values: 3 -+ 2.7764 sqrt(2.5) / sqrt(5) = 3 -+ 1.9632."""
    low, high = mean_interval([1.0, 2.0, None, 3.0, 4.0, 5.0])
    assert (low, high) == (pytest.approx(1.0368, abs=1e-4), pytest.approx(4.9632, abs=1e-4))
    assert (low, high) == pytest.approx(stats.t.interval(0.95, 4, loc=3, scale=math.sqrt(2.5 / 5)))
    # Two values: mean 2, deviation sqrt(2), so 2 -+ 12.7062 sqrt(2) / sqrt(2).
    assert mean_interval([1.0, 3.0]) == pytest.approx((-10.7062, 14.7062), abs=1e-4)


def test_there_is_no_interval_of_one_value_or_of_equal_ones():
    assert mean_interval([]) is None
    assert mean_interval([None, 0.5]) is None
    assert mean_interval([0.1 + 0.2, 0.3, 0.3]) is None  # equal but for rounding


def test_holm_by_hand():
    """Sorted .005 .01 .03 .04, times 4 3 2 1: .02 .03 .06 .04, and none below the one before."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


def test_a_difference_is_scipys_paired_test():
    rng = np.random.default_rng(0)
    a, b, c = rng.normal([[0.50], [0.48], [0.40]], 0.02, (3, 7))
    found = judge({"a": of(*a), "b": of(*b), "c": of(*c)})
    p = [stats.ttest_rel(a, other).pvalue for other in (b, c)]
    assert [d.rival for d in found["a"].differences] == ["b", "c"]
    assert [d.p for d in found["a"].differences] == pytest.approx(p, abs=1e-12)
    assert [d.p_holm for d in found["a"].differences] == pytest.approx([max(p[0], 2 * p[1]), 2 * p[1]], abs=1e-12)
    wanted = stats.ttest_rel(a, b).confidence_interval(0.95)
    first = found["a"].differences[0]
    assert first.interval == pytest.approx((wanted.low, wanted.high))
    assert (first.seeds, first.mean) == (7, pytest.approx(np.mean(a - b)))


def test_pairing_finds_what_the_spread_of_the_splits_hides():
    """Splits move both by .2, and one is above the other by .01 on each: means overlap, differences do not."""
    splits, noise = [0.3, 0.5, 0.4, 0.45, 0.35], [0.001, -0.001, 0.0, 0.002, -0.002]
    better, other = [s + 0.01 + e for s, e in zip(splits, noise, strict=True)], splits
    assert stats.ttest_ind(better, other).pvalue > 0.8
    found = judge({"better": of(*better), "other": of(*other)})
    assert (found["better"].verdict, found["other"].verdict) == (FIRST, BEATEN)
    assert found["other"].beaten_by == ("better",)


def test_first_means_above_every_rival():
    """Above b for certain, and above c by no more than chance."""
    a, b, c = of(10, 11, 12, 10.5), of(1, 2.1, 2.9, 1.4), of(9, 12, 11, 10.6)
    found = judge({"a": a, "b": b, "c": c})
    assert [found[name].verdict for name in "abc"] == [UNDECIDED, BEATEN, UNDECIDED]
    assert judge({"a": a, "b": b})["a"].verdict == FIRST
    assert found["a"].best_rival.rival == "c"


def test_holm_takes_back_what_one_test_alone_would_call_significant():
    """Two rivals at p = .03 each: the smaller counts twice, .06. A rival far below takes back nothing."""
    own = of(1.0, 2.0, 3.0, 4.0, 5.0)
    close, alike, far = of(0.8, 1.7, 2.9, 3.4, 4.8), of(0.8, 1.5, 2.9, 3.4, 4.8), of(-5.0, -4.1, -3.0, -2.1, -1.0)
    for rival in (close, alike):
        assert 0.029 < stats.ttest_rel(list(own.values()), list(rival.values())).pvalue < 0.032
        assert judge({"own": own, "rival": rival})["own"].verdict == FIRST
    assert judge({"own": own, "close": close, "far": far})["own"].verdict == FIRST
    assert judge({"own": own, "close": close, "alike": alike})["own"].verdict == UNDECIDED


@pytest.mark.parametrize(("p", "verdict"), [(0.049, FIRST), (0.05, FIRST), (0.051, UNDECIDED)])
def test_significant_is_a_corrected_p_of_at_most_the_level(p, verdict):
    """More is better unless it is said otherwise."""
    difference = Difference("rival", 5, 0.1, (0.01, 0.19), p / 2, p)
    assert Judgement((difference,)).verdict == verdict


def test_less_can_be_better():
    found = judge({"small": of(1.0, 1.1, 1.2), "large": of(5.0, 5.2, 5.1)}, better=-1)
    assert (found["small"].verdict, found["large"].verdict) == (FIRST, BEATEN)


def test_one_seed_is_no_statement():
    found = judge({"a": of(1.0), "b": of(0.0)})
    assert [one.verdict for one in found.values()] == [None, None]
    (d,) = found["a"].differences
    assert (d.mean, d.interval, d.p, d.p_holm) == (1.0, None, None, None)
    assert found["a"].best_rival == d


def test_without_a_rival_there_is_no_best_one():
    assert judge({"a": of(1.0, 2.0)})["a"].best_rival is None
    assert judge({"a": {0: 1.0, 1: 1.2}, "b": {2: 0.5, 3: 0.6}})["a"].best_rival is None


def test_only_shared_seeds_count():
    a, b = {0: 1.0, 1: 1.1, 2: 1.2, 3: None}, {1: 0.5, 2: 0.7, 3: 0.6, 4: 9.0}
    (d,) = judge({"a": a, "b": b})["a"].differences
    assert (d.seeds, d.mean) == (2, pytest.approx(0.55))
    assert d.p == pytest.approx(stats.ttest_rel([1.1, 1.2], [0.5, 0.7]).pvalue)


def test_a_rival_that_never_has_the_number_is_left_out():
    found = judge({"a": of(1.0, 2.0, 3.1), "b": of(0.0, 1.0, 2.0), "none": of(None, None, None)})
    assert found["a"].verdict == FIRST
    assert found["none"].verdict is None
    assert judge({"a": of(1.0, 2.0), "none": of(None, None)})["a"].verdict is None


def test_a_rival_without_shared_seeds_keeps_a_method_from_being_first():
    found = judge({"a": of(1.0, 2.0, 3.1), "b": of(0.0, 1.0, 2.0), "other seeds": {7: 0.0, 8: 0.1}})
    assert found["a"].verdict == UNDECIDED
    assert found["b"].verdict == BEATEN
    assert found["a"].differences[1] == Difference("other seeds", 0, None, None, None, None)


def test_equal_differences_are_judged_by_their_signs():
    """Two seeds that differ by the same .1 are no proof (p = 1/2); eight are (1/128)."""
    for n, verdict in ((2, UNDECIDED), (5, UNDECIDED), (8, FIRST)):
        a, b = [0.1 * k + 0.1 for k in range(n)], [0.1 * k for k in range(n)]
        (d,) = judge({"a": of(*a), "b": of(*b)})["a"].differences
        assert (d.p, d.interval) == (2.0 ** (1 - n), None)
        assert judge({"a": of(*a), "b": of(*b)})["a"].verdict == verdict


def test_equal_numbers_are_undecided():
    found = judge({"a": of(0.0, 0.0, 0.0), "b": of(0.0, 0.0, 0.0)})
    assert found["a"].differences[0].p == 1.0
    assert {one.verdict for one in found.values()} == {UNDECIDED}


def test_wilcoxon_cannot_decide_with_five_seeds():
    """Why the t test: all five above, by whatever margin, and the rank test says .0625."""
    assert stats.wilcoxon([1.0, 2.0, 3.0, 4.0, 5.0], method="exact").pvalue == 0.0625


def test_a_seed_that_occurs_twice_decides_nothing():
    twice = Row("a", "last", {"gamma": [1.0, 1.1, 2.0]}, [(0, 0), (0, 0), (1, 1)])
    other = Row("b", "last", {"gamma": [0.0, 1.0]}, [(0, 0), (1, 1)])
    assert twice.interval("gamma") is None
    assert judgements([twice, other], "gamma", "last")["a"].verdict is None


columns = st.integers(2, 6).flatmap(
    lambda seeds: st.lists(
        st.lists(st.none() | st.integers(-10_000, 10_000).map(lambda n: n / 100), min_size=seeds, max_size=seeds),
        min_size=2,
        max_size=5,
    )
)


def verdicts(table):
    return {name: one.verdict for name, one in judge(table).items()}


@given(columns, st.randoms(use_true_random=False))
def test_the_order_of_seeds_does_not_matter(values, rng: random.Random):
    table = {str(i): of(*row) for i, row in enumerate(values)}
    shuffled = {}
    for name, row in table.items():
        seeds = list(row)
        rng.shuffle(seeds)
        shuffled[name] = {seed: row[seed] for seed in seeds}
    for name, judged in judge(table).items():
        other = judge(shuffled)[name]
        assert judged.verdict == other.verdict
        assert [d.p for d in judged.differences] == pytest.approx([d.p for d in other.differences], abs=1e-9)


@given(columns, st.integers(-1000, 1000))
def test_a_constant_for_all_changes_nothing(values, constant):
    table = {str(i): of(*row) for i, row in enumerate(values)}
    moved = {name: {s: None if v is None else v + constant for s, v in row.items()} for name, row in table.items()}
    assert verdicts(moved) == verdicts(table)


@given(columns)
def test_at_most_one_is_first_and_then_it_beats_all_others(values):
    found = judge({str(i): of(*row) for i, row in enumerate(values)})
    first = [name for name, one in found.items() if one.verdict == FIRST]
    assert len(first) <= 1
    for name in first:
        rivals = found[name].differences
        assert all(d.mean > 0 and d.p_holm <= LEVEL for d in rivals)
        # Each pair's p is the same from both sides.
        for d in rivals:
            assert next(e.p for e in found[d.rival].differences if e.rival == name) == pytest.approx(d.p, abs=1e-12)


@given(columns)
def test_corrected_p_values_are_never_smaller_and_keep_their_order(values):
    for one in judge({str(i): of(*row) for i, row in enumerate(values)}).values():
        tested = sorted((d.p, d.p_holm) for d in one.differences if d.p is not None)
        assert all(p <= corrected <= 1 for p, corrected in tested)
        assert [corrected for _, corrected in tested] == sorted(corrected for _, corrected in tested)
