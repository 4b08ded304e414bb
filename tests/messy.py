"""Silos as people have them: small tables with whatever is wrong with such."""

import csv
from pathlib import Path

import numpy as np

NAMES = ("dose", "weight")


def table(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two columns, of which the first tells the classes apart."""
    draw = np.random.default_rng(seed)
    y = draw.integers(0, 2, rows)
    return np.stack([5 + 2 * y + 0.5 * draw.normal(size=rows), 70 + 10 * draw.normal(size=rows)], 1).round(3), y


def write(path: Path, x: np.ndarray, labels: list[str], names=NAMES, **columns) -> Path:
    """A .csv file with these features, further columns, and the labels."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*names, *columns, "label"])
        extra = list(zip(*columns.values(), strict=True)) or [()] * len(x)
        writer.writerows(
            [*map(repr, row), *more, label] for row, more, label in zip(x.tolist(), extra, labels, strict=True)
        )
    return path


def silos(folder: Path, sizes=None, spelled=None, factor=None, flipped=(), **columns) -> Path:
    """A folder of silos a, b, c and validation. `spelled`: how silos write the two classes; `factor`: by which a silo's
    doses are off; `flipped` silos swap the classes; `columns`: functions of the number of rows."""
    folder.mkdir()
    for i, (name, rows) in enumerate((sizes or {"a": 40, "b": 60, "c": 80, "validation": 60}).items()):
        x, y = table(rows, i)
        x[:, 0] *= (factor or {}).get(name, 1.0)
        own = (spelled or {}).get(name, ("0", "1"))
        labels = [own[k] for k in (1 - y if name in flipped else y)]
        write(folder / f"{name}.csv", x, labels, **{n: make(rows) for n, make in columns.items()})
    return folder
