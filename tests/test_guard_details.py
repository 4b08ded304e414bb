"""The guard at its limits: the last reply that is admitted and the first that is refused, worked out by hand."""

import io

import numpy as np
import pytest

from fedsac.federation.guard import Asked, Raw, RefusedError, Reply, admit, printable

# A model of length 5 may move by at most 10 * (1 + 5) = 60.
MODEL = np.array([3.0, 4.0])
SIXTY = np.array([36.0, 48.0])
ASKED = Asked("a", "round", 7, "t0", {"w": ((2,), "float64")}, {"w": MODEL})


def answer(raw, **others):
    return Reply("a", "round", 7, "t0", arrays={"w": raw}, **others)


def refusal(asked, reply):
    with pytest.raises(RefusedError) as caught:
        admit(asked, reply)
    return str(caught.value)


def npy(array, *, header=None, fortran=False):
    """An .npy file, its header padded to so many bytes."""
    text = f"{{'descr': {array.dtype.str!r}, 'fortran_order': {fortran}, 'shape': {array.shape!r}, }}"
    length = (header or 128) - 10
    return b"\x93NUMPY\x01\x00" + length.to_bytes(2, "little") + f"{text:<{length - 1}}\n".encode() + array.tobytes()


@pytest.mark.parametrize("direction", [1, -1])
def test_the_longest_step(direction):
    good = MODEL + direction * SIXTY
    assert admit(ASKED, answer(Raw.of(good)))["w"].tolist() == good.tolist()
    assert "step: the model moved by 60" in refusal(ASKED, answer(Raw.of(MODEL + direction * 1.001 * SIXTY)))


def test_a_step_that_overflows_is_refused_without_a_warning():
    """The square of 1e200 is more than a float64 holds."""
    assert "step: the model moved by inf" in refusal(ASKED, answer(Raw.of(np.array([3.0, 1e200]))))
    assert "step: the model moved by inf" in refusal(ASKED, answer(Raw.of(np.array([-1.7e308, 1.7e308]))))


def test_the_largest_message():
    assert admit(ASKED, answer(Raw.of(MODEL), size=1 << 30))
    assert "size" in refusal(ASKED, answer(Raw.of(MODEL), size=(1 << 30) + 1))


def test_a_question_without_arrays_and_a_reply_without_any():
    nothing = Asked("a", "hello", 0, "t", max_bytes=0)
    assert admit(nothing, Reply("a", "hello", 0, "t")) == {}
    signed = Asked("a", "hello", 0, "t", check=lambda digest, signature: len(digest) == 32 and signature == "")
    assert admit(signed, Reply("a", "hello", 0, "t")) == {}


def test_a_loss_may_be_zero():
    asked = Asked("a", "round", 7, "t0", {"w": ((2,), "float64")})
    assert admit(asked, answer(Raw.of(np.zeros(2))))["w"].tolist() == [0, 0]
    assert "range: w" in refusal(asked, answer(Raw.of(np.array([0.5, -1e-300]))))


def test_four_bytes_a_number():
    start = MODEL.astype(np.float32)
    asked = Asked("a", "round", 7, "t0", {"w": ((2,), "float32")}, {"w": start})
    found = admit(asked, answer(Raw.of(start + 1)))["w"]
    assert found.dtype == np.float32 and found.tolist() == [4, 5]
    assert "step" in refusal(asked, answer(Raw.of(np.array([100, 0], dtype=np.float32))))


def test_the_longest_header():
    """Up to 1024 bytes beside the numbers."""
    assert admit(ASKED, answer(Raw("float64", (2,), npy(MODEL, header=1024))))["w"].tolist() == [3, 4]
    assert "size: w has 1041 bytes" in refusal(ASKED, answer(Raw("float64", (2,), npy(MODEL, header=1025))))


def test_what_the_file_says_of_itself_must_be_true():
    good = npy(MODEL)
    assert admit(ASKED, answer(Raw("float64", (2,), good)))
    whole_numbers = npy(np.array([3, 4]))  # as many bytes
    assert "shape: inside, w is int64" in refusal(ASKED, answer(Raw("float64", (2,), whole_numbers)))
    assert "shape: inside" in refusal(ASKED, answer(Raw("float64", (2,), npy(MODEL, fortran=True))))
    other_version = good[:6] + b"\x02" + good[7:]
    assert "format: w cannot be read" in refusal(ASKED, answer(Raw("float64", (2,), other_version)))


def test_what_a_message_says_of_its_arrays_must_be_true():
    assert "shape: w is [1]" in refusal(ASKED, answer(Raw("float64", (1,), npy(MODEL))))
    assert "dtype: w is float32" in refusal(ASKED, answer(Raw("float32", (2,), npy(MODEL))))


def test_objects_are_not_packed():
    with pytest.raises(ValueError, match="allow_pickle"):
        Raw.of(np.array([{}], dtype=object))


def test_an_array_is_packed_in_the_usual_order():
    turned = np.arange(6.0).reshape(2, 3).T
    raw = Raw.of(turned)
    assert (raw.dtype, raw.shape) == ("float64", (3, 2))
    assert np.array_equal(np.load(io.BytesIO(raw.data)), turned)
    assert b"'fortran_order': False" in raw.data


def test_a_signature_covers_facts_in_any_order():
    facts = {"samples": 5, "loss": 0.25}
    turned = dict(reversed(facts.items()))
    assert answer(Raw.of(MODEL), facts=facts).digest() == answer(Raw.of(MODEL), facts=turned).digest()
    assert answer(Raw.of(MODEL), facts=facts).digest() != answer(Raw.of(MODEL), facts=facts | {"loss": 0.5}).digest()


def test_facts_that_cannot_be_written_are_not_signed():
    endless = {}
    endless["again"] = endless
    asked = Asked("a", "round", 7, "t0", ASKED.arrays, ASKED.start, check=lambda digest, signature: True)
    assert admit(asked, answer(Raw.of(MODEL)))
    assert "identity" in refusal(asked, answer(Raw.of(MODEL), facts=endless))


def test_text_from_outside_on_one_line():
    assert printable("a\x1b[31m  b\n\tc\u202ed") == "a [31m b c d"
    assert printable("plain text, ä") == "plain text, ä"
    assert printable(7) == "7"


def test_a_refusal_is_short_whatever_was_sent():
    many = tuple("x" * 10_000 + str(i) for i in range(1000))
    assert len(refusal(ASKED, answer(Raw.of(MODEL), extra=many))) < 200
