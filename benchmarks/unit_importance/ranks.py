"""How well first-order importance ranks the units of a network, against exact importance, while the network is
trained: Spearman's correlation over all units, the share of the half that is most important by one measure which is so
by the other, too, and how many times longer the exact measure takes."""

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from benchmarks.unit_importance.data import CLASSES, SHAPE, adapters, digits, text, transformer
from fedsac.compute.unit_importance import unit_importance
from fedsac.core.fairness import spearman
from fedsac.models.finding.finder import find_units
from fedsac.models.shipped.cnn import cnn
from fedsac.models.shipped.resnet import resnet18, resnet18_groupnorm
from fedsac.models.shipped.transformer import Size, ViT

TEXTS = 100  # of the samples for validation: a text takes long, and the transformer has a thousand units
STEPS = (0, 30, 100, 300)


class Trained(NamedTuple):
    make: Callable[[], nn.Module]
    data: Callable[[], tuple[Tensor, Tensor]] = digits
    validation: int = 300
    lr: float = 0.05
    ranks_alone: bool = False  # nothing is cut but the ranks of LoRA adapters


NETWORKS = {
    "cnn": Trained(lambda: cnn(SHAPE, CLASSES)),
    "resnet18, width 8": Trained(lambda: resnet18(SHAPE, CLASSES, 8)),
    "resnet18-gn, width 8": Trained(lambda: resnet18_groupnorm(SHAPE, CLASSES, 8)),
    "ViT, 2 layers of width 32, 4 heads": Trained(lambda: ViT(SHAPE, CLASSES, Size(32, 4, 2))),
    "text transformer": Trained(transformer, text, TEXTS),
    "LoRA beside a trained text transformer": Trained(adapters, text, TEXTS, ranks_alone=True),
}


def measured(network: str, seed: int) -> Iterator[dict[str, Any]]:
    """Train a network, and compare the two measures at each of `STEPS`."""
    how = NETWORKS[network]
    torch.manual_seed(seed)
    model, (x, y) = how.make(), how.data()
    units = find_units(model, x[:2])
    if how.ranks_alone:
        units = units.only(lambda name: name.endswith(".a"))
    (val_x, train_x), (val_y, train_y) = ((part[: how.validation], part[how.validation :]) for part in (x, y))
    optimiser = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=how.lr)
    rng, done = torch.Generator().manual_seed(1 + seed), 0
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
        correlation = spearman(values[0].numpy(), values[1].numpy())  # None where all units are worth the same
        half = [set(value.argsort()[len(value) // 2 :].tolist()) for value in values]
        with torch.no_grad():
            accuracy = float((model.eval()(val_x).argmax(1) == val_y).float().mean())
        yield {
            "network": network,
            "seed": seed,
            "steps": steps,
            "units": units.units,
            "accuracy": accuracy,
            "spearman": correlation,
            "same half": None if correlation is None else len(half[0] & half[1]) / len(half[0]),
            "times longer": times[0] / times[1],
        }
