"""Ranks with ties averaged, for the area under the ROC curve and Spearman's correlation."""

import numpy as np


def average_ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 1 to n, float64, of values [n] without NaN; equal values share the mean of their ranks.

    >>> average_ranks(np.array([.3, .1, .3, .7])).tolist()
    [2.5, 1.0, 2.5, 4.0]
    """
    _, which, ties = np.unique(values, return_inverse=True, return_counts=True)
    ranks: np.ndarray = (np.cumsum(ties) - (ties - 1) / 2)[which]
    return ranks
