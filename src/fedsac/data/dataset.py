"""A data set, whatever it was read from."""

from dataclasses import dataclass

import numpy as np

from fedsac.models.table import TableSchema


@dataclass(frozen=True)
class DataSet:
    """Samples with class labels, one flattened row per sample; values as in the files, not yet normalised."""

    name: str
    x: np.ndarray  # [n, d] uint8 (images) or float64 (tables, float images)
    y: np.ndarray  # [n] int64 in 0..len(classes)-1
    classes: tuple[str, ...]
    channel: np.ndarray  # [d] int64: the image channel each feature belongs to; in a table each is a channel of its own
    top: float  # values are divided by this before normalisation: 255 for 8-bit images, 1 for a table
    x_test: np.ndarray | None = None
    y_test: np.ndarray | None = None
    silos: dict[str, np.ndarray] | None = None  # a folder of silos: client name -> its rows of x
    validation: np.ndarray | None = None  # a folder of silos: the server's validation rows of x
    features: tuple[str, ...] = ()  # names of a table's columns, in the order of x
    image: tuple[int, int, int] | None = None  # channels, height and width of what a row of x is; None: no image
    table: TableSchema | None = None  # what a table's columns mean, if a schema says so; x is made by it
    paper: bool = False  # one of the paper's data sets: POW and CLA then take 2000 samples per client

    @property
    def channels_last(self) -> bool:
        """Whether an image is stored pixel by pixel, each with all its channels, and not channel by channel."""
        return self.image is not None and self.image[0] > 1 and int(self.channel[1]) != int(self.channel[0])
