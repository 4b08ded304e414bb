"""The numbers that the paper printed in its Tables 1 to 9, by our names for data sets, scenes and methods."""

import json
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from fedsac.errors import FedsacError

DATA = {"cifar10": "CIFAR-10", "svhn": "SVHN", "fashion-mnist": "Fashion-MNIST"}
METHODS = {
    "standalone": "Standalone",
    "fedavg": "FedAvg",
    "qffl": "q-FFL",
    "cffl": "CFFL",
    "cgsv": "CGSV",
    "fedave": "FedAVE",
    "fedsac-no-allocation": "w/o allocation",
    "fedsac-no-aggregation": "w/o aggregation",
    "fedsac": "FedSAC",
}


class Column(NamedTuple):
    """One experiment of a table: data set, number of clients, scene."""

    data: str
    clients: int
    scene: str

    def __str__(self) -> str:
        clients = "" if self.clients == 10 else f", {self.clients} clients"
        return f"{DATA[self.data]} {scene_name(self.scene)}{clients}"


class Printed(NamedTuple):
    """A printed number, with its standard deviation and, in Table 7, the number in brackets (the lowest reward)."""

    value: float
    std: float | None = None
    low: float | None = None


def scene_name(scene: str) -> str:
    """A scene as the paper writes it.

    >>> scene_name("dir:1.0"), scene_name("pow")
    ('DIR(1.0)', 'POW')
    """
    head, _, alpha = scene.partition(":")
    return f"{head.upper()}({alpha})" if alpha else head.upper()


def printed(table: str) -> dict[Column, dict[str, Printed]]:
    """The printed values of a table. Rows of Table 7 are named by beta, rows of Table 9 by setting.

    >>> printed("table1")["cifar10", 10, "pow"]["fedsac"]
    Printed(value=98.8, std=0.2, low=None)
    >>> printed("table7")["cifar10", 10, "dir:2.0"]["beta=5"]
    Printed(value=50.01, std=None, low=30.91)
    """
    if table not in TABLES:
        raise FedsacError(f"the paper has no {table!r}; there are {', '.join(TABLES)}")
    part = _read()[table]
    return {
        column: {
            row: Printed(values[position], *(_entry(part, key, row, position) for key in ("std", "low")))
            for row, values in part["value"].items()
        }
        for position, column in enumerate(TABLES[table])
    }


def standalone_later() -> dict[tuple[str, str], tuple[float, ...]]:
    """Standalone accuracies of ten clients that the authors published later, by data set and scene: fractions. Of the
    lists in FedRAC's published code, those of scenes in this paper.

    >>> max(standalone_later()["svhn", "cla"])
    0.591
    """
    lists = _read()["standalone_later"]
    return {(name.split()[0], name.split()[1]): tuple(values) for name, values in lists.items()}


def _entry(part: dict[str, Any], key: str, row: str, position: int) -> float | None:
    return part[key][row][position] if key in part else None


@cache
def _read() -> dict[str, Any]:
    read: dict[str, Any] = json.loads(resources.files("fedsac.paper").joinpath("printed.json").read_text("utf-8"))
    return read


# The columns of each table, in the paper's order.
TABLES: dict[str, tuple[Column, ...]] = {
    name: tuple(Column(data, clients, scene) for data, clients, scenes in part["columns"] for scene in scenes)
    for name, part in _read().items()
    if name.startswith("table")
}
