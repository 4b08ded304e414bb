"""A mutator: the same name and number always give the same damage, so that a find can be repeated."""

import random
import re

MAX_GROWTH = 1 << 20  # bytes by which a mutated payload is longer than the sound one, at most

NUMBER = re.compile(rb"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
WORD = re.compile(rb'"[^"\n]{0,60}"')
NUMBERS = (
    *(b"0", b"-1", b"1e999", b"-1e308", b"1e-320", b"NaN", b"Infinity", b"0.5", b"2147483648", b"-9223372036854775809"),
    *(b"18446744073709551616", b"1" + b"0" * 400, b"9" * 5000, b"true", b"null", b'"x"', b"[]", b"{}", b"[[1]]"),
)
WORDS = (
    *(b'""', b'"\\ud800"', b'"\\u0000"', b'"' + b"a" * 5000 + b'"', b"null", b"1", b"[]", b"{}", b'"../../x"', b"-0.0"),
    b'"__class__"',
)
LENGTHS = (0, 1, 7, 127, 128, 255, 256, 65535, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 63) - 1)
NESTED = (b"[" * 2000, b"[" * 100_000, b'{"a":' * 2000, b"[" * 500 + b"]" * 500, b'{"a":' * 500 + b"1" + b"}" * 500)


def mutated(payload: bytes, name: str, number: int) -> bytes:
    """The payload with one to four kinds of damage."""
    draw = random.Random(f"{name} {number}")
    content = payload
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        content = draw.choice(KINDS)(content, draw)
    return content[: len(payload) + MAX_GROWTH]


def flipped(content: bytes, draw: random.Random) -> bytes:
    damaged = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 8, 64))):
        if damaged:
            damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
    return bytes(damaged)


def overwritten(content: bytes, draw: random.Random) -> bytes:
    """Some bytes in a row replaced by others: zeros, ones, noise."""
    at, length = _place(content, draw), draw.choice((1, 2, 4, 16, 200))
    with_what = draw.choice((b"\0" * length, b"\xff" * length, draw.randbytes(length)))
    return content[:at] + with_what + content[at + length :]


def truncated(content: bytes, draw: random.Random) -> bytes:
    at = _place(content, draw)
    return draw.choice((content[:at], content[:at], content[at:]))


def removed(content: bytes, draw: random.Random) -> bytes:
    at = _place(content, draw)
    return content[:at] + content[at + draw.choice((1, 2, 8, 100)) :]


def duplicated(content: bytes, draw: random.Random) -> bytes:
    """A part, or all of it, once more or many times."""
    at, length = _place(content, draw), draw.choice((1, 8, 100, len(content)))
    return content[:at] + content[at : at + length] * draw.choice((2, 3, 50)) + content[at + length :]


def length_changed(content: bytes, draw: random.Random) -> bytes:
    """What may be a length field, of 2, 4 or 8 bytes in either order, says something else."""
    size, order = draw.choice((2, 4, 8)), draw.choice(("little", "big"))
    # Headers and footers hold the lengths.
    at = draw.choice((_place(content[:64], draw), max(0, len(content) - 1 - draw.randrange(64)), _place(content, draw)))
    length = draw.choice(LENGTHS) % (1 << 8 * size)
    return content[:at] + length.to_bytes(size, order) + content[at + size :]


def number_changed(content: bytes, draw: random.Random) -> bytes:
    return _replaced(content, NUMBER, draw.choice(NUMBERS), draw)


def word_changed(content: bytes, draw: random.Random) -> bytes:
    return _replaced(content, WORD, draw.choice(WORDS), draw)


def nested(content: bytes, draw: random.Random) -> bytes:
    """Very many brackets, in place of a number or of a word, or anywhere."""
    many = draw.choice(NESTED)
    if draw.randrange(3):
        return _replaced(content, draw.choice((NUMBER, WORD)), many, draw)
    at = _place(content, draw)
    return content[:at] + many + content[at:]


def _replaced(content: bytes, pattern: re.Pattern[bytes], by: bytes, draw: random.Random) -> bytes:
    found = list(pattern.finditer(content))
    if not found:
        return content
    one = draw.choice(found)
    return content[: one.start()] + by + content[one.end() :]


def _place(content: bytes, draw: random.Random) -> int:
    return draw.randrange(len(content)) if content else 0


KINDS = (
    *(flipped, overwritten, truncated, removed, duplicated, length_changed),
    *(number_changed, number_changed, word_changed, word_changed, nested),
)
