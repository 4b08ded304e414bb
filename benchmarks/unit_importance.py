"""`python -m benchmarks.unit_importance [OUT.json]`: how well first-order importance ranks the units of a network,
against exact importance, while the network is trained on the embedded digits (enlarged to 16 x 16).

Spearman's correlation over all units, and the share of the half that is most important by one measure which is so by
the other, too; and how many times longer the exact measure takes.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from fedsac.compute.unit_importance import unit_importance
from fedsac.core.fairness import spearman
from fedsac.models.finding.finder import find_units
from fedsac.models.shipped.cnn import cnn
from fedsac.models.shipped.resnet import resnet18, resnet18_groupnorm
from fedsac.models.shipped.transformer import Size, ViT

SHAPE, CLASSES, VALIDATION = (1, 16, 16), 10, 300
STEPS = (0, 30, 100, 300)
NETWORKS: dict[str, Any] = {
    "cnn": lambda: cnn(SHAPE, CLASSES),
    "resnet18, width 8": lambda: resnet18(SHAPE, CLASSES, 8),
    "resnet18-gn, width 8": lambda: resnet18_groupnorm(SHAPE, CLASSES, 8),
    "ViT, 2 layers of width 32, 4 heads": lambda: ViT(SHAPE, CLASSES, Size(32, 4, 2)),
}


def digits() -> tuple[Tensor, Tensor]:
    data = load_digits()
    x = torch.from_numpy(data.images).float().unsqueeze(1).repeat_interleave(2, 2).repeat_interleave(2, 3)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    return (x / 8 - 1)[order], torch.from_numpy(data.target)[order]


def measured(make: Any, x: Tensor, y: Tensor) -> list[dict[str, float]]:
    """Train a network, and compare the two measures at each of `STEPS`."""
    torch.manual_seed(0)
    model = make()
    units = find_units(model, x[:2])
    train_x, train_y, val_x, val_y = x[VALIDATION:], y[VALIDATION:], x[:VALIDATION], y[:VALIDATION]
    optimiser, rng = torch.optim.SGD(model.parameters(), lr=0.05), torch.Generator().manual_seed(1)
    rows, done = [], 0
    for steps in STEPS:
        model.train()
        for _ in range(steps - done):
            batch = torch.randint(len(train_y), (32,), generator=rng)
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(train_x[batch]), train_y[batch]).backward()
            optimiser.step()
        done = steps
        times, values = [], []
        for exact in (True, False):
            start = time.perf_counter()
            values.append(unit_importance(model, units, val_x, val_y, exact=exact))
            times.append(time.perf_counter() - start)
        exact_values, first_order = values
        half = [set(value.argsort()[len(value) // 2 :].tolist()) for value in values]
        with torch.no_grad():
            accuracy = float((model.eval()(val_x).argmax(1) == val_y).float().mean())
        rows.append(
            {
                "steps": steps,
                "units": units.units,
                "accuracy": accuracy,
                "spearman": spearman(exact_values.numpy(), first_order.numpy()) or 0.0,
                "same half": len(half[0] & half[1]) / len(half[0]),
                "times longer": times[0] / times[1],
            }
        )
    return rows


def main() -> None:
    x, y = digits()
    found = {}
    print(f"{'network':36}{'units':>6}{'steps':>7}{'accuracy':>10}{'Spearman':>10}{'same half':>11}{'exact takes':>13}")
    for name, make in NETWORKS.items():
        found[name] = measured(make, x, y)
        for row in found[name]:
            print(
                f"{name:36}{row['units']:6d}{row['steps']:7d}{row['accuracy']:10.3f}{row['spearman']:10.1f}"
                f"{row['same half']:11.2f}{row['times longer']:12.0f}x",
                flush=True,
            )
    if sys.argv[1:]:
        Path(sys.argv[1]).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
