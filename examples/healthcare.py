"""Four hospitals' tables as one gets them: scikit-learn's breast cancer data, made messy. docs/healthcare.md uses it.

    python examples/healthcare.py hospitals            # writes validation.csv, test.csv and one .csv per hospital
    python examples/healthcare.py hospitals --seed 3   # other patients in every file

Every file has a number for each patient, the device and the patient's age group as text, the day of the visit, a
remark in free text, and values that are missing. `west` writes ; between columns and decimal commas, `south` measures
lengths in another unit, `east` writes M and B for malignant and benign, and `west` 1 and 0.
"""

import argparse
import csv
from datetime import date, timedelta
from pathlib import Path

import numpy as np

SIZES = {"north": 150, "south": 90, "east": 60, "west": 40}  # the rest: 80 for validation, and the test
VALIDATION = 80
MISSING_SHARE = 0.05
LABELS = {"east": ("B", "M"), "west": ("0", "1")}  # how a hospital writes benign, malignant
OTHER_UNITS, FACTOR = "south", 1000.0  # lengths in micrometres where the others have millimetres
DEVICES, AGES = ("ultrasound", "mammogram", "biopsy"), ("under 40", "40 to 60", "over 60")
REMARKS = ("seen by {}", "comes back in {} weeks", "letter {} sent", "called {} times")


def write(folder: Path, seed: int) -> None:
    """Write all files into a folder."""
    from sklearn.datasets import load_breast_cancer

    bunch = load_breast_cancer()
    draw = np.random.default_rng(seed)
    order = draw.permutation(len(bunch.target))
    folder.mkdir(parents=True, exist_ok=True)
    names = [str(name) for name in bunch.feature_names]
    start = 0
    for silo, size in (SIZES | {"validation": VALIDATION, "test": len(order)}).items():
        rows = order[start : start + size]
        start += size
        # In scikit-learn 0 is malignant.
        _write_silo(folder / f"{silo}.csv", silo, names, bunch.data[rows], 1 - bunch.target[rows], draw)


def _write_silo(
    path: Path, silo: str, names: list[str], x: np.ndarray, malignant: np.ndarray, draw: np.random.Generator
) -> None:
    lengths = [i for i, name in enumerate(names) if name.split()[-1] in ("radius", "perimeter")]
    if silo == OTHER_UNITS:
        x = x.copy()
        x[:, lengths] *= FACTOR
    ids = draw.choice(10**6, len(x), replace=False)
    labels = LABELS.get(silo, ("benign", "malignant"))
    header = ["patient_id", "device", "age group", "visit", *names, "remark", "diagnosis"]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=";" if silo == "west" else ",")
        writer.writerow(header)
        for row, ill, patient in zip(x, malignant.tolist(), ids.tolist(), strict=True):
            numbers = [_cell(value, silo, draw) for value in row.tolist()]
            about = [DEVICES[draw.integers(3)], _age(ill, draw), _visit(draw)]
            remark = REMARKS[draw.integers(4)].format(draw.integers(100))
            writer.writerow([patient, *about, *numbers, remark, labels[ill]])


def _cell(value: float, silo: str, draw: np.random.Generator) -> str:
    if draw.random() < MISSING_SHARE:
        return ("", "NA", "?")[draw.integers(3)]
    text = f"{value:.6g}"
    return text.replace(".", ",") if silo == "west" else text


def _age(ill: int, draw: np.random.Generator) -> str:
    """Somewhat older where ill; now and then not written down."""
    if draw.random() < MISSING_SHARE:
        return ""
    return AGES[int(draw.choice(3, p=(0.2, 0.4, 0.4) if ill else (0.4, 0.4, 0.2)))]


def _visit(draw: np.random.Generator) -> str:
    return (date(2023, 1, 1) + timedelta(days=int(draw.integers(700)))).isoformat()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write four hospitals' messy tables.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    write(chosen.folder, chosen.seed)
