"""What the package imports is what pyproject.toml declares, file by file and extra by extra."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "fedsac"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

EXTRAS = {
    "federation/": "flower",
    "cli/federation.py": "flower",
    "data/files/parquetfile.py": "parquet",
    "models/onnx.py": "onnx",
    "models/onnx_table.py": "onnx",
    "runs/loggers/tensorboard.py": "tensorboard",
    "runs/loggers/mlflow.py": "mlflow",
    "runs/showing.py": "notebook",
    "runs/workers.py": "ray",
}
"""Which files may import what an extra brings: a file, or a folder and all below it."""

DISTRIBUTIONS = {
    **{"sklearn": "scikit-learn", "google.protobuf": "protobuf", "mlflow": "mlflow-skinny"},
    **{"fpdf": "fpdf2", "fontTools": "fonttools"},
}
"""What is called otherwise where it is installed from."""

KERNELS = ("importance", "products", "training")
WITH_TORCH = {f"compute/cuda/kernels/{name}.py": {"triton"} for name in KERNELS}
"""Not declared on purpose: torch's CUDA builds bring the one version that fits them, its CPU builds none."""

THROUGH_OTHERS = {"sqlalchemy", "alembic", "uharfbuzz"}
"""Declared, not imported: MLflow and fpdf2 import them, and do not bring them."""


def imports(source: str) -> Iterator[str]:
    """Every module that a file imports, wherever in it: at the top, in a function, under TYPE_CHECKING."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            assert node.module is not None
            yield from (f"{node.module}.{name.name}" for name in node.names)


def distribution(module: str) -> str | None:
    """What has to be installed for a module; None for Python's own and ours."""
    top = module.split(".")[0]
    if top == "fedsac" or top in sys.stdlib_module_names:
        return None
    special = (name for start, name in DISTRIBUTIONS.items() if f"{module}.".startswith(f"{start}."))
    return next(special, top)


def needed(source: str) -> set[str]:
    return {name for module in imports(source) if (name := distribution(module)) is not None}


def declared(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=!~; ]", requirement)[0].lower() for requirement in requirements}


def allowed(file: str) -> set[str]:
    """The distributions that a file (as a path below the package) may import from."""
    extras = {extra for where, extra in EXTRAS.items() if file.startswith(where)}
    found = declared(PROJECT["dependencies"]) | WITH_TORCH.get(file, set())
    return found.union(*(declared(PROJECT["optional-dependencies"][extra]) for extra in extras))


def sources() -> dict[str, str]:
    return {p.relative_to(PACKAGE).as_posix(): p.read_text(encoding="utf-8") for p in sorted(PACKAGE.rglob("*.py"))}


def test_nothing_is_imported_that_is_not_declared():
    undeclared = {file: needed(source) - allowed(file) for file, source in sources().items()}
    assert {file: names for file, names in undeclared.items() if names} == {}


def test_nothing_is_declared_that_is_not_imported():
    used = set().union(*map(needed, sources().values()))
    extras = [PROJECT["optional-dependencies"][extra] for extra in set(EXTRAS.values())]
    assert set().union(*map(declared, [PROJECT["dependencies"], *extras])) - used == THROUGH_OTHERS


def test_the_files_named_here_are_there():
    assert [where for where in (*EXTRAS, *WITH_TORCH) if not (PACKAGE / where).exists()] == []


def test_one_file_reaches_into_flower():
    """What is not one of Flower's public packages may change with any version: one file to mend, and no other."""
    public = re.compile(r"flwr(\.(app|clientapp|serverapp|simulation)(\..+)?)?")
    inside = {
        file
        for file, source in sources().items()
        for module in imports(source)
        if module.split(".")[0] == "flwr" and not public.fullmatch(module)
    }
    assert inside == {"federation/flower_internals.py"}


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("import yaml", "yaml"),
        ("def f():\n    from yaml.nodes import Node", "yaml"),
        ("if TYPE_CHECKING:\n    import yaml.nodes as n", "yaml"),
        ("from sklearn.datasets import load_digits", "scikit-learn"),
        ("from google import protobuf", "protobuf"),
        ("from google.protobuf.message import DecodeError", "protobuf"),
        ("from google.cloud import storage", "google"),
    ],
)
def test_imports_are_found_wherever_they_are(line, name):
    assert needed(line) == {name}


def test_pythons_own_and_ours_need_nothing():
    assert needed("import os.path\nfrom fedsac.core import units\nfrom . import units") == set()
