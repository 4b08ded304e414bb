"""Schemas as files: read from TOML or JSON, written as TOML that a person reads and edits."""

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedsac.config import MAX_CHARACTERS, toml_value
from fedsac.data.messages import cause
from fedsac.errors import FedsacError
from fedsac.models.table import VERSION, TableSchema

NAMES = ("schema.toml", "schema.json")  # in a folder of silos, or in a federation's
_BARE = re.compile(r"[A-Za-z0-9_-]+")
HEADER = """\
# What the columns of everybody's table mean. Read it, correct it, and agree on it: fedsac schema check says what does
# not fit. Numbers in it come from {fitted_on}.
"""


def read_schema(path: Path) -> TableSchema:
    """The schema in a .toml or .json file."""
    content = _content(path)
    try:
        return TableSchema.of_dict(content)
    except FedsacError as error:
        raise FedsacError(f"{path}: {error}") from None


def schema_in(folder: Path) -> Path | None:
    """The schema that lies in a folder, if there is one."""
    found = [folder / name for name in NAMES if (folder / name).is_file()]
    if len(found) > 1:
        raise FedsacError(f"{folder}: {' and '.join(NAMES)} lie there; keep one")
    return found[0] if found else None


def _content(path: Path) -> dict[str, Any]:
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(MAX_CHARACTERS + 1)
    except FileNotFoundError:
        raise FedsacError(f"{path}: there is no such file; fedsac schema propose writes one") from None
    except (OSError, UnicodeDecodeError) as error:
        raise FedsacError(f"{path}: cannot be read ({cause(error)})") from None
    if len(text) > MAX_CHARACTERS:
        raise FedsacError(f"{path}: longer than a schema can be; is this the file that was meant?")
    try:
        content = json.loads(text) if path.suffix.lower() == ".json" else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise FedsacError(f"{path}: not a file that can be read: {cause(error)}") from None
    if not isinstance(content, dict):
        raise FedsacError(f"{path}: it is no schema; fedsac schema propose writes one")
    return content


def as_toml(schema: TableSchema, fitted_on: str, notes: Mapping[str, str]) -> str:
    """A schema as a file. `fitted_on` names the data behind its numbers; `notes` are said beside the columns."""
    plain = schema.as_dict()
    lines = [HEADER.format(fitted_on=fitted_on), f"format_version = {VERSION}"]
    lines.append(f"label = {toml_value(schema.label)}")
    lines.append(f"classes = {toml_value(schema.classes)}  # in this order")
    lines.append(f"missing = {toml_value(schema.missing)}  # spellings of a missing value, beside an empty cell")
    lines += _listed("drop", schema.drop, notes)
    lines += ["", "[aliases]  # other spellings of the classes, in any silo", *_pairs(schema.aliases)]
    for name, about in plain["columns"].items():
        note = f"  # {notes[name]}" if name in notes else ""
        lines += ["", f"[columns.{_key(name)}]{note}", *(f"{key} = {_value(value)}" for key, value in about.items())]
    for name, own in schema.silos.items():
        for part in ("columns", "factors", "labels"):
            if mended := getattr(own, part):
                lines += ["", f"[silos.{_key(name)}.{part}]", *_pairs(mended)]
    return "\n".join(lines) + "\n"


def _listed(key: str, names: tuple[str, ...], notes: Mapping[str, str]) -> list[str]:
    if not names:
        return [f"{key} = []  # columns that are left out"]
    rows = [f"    {toml_value(name)},  # {notes.get(name, 'left out')}" for name in names]
    return [f"{key} = [", *rows, "]"]


def _pairs(values: Mapping[str, Any]) -> list[str]:
    return [f"{_key(name)} = {_value(value)}" for name, value in values.items()]


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else toml_value(name)


def _value(value: Any) -> str:
    return toml_value(tuple(value) if isinstance(value, list) else value)
