"""Tables with a schema: a file, a folder of silos, or DataFrames in memory, read by what their columns mean; and every
problem of such data, with or without a schema."""

from pathlib import Path
from typing import Any

from fedsac.data.dataset import DataSet
from fedsac.data.files.labels import class_names, encode
from fedsac.data.files.memory import in_memory
from fedsac.data.files.silos import TEST, VALIDATION, load_silos, silo_files
from fedsac.data.files.tables import Table
from fedsac.data.schema.files import read_schema, schema_in
from fedsac.data.schema.fitting import fit, fitted, known_names, plain_problems, read_fitted
from fedsac.data.schema.problems import Problem, ProblemsError
from fedsac.data.schema.raw import RawTable, of_frame, read_raw
from fedsac.errors import FedsacError
from fedsac.models.table import TableSchema

TABLES = (".csv", ".parquet")


def schema_for(data: str, schema: str | None) -> Path | None:
    """The schema of data that a config names: the file that is given, or the one in a folder of silos."""
    if schema is not None:
        return Path(schema)
    return schema_in(Path(data)) if Path(data).is_dir() else None


def load_file(path: Path, schema: TableSchema) -> DataSet:
    """The samples of one file, by a schema."""
    table = read_fitted(path, schema)
    assert table.labels is not None
    class_names(table.labels, str(path))  # raises where all are of one class
    y = encode(table.labels, schema.classes, str(path))
    return DataSet(
        path.stem, table.x, y, schema.classes, table.channel, table.top, features=table.features, table=schema
    )


def load_folder(folder: Path, schema: TableSchema) -> DataSet:
    """A folder of silos, by a schema; raises with all that does not fit, in any of them."""
    fits = {name: fit(read_raw(path, known_names(schema)), schema, name) for name, path in silo_files(folder).items()}
    if wrong := [problem for _, problems in fits.values() for problem in problems]:
        raise ProblemsError(wrong)
    tables = {name: table for name, (table, _) in fits.items() if table is not None}
    return load_silos(folder, schema.label, lambda path, name: tables[name], schema)


def load_memory(data: Any, label: str, schema: TableSchema | None) -> DataSet:
    """Data in memory: arrays, or DataFrames, which a schema may be for."""
    if schema is None:
        return in_memory(data, label)

    def read(frame: Any, where: str) -> Table:
        return fitted(of_frame(frame, where), schema, where)

    made = in_memory(data, schema.label, read, schema)
    if made.features != schema.features:
        raise FedsacError("a schema is for DataFrames, whose columns have names; leave it out, or give such")
    return made


def problems(data: str, label: str, schema: str | None) -> list[Problem] | None:
    """All that is wrong with a file or a folder of silos; None if it is no table with named columns."""
    path, named = Path(data), schema_for(data, schema)
    files = _files(path)
    if not files or any(file.suffix.lower() not in TABLES for file in files.values()):
        return None
    if named is not None:
        by = read_schema(named)
        raws = {name: read_raw(file, known_names(by)) for name, file in files.items()}
        return [problem for name, raw in raws.items() for problem in fit(raw, by, name if path.is_dir() else None)[1]]
    raws = {name: read_raw(file, (label,)) for name, file in files.items()}
    features = _common(raws, label) if len(raws) > 1 else None
    return [problem for raw in raws.values() for problem in plain_problems(raw, label, features)]


def _files(path: Path) -> dict[str, Path]:
    if path.is_dir():
        return silo_files(path)
    return {path.stem: path} if path.is_file() else {}


def _common(raws: dict[str, RawTable], label: str) -> list[str]:
    """The columns that most silos have."""
    names = dict.fromkeys(name for raw in raws.values() for name in raw.names if name != label)
    return [name for name in names if 2 * sum(name in raw.cells for raw in raws.values()) > len(raws)]


def proposal_tables(paths: list[Path], label: str) -> tuple[dict[str, RawTable], str]:
    """Tables by name, of files and of folders of silos, and which of them a schema is fitted on: `validation`, or the
    first. A test file is looked at by nobody."""
    files = table_files(paths)
    files.pop(TEST, None)
    if not files:
        raise FedsacError("a schema is proposed from the server's table, and not from test data; name that")
    validation = [name for name in files if name.lower() == VALIDATION]
    return {name: read_raw(file, (label,)) for name, file in files.items()}, (validation or list(files))[0]


def table_files(paths: list[Path]) -> dict[str, Path]:
    """Files by the names of their silos, of files and of folders of silos."""
    files: dict[str, Path] = {}
    for path in paths:
        found = _files(path)
        if not found:
            raise FedsacError(f"{path}: there is no such file or folder, or nothing in it")
        for name, file in found.items():
            if name in files:
                raise FedsacError(f"{files[name]} and {file} are both named {name}; rename one")
            files[name] = file
    return files
