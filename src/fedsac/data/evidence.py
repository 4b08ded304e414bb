"""What numbers say about a table: units that differ, columns that identify, and a plain linear classifier to tell
whether labels mean what they mean elsewhere."""

import re
from dataclasses import dataclass

import numpy as np

DECADES = (-3, -2, -1, 1, 2, 3)  # powers of ten by which units differ
NEAR, ROUGHLY = 0.25, 0.45  # decades that one of middle and spread, and then the other, may lie away from that
LEAST_ROWS = 20  # to judge anything by
RIDGE = 0.1  # of the classifier, as a share of the number of samples
MAX_FEATURES = 2000  # of a table
ID_NAME = re.compile(r"(^|[\W_])(id|uid|uuid|mrn|nr|key|index|identifier)($|[\W_])|(Id|ID|Nr)$", re.ASCII)


def decades_off(values: np.ndarray, reference: np.ndarray) -> int | None:
    """By which power of ten values are larger than the reference, middle and spread alike; None: by none.

    >>> rng = np.random.default_rng(0)
    >>> decades_off(1000 * rng.normal(5, 1, 50), rng.normal(5, 1, 50))
    3
    """
    if min(len(values), len(reference)) < LEAST_ROWS:
        return None
    (low, middle, high), (ref_low, ref_middle, ref_high) = (
        np.quantile(v, (0.25, 0.5, 0.75)) for v in (values, reference)
    )
    spread, ref_spread = high - low, ref_high - ref_low
    if spread <= 0 or ref_spread <= 0:
        return None
    by_spread = np.log10(spread / ref_spread)
    if abs(ref_middle) <= ref_spread / 2:  # a middle near zero, for its spread, tells nothing of units
        return next((decade for decade in DECADES if abs(by_spread - decade) < NEAR), None)
    if middle * ref_middle <= 0:
        return None
    by_middle = np.log10(middle / ref_middle)
    fitting = (d for d in DECADES if abs(by_middle - d) < NEAR and abs(by_spread - d) < ROUGHLY)
    return next(fitting, None)


def is_identifier(name: str, values: np.ndarray) -> bool:
    """Whether a column numbers the rows: whole numbers, no two alike, and consecutive but for gaps, rising row by row,
    or by a name as identifiers have it.

    >>> is_identifier("patient_id", np.arange(30) * 977.0), is_identifier("dose", np.arange(30) / 7)
    (True, False)
    """
    whole = bool(np.isfinite(values).all() and (values == np.floor(values)).all())
    if len(values) < LEAST_ROWS or not whole or len(np.unique(values)) < len(values):
        return False
    dense = float(np.ptp(values)) < 2 * len(values)
    return dense or bool((np.diff(values) > 0).all()) or ID_NAME.search(name) is not None


@dataclass(frozen=True)
class Linear:
    """A linear classifier (ridge regression on classes), good enough to see what labels mean."""

    mean: np.ndarray
    deviation: np.ndarray
    weights: np.ndarray
    shares: np.ndarray  # of the classes

    @classmethod
    def fit(cls, x: np.ndarray, y: np.ndarray, classes: int) -> "Linear | None":
        """None where there is nothing to learn from: few samples, one class, or numbers beyond all measure."""
        if len(x) < LEAST_ROWS or len(np.unique(y)) < 2 or x.shape[1] > MAX_FEATURES:
            return None
        mean, deviation = x.mean(0), x.std(0)
        deviation[deviation <= 1e-12 * np.abs(mean)] = 1
        z, shares = (x - mean) / deviation, np.bincount(y, minlength=classes) / len(y)
        gram = z.T @ z + RIDGE * len(x) * np.eye(x.shape[1])
        if not np.isfinite(gram).all():
            return None
        weights = np.linalg.solve(gram, z.T @ (np.eye(classes)[y] - shares))
        return cls(mean, deviation, weights, shares)

    def predict(self, x: np.ndarray) -> np.ndarray:
        """The most likely classes [n], all classes being as likely beforehand."""
        scores: np.ndarray = ((x - self.mean) / self.deviation) @ self.weights
        # Without the shares of the classes: the question is what tells them apart, not how frequent they are.
        present = self.shares > 0
        best: np.ndarray = np.flatnonzero(present)[(scores[:, present] / np.sqrt(self.shares[present])).argmax(1)]
        return best
