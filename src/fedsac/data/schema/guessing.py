"""What a column probably is, from its cells: the beginning of a schema, for a person to correct.

Numbers are fitted on these cells with scikit-learn's imputers, and rounded. A schema is sent to every site, so it holds
nothing that few rows decide: quantiles instead of extremes, and no category that fewer than `LEAST_ROWS` rows have.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import floor, log10

import numpy as np

from fedsac.data.evidence import is_identifier
from fedsac.data.messages import shown, some
from fedsac.data.schema.cells import values_of
from fedsac.models.table import CATEGORY, DATE, NUMBER, SECONDS_A_DAY, Column

MISSING = ("NA", "N/A", "n/a", "na", "NaN", "nan", "NULL", "null", "?", "-", "--", ".")
FORMATS = (
    *("%Y-%m-%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d"),
    *("%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M"),
)
MAX_CATEGORIES = 30
LEAST_ROWS = 5  # that a category needs to be named, and that lie beyond each end of a range
ODD_SHARE, MAX_ODD = 0.2, 5  # of cells that are no numbers in a column of numbers, and how many spellings they have


@dataclass(frozen=True)
class Guess:
    """What a column is, or why it is better left out; `remark` is for the person who reads the schema; `odd` are cells
    of a number's column that seem to say that a value is missing."""

    column: Column | None
    remark: str = ""
    odd: tuple[str, ...] = ()


def guessed(name: str, cells: Sequence[str], comma: bool) -> Guess:
    """What a column with these cells probably is."""
    there = [cell for cell in cells if cell and cell not in MISSING]
    if len(set(there)) < 2:
        return Guess(None, "empty" if not there else f"every value is {shown(there[0])}")
    number, odd = _numbers(name, there, comma)
    if number is not None:
        if not odd and is_identifier(name, number):
            return Guess(None, f"{len(number)} different whole numbers in {len(number)} rows: an identifier")
        remark = f"{some(odd)} taken for missing" if odd else ""
        return Guess(_number_column(name, number), remark, odd)
    fitting = [one for one in FORMATS if not values_of(Column(name, DATE, format=one), there, (), False)[1]]
    if fitting:
        return _date(name, there, fitting)
    return _category(name, there, comma)


def _numbers(name: str, there: Sequence[str], comma: bool) -> tuple[np.ndarray | None, tuple[str, ...]]:
    """The numbers in the cells, and the few cells that are none; None if they are not few."""
    values, faults = values_of(Column(name, NUMBER), there, (), comma)
    odd = tuple(sorted({there[fault.row] for fault in faults}))
    if len(faults) > ODD_SHARE * len(there) or len(odd) > MAX_ODD:
        return None, ()
    return values[~np.isnan(values)], odd


def _number_column(name: str, values: np.ndarray) -> Column:
    from sklearn.impute import SimpleImputer

    share = min(max(0.01, LEAST_ROWS / len(values)), 0.25)
    low, high = (float(v) for v in np.quantile(values, (share, 1 - share)))
    median = float(SimpleImputer(strategy="median").fit(values[:, None]).statistics_[0])
    step = high - low or abs(median) or 1.0
    unit = 10.0 ** (floor(log10(step)) - 2)
    # Where nearly all values are alike, there is no range that would tell anything of others.
    wide = (_rounded(low, unit), _rounded(high, unit)) if low < high else None
    return Column(name, NUMBER, _rounded(median, unit), wide)


def _rounded(value: float, unit: float) -> float:
    """To a multiple of a power of ten."""
    return float(f"{round(value / unit) * unit:.12g}")


def _date(name: str, there: Sequence[str], fitting: list[str]) -> Guess:
    from sklearn.impute import SimpleImputer

    values, _ = values_of(Column(name, DATE, format=fitting[0]), there, (), False)
    middle = float(SimpleImputer(strategy="median").fit(values[:, None]).statistics_[0])
    fill = datetime.fromtimestamp(floor(middle) * SECONDS_A_DAY, UTC).date().isoformat()
    doubt = f"may be {' or '.join(fitting)}: look" if len(fitting) > 1 else ""
    return Guess(Column(name, DATE, fill, format=fitting[0]), doubt)


def _category(name: str, there: Sequence[str], comma: bool) -> Guess:
    from sklearn.impute import SimpleImputer

    counts = Counter(there)
    named = tuple(sorted(text for text, count in counts.items() if count >= LEAST_ROWS))
    if len(counts) > MAX_CATEGORIES or 2 * len(counts) > len(there) or not named:
        what = (
            f"text: {len(counts)} different values in {len(there)} rows; make it a number or a few categories to use it"
        )
        return Guess(None, what)
    imputer = SimpleImputer(strategy="most_frequent", missing_values="")
    fill = str(imputer.fit(np.array(there, dtype=object)[:, None]).statistics_[0])
    rare = len(counts) - len(named)
    remark = f"{rare} more with fewer than {LEAST_ROWS} rows are not named" if rare else ""
    return Guess(Column(name, CATEGORY, fill, categories=named, others=rare > 0), remark)
