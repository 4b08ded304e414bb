"""How fast networks that are no perceptrons train: `python -m benchmarks.networks [--device cuda] [--network cnn]`.

Ratios within one run: a stack of members against one by one, each a plain loop of torch's autograd and SGD; what a
client with half of the units takes, in time and bytes, against the whole; on a GPU, memory for each member, and how
near a step is to the device's measured limits.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.gpu import Limits, limits
from benchmarks.timing import interleaved
from fedsac.compute.cuda import precision
from fedsac.compute.modules.inputs import inputs
from fedsac.compute.modules.stacked_training import train_stacked
from fedsac.compute.modules.training import train_modules
from fedsac.compute.modules.working import Working, activations
from fedsac.compute.samples import Batches, Samples
from fedsac.config import PRECISIONS
from fedsac.core.module_layout import ModuleLayout
from fedsac.models.files import serialised_bytes
from fedsac.models.start import NetworkSpec, initial_network

SHAPE, CLASSES, SAMPLES, BATCH, STEPS = (3, 32, 32), 10, 2048, 32, 10
ONE_BY_ONE = 3  # members that are timed one by one: each takes as long as any other


@dataclass(frozen=True)
class Work:
    """Models of one network, random samples, and batches of so many members."""

    layout: ModuleLayout
    models: Tensor
    pool: Samples
    batches: Batches
    lr: Tensor

    @classmethod
    def make(cls, named: str, members: int, device: torch.device) -> "Work":
        features = int(np.prod(SHAPE))
        start = initial_network(named, NetworkSpec(features, CLASSES, (), 0, torch.float32, image=SHAPE))
        assert isinstance(start.layout, ModuleLayout)
        start.layout.template.to(device)
        rng = np.random.default_rng(0)
        x = torch.from_numpy(rng.integers(0, 256, (SAMPLES, features), dtype=np.uint8)).to(device)
        y = torch.from_numpy(rng.integers(0, CLASSES, SAMPLES)).to(device)
        scale, shift = torch.full((1, features), 1 / 128, device=device), torch.full((1, features), -1.0, device=device)
        rows = torch.from_numpy(rng.integers(0, SAMPLES, (STEPS, members, BATCH))).to(device)
        weight = torch.full(rows.shape, 1 / BATCH, device=device)
        models, lr = start.params.to(device).unsqueeze(0), torch.full((members,), 0.01, device=device)
        return cls(start.layout, models, Samples(x, y, scale, shift), Batches(rows, weight), lr)

    def one_by_one(self, members: int) -> None:
        """The plain way: one model after the other, by torch's autograd and optimiser."""
        working = Working(self.layout, self.models)
        for i in range(members):
            working.load(self.models[0])
            with working.training() as module, torch.enable_grad():
                optimiser = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=0.01)
                for step in range(STEPS):
                    rows = self.batches.rows[step, i]
                    x = inputs(self.layout, self.pool, rows, 0, torch.float32)
                    optimiser.zero_grad()
                    functional.cross_entropy(module(x), self.pool.y[rows]).backward()
                    optimiser.step()

    def stack(self, neurons: Tensor | None = None) -> None:
        train = train_stacked if self.models.is_cuda else train_modules
        train(self.layout, self.models, neurons, self.pool, self.batches, self.lr)

    def halves(self) -> Tensor:
        """Masks [S, units] of members that hold every second unit."""
        half = torch.arange(self.layout.neurons, device=self.models.device) % 2 == 0
        return self.layout.completed(half, torch.arange(self.layout.neurons)).expand(len(self.lr), -1)


def share_of_limits(work: Work, seconds: float, limit: Limits) -> dict[str, float]:
    """Of the time that a model's step takes, what it could not do without if memory or arithmetic alone limited it.
    Memory: every weight is read on the way forth, and read and written by its update; what each layer says is written
    and read, and so is its gradient; inputs are read twice. Arithmetic: as torch counts it, in float32."""
    layout = work.layout
    numbers = 3 * layout.parameters + 4 * BATCH * activations(layout)
    with FlopCounterMode(display=False) as counted:
        work.one_by_one(1)
    times = {
        "memory": (4 * numbers + 2 * BATCH * int(np.prod(SHAPE))) / limit.bytes,
        "arithmetic in float32": counted.get_total_flops() / STEPS / limit.operations["float32"],
    }
    return {name: round(least / seconds, 3) for name, least in times.items()}


def waiting(work: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """The work, and waiting until a GPU has done it."""

    def done() -> None:
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    return done


def measure(work: Work, named: str, repetitions: int, limit: Limits | None) -> dict[str, object]:
    """Milliseconds of a model-step, and ratios."""
    members, device = len(work.lr), work.lr.device
    few = min(members, ONE_BY_ONE)
    half = work.halves()
    candidates = {
        "one by one": waiting(lambda: work.one_by_one(few), device),
        "stack": waiting(work.stack, device),
        "stack of halves": waiting(lambda: work.stack(half), device),
    }
    for candidate in candidates.values():
        candidate()  # a second time in `interleaved`: graphs are captured in the first call
    timed = interleaved(candidates, repetitions)
    each = {name: 1e3 * timed[name].median / STEPS / (few if name == "one by one" else members) for name in timed}
    whole, part = work.layout.shape, work.layout.smaller(half[0].cpu())
    found: dict[str, object] = {
        "network": named,
        "members": members,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "milliseconds a model-step": {name: round(value, 4) for name, value in each.items()},
        "times as fast as one by one": round(each["one by one"] / each["stack"], 2),
        "half of the units: share of the time": round(each["stack of halves"] / each["stack"], 3),
        "half of the units: share of the bytes": round(
            serialised_bytes(part, torch.float32) / serialised_bytes(whole, torch.float32), 3
        ),
    }
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        work.stack()
        found["peak GPU megabytes a member"] = round(torch.cuda.max_memory_allocated(device) / 1e6 / members, 1)
    if limit is not None:
        found["share of the limit"] = share_of_limits(work, each["stack"] / 1e3, limit)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.networks", description=__doc__, allow_abbrev=False)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--network", default="cnn,resnet18:16", metavar="A,B")
    parser.add_argument("--members", default="10,50,350", metavar="N,N")
    parser.add_argument("--precision", default="float32", choices=PRECISIONS)
    parser.add_argument("--repetitions", type=int, default=5)
    chosen = parser.parse_args()
    device = torch.device(chosen.device)
    limit = limits() if device.type == "cuda" else None
    for named in chosen.network.split(","):
        for members in map(int, chosen.members.split(",")):
            work = Work.make(named, members, device)  # torch cannot export a network while its precision is another one
            with precision.using(chosen.precision, device):
                found = measure(work, named, chosen.repetitions, limit)
            print(json.dumps({"precision": chosen.precision} | found), flush=True)


if __name__ == "__main__":
    main()
