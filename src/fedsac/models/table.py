"""What the columns of a table mean and how they become a network's inputs. Every model that was trained on such a table
carries this, as plain JSON values: whoever has the model can use it on rows as they stand in the files."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from math import isfinite
from typing import Any

import numpy as np

from fedsac.errors import FedsacError

NUMBER, CATEGORY, ORDERED, DATE = "number", "category", "ordered", "date"
TYPES = (NUMBER, CATEGORY, ORDERED, DATE)
VERSION = 1  # of a schema
OTHER = -1.0  # the number of a category that the schema does not name
SECONDS_A_DAY = 86400.0


@dataclass(frozen=True)
class Column:
    """One column. `fill` stands in for a missing value (None: a missing value is refused): a number, a category, or a
    date as 2024-05-31. `range` is where nearly all values of a number lie, in its `unit`. `others`: categories that are
    not named are let through, and are none of those that are. `format` is a date's, as strptime has it."""

    name: str
    type: str
    fill: float | str | None = None
    range: tuple[float, float] | None = None
    unit: str = ""
    categories: tuple[str, ...] = ()
    others: bool = False
    format: str = ""

    def __post_init__(self) -> None:
        if self.type not in TYPES:
            raise FedsacError(
                f"column {self.name!r}: type {self.type!r} is none; write {', '.join(TYPES)}, or name it in drop"
            )
        if (self.type in (CATEGORY, ORDERED)) != bool(self.categories) or len(set(self.categories)) < len(
            self.categories
        ):
            raise FedsacError(f"column {self.name!r}: a category or ordered column has categories, each once")
        if self.others and self.type != CATEGORY:
            raise FedsacError(f"column {self.name!r}: others is for a category; name all values of any other column")
        if (self.type == DATE) != bool(self.format):
            raise FedsacError(f"column {self.name!r}: a date has a format, as in %Y-%m-%d, and nothing else has one")
        if self.range is not None and (self.type != NUMBER or not self.range[0] <= self.range[1]):
            raise FedsacError(f"column {self.name!r}: a range is a number's, from low to high, as in [0.5, 2.0]")
        if self.fill is not None:
            _ = self.fill_number

    @property
    def fill_number(self) -> float:
        """What a missing value is replaced by, as a number."""
        try:
            if self.type == NUMBER and not isinstance(self.fill, str | None):
                return float(self.fill)
            if self.type in (CATEGORY, ORDERED):
                return float(self.categories.index(str(self.fill)))
            if self.type == DATE:
                return days(datetime.fromisoformat(str(self.fill)))
        except ValueError:
            pass
        raise FedsacError(f"column {self.name!r}: fill {self.fill!r} is no {self.type} of this column")

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the inputs that this column becomes: one for each category, else one.

        >>> Column("sex", "category", categories=("F", "M")).features
        ('sex=F', 'sex=M')
        """
        if self.type == CATEGORY:
            return tuple(f"{self.name}={category}" for category in self.categories)
        return (self.name,)

    def inputs(self, values: np.ndarray) -> np.ndarray:
        """Inputs [n, features] of values [n]: numbers, dates as days since 1970, categories as their numbers (`OTHER`:
        none of these); NaN is missing.

        >>> Column("sex", "category", fill="M", categories=("F", "M")).inputs(np.array([0, np.nan])).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
        """
        missing = np.isnan(values)
        whole = np.where(missing, self.fill_number, values) if missing.any() else values
        if self.type == CATEGORY:
            whole = whole[:, None] == np.arange(len(self.categories))
        return whole.reshape(len(values), -1).astype(np.float64)


@dataclass(frozen=True)
class Corrections:
    """What is put right in one silo before anything else: `columns` that it calls by other names, `factors` that bring
    its units to the schema's, `labels` that it spells in its own way."""

    columns: dict[str, str] = field(default_factory=dict)
    factors: dict[str, float] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TableSchema:
    """What everybody's table has: the label's column and its classes in their order, what each column is, how missing
    values are spelled, what is left out. `aliases` are other spellings of classes, the same in every silo; `silos`
    what is corrected in one of them."""

    label: str
    classes: tuple[str, ...]
    columns: tuple[Column, ...]
    missing: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    aliases: dict[str, str] = field(default_factory=dict)
    silos: dict[str, Corrections] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        if not names or len(set(names)) < len(names) or self.label in names or set(names) & set(self.drop):
            raise FedsacError("a schema has columns, each once; the label's column and those in drop are none of them")
        if len(self.classes) < 2 or len(set(self.classes)) < len(self.classes):
            raise FedsacError(f"a schema has two classes at least, each once, not {list(self.classes)}")
        if len(set(self.features)) < len(self.features):
            raise FedsacError(
                "two columns of the schema become inputs of one name (a=b is category b of a); rename one"
            )
        for where, labels in (("aliases", self.aliases), *((f"silo {n}", c.labels) for n, c in self.silos.items())):
            if unknown := [name for name in labels.values() if name not in self.classes]:
                raise FedsacError(f"{where}: {unknown[0]!r} is none of the classes {list(self.classes)}")
        for name, own in self.silos.items():
            if unknown := [c for c in (*own.columns.values(), *own.factors) if c not in (*names, self.label)]:
                raise FedsacError(f"silo {name}: {unknown[0]!r} is no column of the schema")
            if bad := [f for f in own.factors.values() if not isfinite(f) or f == 0]:
                raise FedsacError(f"silo {name}: a factor of {bad[0]} would leave nothing of the values")

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the inputs."""
        return tuple(name for column in self.columns for name in column.features)

    @property
    def sha256(self) -> str:
        """The hash of what everybody agrees on: all but the silos' own corrections."""
        text = json.dumps(self.without_silos().as_dict(), sort_keys=True, ensure_ascii=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def without_silos(self, but: str | None = None) -> "TableSchema":
        """The schema without the silos' corrections, `but` those of one."""
        return replace(self, silos={name: own for name, own in self.silos.items() if name == but})

    def inputs(self, values: Mapping[str, np.ndarray]) -> np.ndarray:
        """The inputs [n, features] of columns by name, as `Column.inputs` takes them."""
        return np.ascontiguousarray(np.concatenate([c.inputs(values[c.name]) for c in self.columns], 1))

    def as_dict(self) -> dict[str, Any]:
        """As plain JSON values, with nothing in it that is a column's default."""
        plain = asdict(self)
        columns = {c.pop("name"): {k: v for k, v in c.items() if not _is_default(v)} for c in plain["columns"]}
        as_lists = json.loads(json.dumps(plain | {"columns": columns}, allow_nan=False))
        return {"format_version": VERSION, **as_lists}

    @classmethod
    def of_dict(cls, content: Mapping[str, Any]) -> "TableSchema":
        """The inverse of `as_dict`; what is wrong with it is an error that names the place."""
        known = {"format_version", "label", "classes", "columns", "missing", "drop", "aliases", "silos"}
        if unknown := [key for key in content if key not in known]:
            raise FedsacError(f"a schema has no {unknown[0]!r}; it has {', '.join(sorted(known))}")
        version = content.get("format_version", VERSION)
        if type(version) is not int or version != VERSION:
            raise FedsacError(f"a schema of version {version!r} is not one that this fedsac understands ({VERSION})")
        if "label" not in content or "classes" not in content:
            raise FedsacError("a schema names the label's column (label) and its classes, in order (classes)")
        columns = _table(content.get("columns", {}), "columns")
        silos = _table(content.get("silos", {}), "silos")
        return cls(
            label=_text(content["label"], "label"),
            classes=_texts(content["classes"], "classes"),
            columns=tuple(_column(name, _table(about, f"column {name!r}")) for name, about in columns.items()),
            missing=_texts(content.get("missing", ()), "missing"),
            drop=_texts(content.get("drop", ()), "drop"),
            aliases=_spellings(content.get("aliases", {}), "aliases"),
            silos={name: _corrections(_table(about, f"silo {name}"), f"silo {name}") for name, about in silos.items()},
        )


def _is_default(value: Any) -> bool:
    return value is None or value is False or value in ("", ())


def _corrections(content: Mapping[str, Any], where: str) -> Corrections:
    """A silo's corrections from plain values."""
    if unknown := [key for key in content if key not in ("columns", "factors", "labels")]:
        raise FedsacError(f"{where}: {unknown[0]!r} is nothing to correct; there are columns, factors and labels")
    factors = _table(content.get("factors", {}), f"{where}: factors")
    return Corrections(
        columns=_spellings(content.get("columns", {}), f"{where}: columns"),
        factors={name: _number(value, f"{where}: factor of {name!r}") for name, value in factors.items()},
        labels=_spellings(content.get("labels", {}), f"{where}: labels"),
    )


def days(moment: datetime) -> float:
    """Days since 1970 of a date, with the time of day as a fraction.

    >>> days(datetime(1970, 1, 2, 12))
    1.5
    """
    return moment.replace(tzinfo=UTC).timestamp() / SECONDS_A_DAY


def _column(name: str, about: Mapping[str, Any]) -> Column:
    where = f"column {name!r}"
    known = ("type", "fill", "range", "unit", "categories", "others", "format")
    if unknown := [key for key in about if key not in known]:
        raise FedsacError(f"{where}: a column has no {unknown[0]!r}; it has {', '.join(known)}")
    fill, wide = about.get("fill"), about.get("range")
    if wide is not None and (not isinstance(wide, list | tuple) or len(wide) != 2):
        raise FedsacError(f"{where}: a range is two numbers, from low to high, as in [0.5, 2.0]")
    if not isinstance(about.get("others", False), bool):
        raise FedsacError(f"{where}: others is true or false")
    return Column(
        name=name,
        type=_text(about.get("type", ""), f"{where}: type"),
        fill=fill if isinstance(fill, str | None) else _number(fill, f"{where}: fill"),
        range=None if wide is None else (_number(wide[0], f"{where}: range"), _number(wide[1], f"{where}: range")),
        unit=_text(about.get("unit", ""), f"{where}: unit"),
        categories=_texts(about.get("categories", ()), f"{where}: categories"),
        others=about.get("others", False),
        format=_text(about.get("format", ""), f"{where}: format"),
    )


def _table(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise FedsacError(f"{where} must be a table of names with values, not {str(value)[:60]!r}")
    return value


def _spellings(value: Any, where: str) -> dict[str, str]:
    return {name: _text(text, f"{where}: {name!r}") for name, text in _table(value, where).items()}


def _texts(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise FedsacError(f"{where} must be a list of texts, not {str(value)[:60]!r}")
    return tuple(_text(text, where) for text in value)


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise FedsacError(f"{where} must be text in quotes, not {str(value)[:60]!r}")
    return value


def _number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e300:
        raise FedsacError(f"{where} must be a finite number, not {str(value)[:60]!r}")
    return float(value)
