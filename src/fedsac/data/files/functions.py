"""Data from a function of one's own: `module:function`, which returns arrays."""

from typing import Any

import numpy as np

from fedsac.data.files.labels import label_texts
from fedsac.data.files.npzfile import samples
from fedsac.data.files.tables import Table
from fedsac.doors import Door
from fedsac.errors import FedsacError


def read_function(door: Door, named: str) -> tuple[Table, Table | None]:
    """What the function returns: x and y, or x, y, x_test and y_test; samples as in an .npz file, any labels."""
    found = door.resolve(named)()
    if not isinstance(found, tuple | list) or len(found) not in (2, 4):
        raise FedsacError(f"{named} must return x and y, or x, y, x_test and y_test")
    table = _table(found[0], found[1], named, "")
    return table, _table(found[2], found[3], named, "_test") if len(found) == 4 else None


def _table(x: Any, y: Any, named: str, part: str) -> Table:
    try:
        x, y = np.asarray(x), np.asarray(y)
    except (TypeError, ValueError) as error:
        raise FedsacError(f"{named}: x{part} or y{part} is no array ({error})") from None
    rows, channel = samples(x, f"{named}: x{part}")
    if y.ndim != 1:
        raise FedsacError(f"{named}: y{part} has {y.ndim} dimensions; return one label a sample")
    labels = label_texts(y, f"{named}: y{part}")
    if len(labels) != len(rows):
        raise FedsacError(f"{named}: {len(labels)} labels for {len(rows)} samples")
    return Table(rows, labels, (), channel, top=255.0 if x.dtype == np.uint8 else 1.0)
