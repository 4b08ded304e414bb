"""The guard: what a reply must be to count, and what is said when it is not."""

import io
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsac.federation.guard import Asked, Raw, RefusedError, Reply, admit
from fedsac.federation.identity import new_key, sign, signed

START = {"0.weight": np.full((3, 4), 0.5), "0.bias": np.zeros(3)}
ASKED = Asked(
    "a", "round", 7, "t0", {name: (array.shape, "float64") for name, array in START.items()}, START, max_bytes=10_000
)


def reply(**changes):
    arrays = {name: Raw.of(array + 0.01) for name, array in START.items()}
    return replace(Reply("a", "round", 7, "t0", {}, arrays, 600), **changes)


def with_weight(array):
    return reply(arrays={"0.weight": Raw.of(array), "0.bias": Raw.of(START["0.bias"])})


def refusal(answer, asked=ASKED):
    with pytest.raises(RefusedError) as caught:
        admit(asked, answer)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_good_reply_is_admitted_as_it_is():
    arrays = admit(ASKED, reply())
    assert all(np.array_equal(arrays[name], START[name] + 0.01) for name in START)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (reply(site="b"), "identity"),
        (reply(round=6), "round: it answers round 6"),
        (reply(token="t1"), "round"),
        (reply(kind="alone"), "round"),
        (reply(size=10_001), "size"),
        (reply(extra=("metrics",)), "names: 'metrics'"),
        (reply(arrays={}), "is missing"),
        (reply(arrays=reply().arrays | {"4.weight": Raw.of(np.zeros(1))}), "there is no array '4.weight'"),
        (with_weight(START["0.weight"].astype(np.float32)), "dtype"),
        (with_weight(START["0.weight"][:1]), "shape"),
        (with_weight(START["0.weight"].T), "shape"),
        (with_weight(np.full((3, 4), np.nan)), "finite"),
        (with_weight(np.full((3, 4), -np.inf)), "finite"),
        (with_weight(np.full((3, 4), 1e30)), "step"),
        (with_weight(np.full((3, 4), 1e308)), "step"),
    ],
)
def test_refused_with_its_reason(answer, reason):
    assert reason in refusal(answer)


def test_a_description_that_does_not_fit_the_bytes():
    large = Raw.of(np.zeros((100, 4)))
    lying = Raw("float64", (3, 4), large.data[:150])
    assert "shape: inside" in refusal(reply(arrays=reply().arrays | {"0.weight": lying}))
    short = Raw("float64", (3, 4), Raw.of(START["0.weight"]).data[:-8])
    assert "size" in refusal(reply(arrays=reply().arrays | {"0.weight": short}))
    long = Raw("float64", (3, 4), Raw.of(START["0.weight"]).data + bytes(5000))
    assert "size" in refusal(reply(arrays=reply().arrays | {"0.weight": long}))


def test_python_objects_are_never_loaded():
    buffer = io.BytesIO()
    np.save(buffer, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    raw = Raw("float64", (3, 4), buffer.getvalue())
    refusal(reply(arrays=reply().arrays | {"0.weight": raw}))


@given(st.binary(max_size=300))
def test_any_bytes_are_refused_and_nothing_else_happens(content):
    refusal(reply(arrays=reply().arrays | {"0.weight": Raw("float64", (3, 4), content)}))


def test_a_reply_counts_only_with_the_key_of_whoever_was_asked():
    (private, public), (other, _) = new_key(), new_key()
    asked = replace(ASKED, check=lambda digest, signature: signed(public, digest, signature))
    good = replace(reply(), signature=sign(private, reply().digest()))
    assert admit(asked, good)
    assert "identity" in refusal(replace(reply(), signature=sign(other, reply().digest())), asked)
    assert "identity" in refusal(reply(), asked)
    changed = {name: Raw.of(array + 0.02) for name, array in START.items()}
    assert "identity" in refusal(replace(good, arrays=changed), asked)
    assert "identity" in refusal(replace(good, facts={"samples": 9}), asked)


def test_losses_are_not_negative():
    asked = replace(ASKED, arrays={"local_loss": ((1,), "float64")}, start={})
    assert admit(asked, reply(arrays={"local_loss": Raw.of(np.array([0.5]))}))
    assert "range" in refusal(reply(arrays={"local_loss": Raw.of(np.array([-0.5]))}), asked)
