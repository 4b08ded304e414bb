"""What every part of the program sees of a data set."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class DataSet:
    """Samples with class labels, flattened to one row a sample; values are as they lie in the files."""

    name: str
    x: np.ndarray  # [n, d] uint8 (images) or float64 (tables, float images)
    y: np.ndarray  # [n] int64 in 0..len(classes)-1
    classes: tuple[str, ...]
    channel: np.ndarray  # [d] int64: the channel of a feature; in a table each feature is its own
    top: float  # the value that means 1.0
    x_test: np.ndarray | None = None
    y_test: np.ndarray | None = None
    silos: dict[str, np.ndarray] | None = None  # own silos: client name -> rows of x
    validation: np.ndarray | None = None  # own silos: the rows of x that the server validates on
    features: tuple[str, ...] = ()  # names of a table's columns, in the order of x
    paper: bool = False  # one of the paper's sets: scenes take 2000 samples a client
