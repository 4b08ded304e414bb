"""Scenes: who gets which samples."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsac.data import scenes
from fedsac.data.scenes import Deal, class_counts, dirichlet_shares
from fedsac.doors import SCENES
from fedsac.errors import FedsacError
from fedsac.rng import stream


def labels(n=5000, classes=10, seed=0):
    return np.random.default_rng(seed).integers(classes, size=n)


def deal(scene, y, classes, clients, each, rng):
    return scenes.deal(Deal(scene, y, classes, clients, each, 2000, rng, SCENES.parse(scene)[1]))


@pytest.mark.parametrize("scene", ["pow", "iid", "dir:1.0", "dir:0.1", "dir-class:1.0"])
def test_no_sample_has_two_owners(scene):
    parts = deal(scene, labels(), 10, 7, 500, stream(0, scene))
    together = np.concatenate(parts)
    assert len(parts) == 7
    assert len(np.unique(together)) == len(together) == 3500


@pytest.mark.parametrize("scene", ["iid", "dir:1.0", "dir-class:2.0"])
def test_everything_is_dealt_out_where_no_number_is_given(scene):
    parts = deal(scene, labels(), 10, 7, None, stream(0, scene))
    assert sorted(np.concatenate(parts)) == list(range(5000))


def test_pow_has_the_sizes_of_the_power_law():
    parts = deal("pow", labels(25000), 10, 10, 2000, stream(0, "pow"))
    assert [len(part) for part in parts] == [236, 628, 1020, 1412, 1804, 2197, 2589, 2981, 3373, 3760]


@settings(deadline=None)
@given(st.integers(2, 100), st.integers(20000, 10**6))
def test_pow_sizes_are_scipys_quantiles(clients, total):
    from scipy.stats import powerlaw

    b = np.linspace(*powerlaw(scenes.POWER_LAW_EXPONENT).ppf([0.01, 0.99]), clients)
    sizes = np.ceil(b / b.sum() * total).astype(int).tolist()
    assert scenes.power_sizes(clients, total)[:-1] == sizes[:-1]


@pytest.mark.parametrize(("clients", "classes"), [(5, 10), (10, 10), (3, 7), (12, 4)])
def test_cla_gives_client_i_its_first_classes(clients, classes):
    y = labels(classes=classes)
    parts = deal("cla", y, classes, clients, 200, stream(0, "cla"))
    for part, k in zip(parts, class_counts(clients, classes), strict=True):
        counts = np.bincount(y[part], minlength=classes)
        assert len(part) == 200
        assert (counts[: k - 1] == 200 // k).all()
        assert counts[k - 1] == 200 // k + 200 % k
        assert counts[k:].sum() == 0
        assert len(set(part.tolist())) == 200  # no sample twice: every class has enough


def test_cla_draws_a_sample_twice_only_where_a_class_runs_short():
    y = np.array([0] * 50 + [1] * 10)
    parts = deal("cla", y, 2, 2, 40, stream(0, "cla"))
    assert len(set(parts[0].tolist())) == 40
    assert len(parts[1]) == 40 and len(set(parts[1][y[parts[1]] == 0].tolist())) == 20


@settings(deadline=None, max_examples=20)
@given(st.floats(1, 50), st.integers(5, 25), st.integers(0, 100))
def test_dir_clients_have_near_equal_sizes(alpha, clients, seed):
    parts = deal(f"dir:{alpha}", labels(8000, seed=seed), 10, clients, None, stream(seed, "dir"))
    sizes = np.array([len(part) for part in parts])
    assert sizes.sum() == 8000
    # The tolerance on the mean share, relaxed at most a few times, keeps sizes within a third of the mean.
    assert abs(sizes / (8000 / clients) - 1).max() < 0.34


def test_dir_shares_spread_as_the_dirichlet_does():
    """Var of a share under Dir(a p) is p (1 - p) / (a + 1)."""
    y = labels(10000)
    shares = np.concatenate([dirichlet_shares(y, 10, 10, 3.0, stream(seed, "dir")) for seed in range(60)])
    assert shares.mean(0) == pytest.approx(0.1, abs=0.01)
    assert shares.var() == pytest.approx(0.1 * 0.9 / 4, rel=0.15)


def test_a_small_alpha_makes_clients_that_know_few_classes():
    y = labels(20000)
    known = {}
    for alpha in (0.3, 100.0):
        parts = deal(f"dir:{alpha}", y, 10, 10, None, stream(0, "dir"))
        known[alpha] = np.mean([(np.bincount(y[part], minlength=10) > 40).sum() for part in parts])
    assert known[0.3] < 4 < 9 < known[100.0]


@pytest.mark.parametrize("scene", ["pow", "iid", "dir:1.0"])
def test_a_scene_the_data_cannot_fill_says_both_numbers(scene):
    with pytest.raises(FedsacError, match=r"needs 20000 samples.*leaves 5000 .*at most 500"):
        deal(scene, labels(), 10, 10, 2000, stream(0, "x"))


def test_more_clients_than_samples():
    with pytest.raises(FedsacError, match="5 samples cannot serve 6 clients"):
        deal("iid", labels(5), 10, 6, None, stream(0, "x"))


def test_fewer_samples_than_classes_is_an_error():
    with pytest.raises(FedsacError, match="a client of 4 classes needs at least 4 samples, and has 3"):
        deal("cla", labels(), 10, 10, 3, stream(0, "x"))


def test_an_empty_class_is_named():
    with pytest.raises(FedsacError, match="class 1 has no samples"):
        deal("cla", np.zeros(50, dtype=int), 2, 2, 10, stream(0, "x"))


@pytest.mark.parametrize("scene", ["dir", "dir:", "dir:x", "dir:0", "dir:-1", "dir:nan", "dir:inf", "dir-class:"])
def test_a_dirichlet_without_its_number(scene):
    with pytest.raises(FedsacError, match="needs a number above 0"):
        SCENES.spelled(scene)


def test_one_scene_has_one_spelling():
    from fedsac import Config

    assert {Config(scene=text).scene for text in ("dir:1", "dir:1.0", "dir:1.00")} == {"dir:1.0"}


@pytest.mark.parametrize("scene", ["", "POW", "silo", ":", "x:"])
def test_an_unknown_scene_lists_the_known_ones(scene):
    with pytest.raises(FedsacError, match="there are pow, cla"):
        SCENES.spelled(scene)


@pytest.mark.parametrize("scene", ["pow:1", "pow:", "iid:2"])
def test_a_scene_without_a_parameter_takes_none(scene):
    with pytest.raises(FedsacError, match="takes no parameter"):
        SCENES.spelled(scene)
