"""Data from a function of the user's, named `module:function`, that returns arrays."""

from typing import Any

import numpy as np

from fedsac.data.files.labels import label_texts
from fedsac.data.files.npzfile import image_shape, samples
from fedsac.data.files.tables import Table
from fedsac.doors import Door
from fedsac.errors import FedsacError


def read_function(door: Door, named: str) -> tuple[Table, Table | None]:
    """Training and test samples (None without) from a function that returns x, y or x, y, x_test, y_test.

    The arrays are shaped as in an .npz file; labels are whole numbers or text.
    """
    returned = door.resolve(named)()
    if not isinstance(returned, tuple | list) or len(returned) not in (2, 4):
        raise FedsacError(f"{named} must return x and y, or x, y, x_test and y_test")
    table = _table(returned[0], returned[1], named, "")
    return table, _table(returned[2], returned[3], named, "_test") if len(returned) == 4 else None


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
    return Table(rows, labels, (), channel, top=255.0 if x.dtype == np.uint8 else 1.0, image=image_shape(x.shape))
