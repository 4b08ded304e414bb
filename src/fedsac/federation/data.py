"""The data of sites and coordinator: reading it from a file or function, and checking that all have one schema."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedsac.data.catalogue import is_function
from fedsac.data.dataset import DataSet
from fedsac.data.files.functions import read_function
from fedsac.data.files.labels import class_names, encode
from fedsac.data.files.reading import read_table
from fedsac.data.files.tables import SUFFIXES, NoLabelError, Table, aligned
from fedsac.data.messages import some
from fedsac.data.split import Split, split
from fedsac.doors import DATA
from fedsac.errors import FedsacError
from fedsac.federation.folder import Federation


@dataclass(frozen=True)
class Schema:
    """What the samples of all sites and of the coordinator must have in common. `dtype` is uint8 (images) or float64;
    `width` is the number of features; `top` is as in `DataSet`."""

    features: tuple[str, ...]
    width: int
    channels: int
    dtype: str
    top: float
    classes: tuple[str, ...]

    def description(self) -> str:
        names = f" ({some(self.features)})" if self.features else ""
        return (
            f"{self.width} features{names} of {self.dtype} in {self.channels} channel(s), "
            f"{len(self.classes)} classes ({some(self.classes)})"
        )

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_dict(cls, content: dict[str, Any]) -> "Schema":
        return cls(**content | {"features": tuple(content["features"]), "classes": tuple(content["classes"])})


def read_data(named: str, folder: Path, label: str) -> Table:
    """A table from a file (relative to `folder`) or from module:function, which returns samples x and labels y."""
    if Path(named).suffix.lower() in SUFFIXES:
        try:
            return read_table(folder / named, label, require_label=True)
        except NoLabelError as error:
            toml = next(name for name in ("site.toml", "federation.toml") if (folder / name).exists())
            raise FedsacError(f"{error.what}; write the one as label in {folder / toml}") from None
    if not is_function(named):
        raise FedsacError(
            f"data {named!r} is neither a {', '.join(SUFFIXES)} file nor module:function; name one in the .toml file"
        )
    return read_function(DATA, named)[0]


def schema_of(table: Table, classes: tuple[str, ...]) -> Schema:
    channels = len(set(table.channel.tolist()))
    return Schema(table.features, table.x.shape[1], channels, str(table.x.dtype), table.top, classes)


def site_data(table: Table, schema: Schema, channel: np.ndarray, where: str) -> DataSet:
    """A site's samples with features and classes in the federation's order; an error names both schemas if they
    differ."""
    assert table.labels is not None
    like = Table(np.empty((0, schema.width), schema.dtype), None, schema.features, channel, schema.top)
    try:
        table = aligned(table, where, like, "the federation")
        y = encode(table.labels or [], schema.classes, where, "the federation's classes")
    except FedsacError as error:
        own = schema_of(table, tuple(sorted(set(table.labels or []))))
        raise FedsacError(
            f"schemas do not agree: {error}. The site has {own.description()}; "
            f"the federation has {schema.description()}"
        ) from None
    return DataSet(where, table.x, y, schema.classes, channel, schema.top, features=schema.features, image=table.image)


def coordinator_split(federation: Federation) -> Split:
    """The coordinator's validation and test data. The validation data determines the features, and the classes too
    unless federation.toml names them."""
    f = federation
    table = read_data(f.validation, f.path, f.label)
    classes = f.classes or class_names(table.labels or [], f.validation)
    x_test = y_test = None
    if f.test:
        test = aligned(read_data(f.test, f.path, f.label), f.test, table, f.validation)
        x_test, y_test = test.x, encode(test.labels or [], classes, f.test, "the validation data")
    data = DataSet(
        name=f.path.name,
        x=table.x,
        y=encode(table.labels or [], classes, f.validation, "the classes named"),
        classes=classes,
        channel=table.channel,
        top=table.top,
        x_test=x_test,
        y_test=y_test,
        silos={},
        validation=np.arange(len(table.x)),
        features=table.features,
        image=table.image,
    )
    return split(data, "silos", 0, None, f.config.seed)
