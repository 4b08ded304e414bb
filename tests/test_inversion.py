"""A hostile coordinator's attempts to get a site's samples back (`benchmarks/inversion.py`), on a smaller scale: what
worked before works without limits, and not with those that every site.toml has."""

import pytest

pytest.importorskip("flwr")

from benchmarks.inversion import measured

BEFORE = {"ratio": (60, 40), "differences": (4, 150), "patience": (90, 3), "optimisation": (10, 8)}
"""The attacks, with the number of orders and how many of 300 samples they recover at least without limits."""


@pytest.mark.parametrize("attack", BEFORE)
def test_samples_are_recovered_without_limits(attack):
    orders, at_least = BEFORE[attack]
    assert measured(attack, "no limits", orders)[0] >= at_least


@pytest.mark.parametrize("attack", BEFORE)
def test_no_sample_is_recovered_under_the_default_limits(attack):
    assert measured(attack, "limits", BEFORE[attack][0])[0] == 0


def test_floors_alone_do_not_stop_a_made_up_model():
    """Why there is a blur: no batch size hides a sample from a coordinator that makes up the model."""
    assert measured("differences", "limits, no blur", 4)[0] >= 150


def test_privacy_alone_stops_it():
    assert measured("differences", "privacy", 1)[0] == 0
