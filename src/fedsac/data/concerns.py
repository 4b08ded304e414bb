"""What looks wrong with tables that can be read all the same: said before training, with the silo's name and the
evidence, and left to people to decide."""

from collections import defaultdict

import numpy as np

from fedsac.data.dataset import DataSet
from fedsac.data.evidence import LEAST_ROWS, MAX_FEATURES, Linear, decades_off, is_identifier
from fedsac.data.messages import shown, some
from fedsac.models.table import NUMBER

SAME_SHARE = 0.99  # of a column's values that are alike, for it to be called near-constant
SIGMAS = 3.0  # below chance, and above it on held-out samples of the server's, before labels are called swapped
MAX_ROWS = 2000  # of each silo that are looked at, but for identifiers
MOST = 0.9  # of the samples in one class, from where on accuracy hardly sees the others
VALIDATION = "validation"
ACCURACY = "accuracy"


def concerns_of(data: DataSet, metric: str | None = None) -> tuple[str, ...]:
    """What looks wrong with a table, or with a folder of silos that are tables, to be scored by this metric; nothing is
    looked for in images, nor in what has as many columns as images have."""
    if data.image is not None or data.x.dtype == np.uint8 or data.x.shape[1] > MAX_FEATURES:
        return ()
    columns, whole = _numbers(data), _parts(data)
    parts = {name: _few(rows) for name, rows in whole.items()}
    with np.errstate(all="ignore"):  # numbers of any magnitude are looked at
        found = _identifiers(data, columns, whole) + _near_constant(data, columns, parts)
        if data.silos is not None:
            found += _label_clashes(data) + _units(data, columns, parts) + _flipped(data, parts)
        else:
            found += _spellings(data)
        if metric == ACCURACY:
            found += _unequal_classes(data, whole)
    return tuple(found)


def _parts(data: DataSet) -> dict[str, np.ndarray]:
    """Rows by silo, the server's first; of a single file, all of them."""
    if data.silos is None or data.validation is None:
        return {data.name: np.arange(len(data.y))}
    return {VALIDATION: data.validation, **data.silos}


