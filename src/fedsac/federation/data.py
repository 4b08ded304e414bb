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
from fedsac.data.schema.files import NAMES, read_schema, schema_in
from fedsac.data.schema.fitting import read_fitted
from fedsac.data.schema.problems import ProblemsError
from fedsac.data.split import Split, split
from fedsac.doors import DATA
from fedsac.errors import FedsacError
from fedsac.federation.folder import Federation, write_json
from fedsac.models.table import TableSchema


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


def read_raw_data(named: str, folder: Path, table: TableSchema, silo: str) -> Table:
    """A table from a file, read by what the federation's schema says of its columns, with the corrections of a silo."""
    if Path(named).suffix.lower() not in SUFFIXES:
        raise FedsacError(
            f"data {named!r}: the federation has a schema, which is for .csv and .parquet files; name one"
        )
    try:
        return read_fitted(folder / named, table, silo)
    except ProblemsError as error:
        raise FedsacError("; ".join(map(str, error.problems))) from None


def table_schema(folder: Path) -> TableSchema | None:
    """What the columns of everybody's tables mean: schema.toml or .json beside federation.toml or site.toml, if there
    is one. A site's copy may have corrections of its own, under [silos.SITE], which its hash leaves out."""
    path = schema_in(folder)
    return None if path is None else read_schema(path)


def agreed_table(folder: Path, agreed: TableSchema) -> TableSchema:
    """The federation's schema of tables at a site: its own copy, which must be the same but for the corrections; where
    there is none, it is kept for the operator to see."""
    own = table_schema(folder)
    if own is None:
        write_json(folder / NAMES[1], agreed.as_dict())
        return agreed
    if own.sha256 != agreed.sha256:
        raise FedsacError(
            f"{schema_in(folder)}: not the federation's schema ({own.sha256[:16]}... is its sha256, and "
            f"{agreed.sha256[:16]}... the federation's); bring that here, and write corrections into it anew"
        )
    return own


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
    f, by = federation, table_schema(federation.path)

    def read(named: str) -> Table:
        return read_data(named, f.path, f.label) if by is None else read_raw_data(named, f.path, by, "")

    table = read(f.validation)
    classes = f.classes or (class_names(table.labels or [], f.validation) if by is None else by.classes)
    if by is not None and classes != by.classes:
        raise FedsacError(f"{f.path}: federation.toml and the schema name different classes; leave those in one out")
    x_test = y_test = None
    if f.test:
        test = aligned(read(f.test), f.test, table, f.validation)
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
        table=None if by is None else by.without_silos(),
    )
    return split(data, "silos", 0, None, f.config.seed)
