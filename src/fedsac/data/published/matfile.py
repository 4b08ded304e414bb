"""Reading numeric arrays from MATLAB 5 files (.mat), plain or compressed.

scipy can read them too, but a single wrong byte in a length or type field can crash the whole interpreter (scipy 1.17,
found by fuzzing). Here every length is checked before it is used.
"""

import math
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedsac.data.messages import cause
from fedsac.errors import FedsacError

HEADER_BYTES = 128
MAX_UNPACKED_BYTES = (
    1 << 30
)  # of a packed file: four times the largest published one. A few bytes can unpack to any size
INT8, INT32, UINT32, MATRIX, COMPRESSED = 1, 5, 6, 14, 15
COMPLEX = 0x0800
# numpy's types by MATLAB's numbers for them: as stored in the file, and as the array has it in MATLAB. The two differ:
# doubles that are whole numbers are often stored as bytes.
STORED_TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
MATLAB_CLASSES = {
    6: "f8",
    7: "f4",
    8: "i1",
    9: "u1",
    10: "i2",
    11: "u2",
    12: "i4",
    13: "u4",
    14: "i8",
    15: "u8",
}


class _DamageError(Exception):
    """What is wrong in one element of the file."""


class _Element(NamedTuple):
    kind: int
    data: memoryview
    end: int  # offset of the next element


def read_mat(path: Path, raw: bytes) -> dict[str, np.ndarray | None]:
    """The variables in the file by name; None for one that is not an array of real numbers."""
    order = _byte_order(path, raw)
    variables: dict[str, np.ndarray | None] = {}
    offset = HEADER_BYTES
    try:
        while offset < len(raw):
            element = _element(memoryview(raw), offset, order)
            if element.kind == COMPRESSED:
                name, values = _variable(_inflated(element.data, order), order)
            elif element.kind == MATRIX:
                name, values = _variable(element.data, order)
            else:
                raise _DamageError(f"type {element.kind} is no variable")
            variables[name] = values
            offset = element.end
    except _DamageError as err:
        raise FedsacError(
            f"{path}: damaged in the variable at byte {offset} ({err}); replace the file with an undamaged copy"
        ) from err
    return variables


def _byte_order(path: Path, raw: bytes) -> str:
    if raw[:10] == b"MATLAB 7.3":
        raise FedsacError(f"{path}: byte 0: a MATLAB 7.3 file; save it from MATLAB with -v7")
    order = {b"IM": "<", b"MI": ">"}.get(raw[126:128])
    if order is None:
        raise FedsacError(f"{path}: byte 126: the mark of a MATLAB 5 file is missing; replace the file")
    return order


def _element(data: memoryview, offset: int, order: str) -> _Element:
    if offset + 8 > len(data):
        raise _DamageError(f"truncated: {len(data) - offset} bytes are left for a tag of 8")
    kind, size = (int(v) for v in np.frombuffer(data[offset : offset + 8], f"{order}u4"))
    start, end = offset + 8, offset + 8 + size
    if kind >> 16:  # the small format: up to 4 bytes of data within the tag
        kind, size = kind & 0xFFFF, kind >> 16
        if size > 4:
            raise _DamageError(f"{size} bytes in a tag that has room for 4")
        start, end = offset + 4, offset + 8
    elif kind != COMPRESSED:
        end += -size % 8
    if start + size > len(data):
        raise _DamageError(f"truncated: {size} bytes are due and {len(data) - start} are left")
    return _Element(kind, data[start : start + size], end)


def _inflated(data: memoryview, order: str) -> memoryview:
    unpacking = zlib.decompressobj()
    try:
        plain = unpacking.decompress(data, MAX_UNPACKED_BYTES)
    except zlib.error as err:
        raise _DamageError(cause(err)) from err
    except MemoryError as err:
        raise _DamageError("unpacked it is larger than the memory that is left") from err
    if not unpacking.eof:
        more = len(plain) == MAX_UNPACKED_BYTES
        raise _DamageError(
            f"larger than {MAX_UNPACKED_BYTES >> 20} MiB" if more else "truncated: its stream breaks off"
        )
    element = _element(memoryview(plain), 0, order)
    if element.kind != MATRIX:
        raise _DamageError(f"type {element.kind} is no variable")
    return element.data


def _variable(data: memoryview, order: str) -> tuple[str, np.ndarray | None]:
    parts = _parts(data, order)
    flags = _numbers(next(parts), UINT32, order, "flags")
    shape = tuple(int(v) for v in _numbers(next(parts), INT32, order, "dimensions"))
    name_part = next(parts)
    if name_part.kind != INT8:
        raise _DamageError(f"type {name_part.kind} where its name belongs")
    name = bytes(name_part.data).decode("ascii", errors="replace")
    if len(flags) != 2 or len(shape) < 2 or min(shape) < 0:
        raise _DamageError("flags or dimensions make no sense")
    as_type = MATLAB_CLASSES.get(int(flags[0]) & 0xFF)
    if as_type is None or int(flags[0]) & COMPLEX:
        return name, None
    return name, _array(next(parts), shape, np.dtype(as_type), order)


def _parts(data: memoryview, order: str) -> Iterator[_Element]:
    offset = 0
    while True:
        part = _element(data, offset, order)
        yield part
        offset = part.end


def _numbers(part: _Element, kind: int, order: str, what: str) -> np.ndarray:
    if part.kind != kind or len(part.data) % 4:
        raise _DamageError(f"type {part.kind} of {len(part.data)} bytes where its {what} belong")
    return np.frombuffer(part.data, f"{order}{STORED_TYPES[kind]}")


def _array(part: _Element, shape: tuple[int, ...], as_type: np.dtype, order: str) -> np.ndarray:
    if part.kind not in STORED_TYPES:
        raise _DamageError(f"type {part.kind} where its numbers belong")
    stored = np.dtype(f"{order}{STORED_TYPES[part.kind]}")
    if len(part.data) != math.prod(shape) * stored.itemsize:
        raise _DamageError(f"{len(part.data)} bytes of {stored} for the dimensions {'x'.join(map(str, shape))}")
    if as_type.kind != "f" and stored.kind == "f":
        raise _DamageError(f"{stored} values in an array of {as_type}")
    values = np.frombuffer(part.data, stored).reshape(shape, order="F")
    return values.astype(as_type, copy=False)