def _few(rows: np.ndarray) -> np.ndarray:
    return rows[:: max(1, len(rows) // MAX_ROWS)]


def _numbers(data: DataSet) -> dict[str, int]:
    """Columns of numbers by name, and where they stand."""
    names = data.features or tuple(f"feature {i}" for i in range(data.x.shape[1]))
    kept = None if data.table is None else {c.name for c in data.table.columns if c.type == NUMBER}
    return {name: i for i, name in enumerate(names) if kept is None or name in kept}


def _identifiers(data: DataSet, columns: dict[str, int], parts: dict[str, np.ndarray]) -> list[str]:
    where, rows = next(iter(parts.items()))
    found = [name for name, i in columns.items() if is_identifier(name, data.x[rows, i])]
    if not found:
        return []
    return [
        f"{where}: column {some(found)} has {len(rows)} different whole numbers in {len(rows)} rows: an identifier? A "
        "model would learn it by heart; name it in drop in a schema (fedsac schema propose)"
    ]


def _near_constant(data: DataSet, columns: dict[str, int], parts: dict[str, np.ndarray]) -> list[str]:
    lines, everywhere = [], set()
    for where, rows in parts.items():
        if len(rows) < LEAST_ROWS:
            continue
        found = {name: _commonest(data.x[rows, i]) for name, i in columns.items() if name not in everywhere}
        same = {name: value for name, (value, share) in found.items() if share >= SAME_SHARE}
        if where == next(iter(parts)):
            everywhere = set(same)
        if same:
            name, value = next(iter(same.items()))
            lines.append(
                f"{where}: column {some(list(same))} hardly varies ({shown(name)} is {value:g} in {found[name][1]:.0%} "
                f"of {len(rows)} rows): left empty, or filled in by a program?"
            )
    return lines


def _commonest(values: np.ndarray) -> tuple[float, float]:
    """The commonest value, and the share of rows that have it."""
    different, counts = np.unique(values, return_counts=True)
    return float(different[counts.argmax()]), float(counts.max() / len(values))


def _spellings(data: DataSet) -> list[str]:
    """Classes that are probably one, written in several ways."""
    alike: dict[str, list[str]] = defaultdict(list)
    for label in data.classes:
        alike[" ".join(str(label).casefold().split())].append(label)
    return [
        f"labels {some(own)} differ in case or spaces alone: one class? A schema says so (fedsac schema propose)"
        for own in alike.values()
        if len(own) > 1
    ]


def _label_clashes(data: DataSet) -> list[str]:
    """Labels of a silo that the server's samples do not have."""
    assert data.silos is not None
    known = set(data.y[data.validation].tolist())
    lines = []
    for name, rows in data.silos.items():
        counts = np.bincount(data.y[rows], minlength=len(data.classes))
        foreign = [k for k in np.flatnonzero(counts).tolist() if k not in known]
        if foreign:
            own, others = [data.classes[k] for k in foreign], [data.classes[k] for k in sorted(known)]
            lines.append(
                f"{name}: labels {some(own)} ({counts[foreign].sum()} of {len(rows)} rows) do not occur in validation, "
                f"which has {some(others)}: another spelling? A schema says what they mean (fedsac schema propose)"
            )
    return lines


def _units(data: DataSet, columns: dict[str, int], parts: dict[str, np.ndarray]) -> list[str]:
    """Columns of a silo that are a power of ten off those of the server."""
    lines = []
    for silo in data.silos or {}:
        off: dict[int, list[str]] = {}
        for name, i in columns.items():
            decades = decades_off(data.x[parts[silo], i], data.x[parts[VALIDATION], i])
            if decades is not None:
                off.setdefault(decades, []).append(name)
        for decades, names in off.items():
            own, others = (float(np.median(data.x[parts[p], columns[names[0]]])) for p in (silo, VALIDATION))
            lines.append(
                f"{silo}: column {some(names)} is {10.0**decades:g} times what it is in validation (medians of "
                f"{shown(names[0])}: {own:.4g} and {others:.4g}): other units? A schema corrects them (fedsac schema "
                "propose)"
            )
    return lines


def _flipped(data: DataSet, parts: dict[str, np.ndarray]) -> list[str]:
    """Silos on which a model of the server's samples is right far less often than chance, though it is right on
    samples of the server's that it has not seen."""
    server, classes = parts[VALIDATION], len(data.classes)
    model, halves = Linear.fit(data.x[server], data.y[server], classes), (server[::2], server[1::2])
    trials = [(Linear.fit(data.x[one], data.y[one], classes), other) for one, other in (halves, halves[::-1])]
    if model is None or any(trial is None for trial, _ in trials):
        return []
    held_out = [_against_chance(trial, data, rows) for trial, rows in trials if trial is not None]
    if min(sigmas for _, _, sigmas in held_out) < SIGMAS:
        return []
    lines = []
    for name in (name for name in data.silos or {} if len(parts[name]) >= LEAST_ROWS):
        right, chance, sigmas = _against_chance(model, data, parts[name])
        if sigmas < -SIGMAS:
            proved = float(np.mean([share for share, _, _ in held_out]))
            lines.append(
                f"{name}: a linear model of validation is right in {right:.0%} of its rows, where guessing would be in "
                f"{chance:.0%}, and in {proved:.0%} of validation rows held out from it: are its labels swapped? "
                f"If so, mend them, or name them the other way round in a schema, under [silos.{name}.labels]"
            )
    return lines


def _unequal_classes(data: DataSet, parts: dict[str, np.ndarray]) -> list[str]:
    """One class that nearly all of the server's samples have, so that naming it always is hard to tell from skill."""
    where, rows = next(iter(parts.items()))
    k, share = _commonest(data.y[rows])
    if not MOST <= share < 1:
        return []
    return [
        f"{where}: label {shown(data.classes[int(k)])} has {share:.1%} of {len(rows)} rows, the accuracy of a model "
        "that says nothing else; --metric balanced-accuracy, macro-f1 or auc sees the others, and --class-weights "
        "balanced trains for them"
    ]


def _against_chance(model: Linear, data: DataSet, rows: np.ndarray) -> tuple[float, float, float]:
    """The share of rows that a model is right in, that which would be right by chance, and the difference in standard
    errors."""
    seen, y = model.predict(data.x[rows]), data.y[rows]
    shares = [np.bincount(values, minlength=len(data.classes)) / len(rows) for values in (seen, y)]
    right, chance = float((seen == y).mean()), float(shares[0] @ shares[1])
    error = max(np.sqrt(chance * (1 - chance) / len(rows)), 1e-9)
    return right, chance, (right - chance) / float(error)
