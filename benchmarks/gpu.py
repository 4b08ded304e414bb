"""What a GPU makes of it: model-steps against training one by one, the distance to the roofline, cheaper precisions.

3072-200-200-10, batch 32, as the paper's networks on CIFAR-10. Everything lies on the device before the clock starts.
"""

import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from benchmarks.timing import show
from fedsac import Config, FedsacError
from fedsac.compute import training as stack
from fedsac.compute.cuda import precision
from fedsac.compute.importance import exact_importance
from fedsac.compute.samples import Batches, Samples
from fedsac.config import PRECISIONS
from fedsac.core.units import Layout
from fedsac.models.mlp import initial_weights
from fedsac.models.network import Network
from fedsac.paper.settings import preset
from fedsac.runs.start import run_together

LAYOUT = Layout((3072, 200, 200, 10))
POOL, BATCH, STEPS, LR = 50_000, 32, 20, 0.05
STACKS = (1, 10, 100, 350, 1500)
ROOFLINE = 350


def milliseconds(work: Callable[[], object], repetitions: int = 7) -> float:
    """Median time of `work` on the device; whatever must be compiled or allocated is, before that."""
    for _ in range(2):
        work()
    times = []
    for _ in range(repetitions):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


@dataclass(frozen=True)
class Limits:
    """What this device reaches by itself: bytes a second, and operations a second in each precision."""

    bytes: float
    operations: dict[str, float]


def limits() -> Limits:
    source, target = (torch.empty(1 << 28, device="cuda") for _ in range(2))
    copied = 2 * source.numel() * 4 / milliseconds(lambda: target.copy_(source)) * 1e3
    n = 8192
    a, b = (torch.randn(n, n, device="cuda") for _ in range(2))
    rates = {}
    for name in PRECISIONS:
        factors = (a.bfloat16(), b.bfloat16()) if name == "bf16" else (a, b)
        with precision.using(name, a.device):
            took = milliseconds(lambda factors=factors: torch.mm(*factors))  # type: ignore[misc]
        rates[name] = 2 * n**3 / took * 1e3
    return Limits(copied, rates)


def bytes_of_a_step() -> int:
    """That a model's step cannot do without: every weight is read on the way forth, and read and written by its update;
    the inputs are read twice. Activations are small, and stay in the cache."""
    return 12 * LAYOUT.parameters + 2 * BATCH * LAYOUT.sizes[0]


def operations_of_a_step() -> int:
    """Forth, the weights' gradients, and the gradients of all inputs but the first layer's."""
    first, *rest = [i * o for i, o in zip(LAYOUT.sizes, LAYOUT.sizes[1:], strict=False)]
    return 2 * BATCH * (2 * first + 3 * sum(rest))


class Work:
    """A pool of images on the device, and so many models to train on it."""

    def __init__(self, members: int) -> None:
        draw = torch.Generator("cuda").manual_seed(0)
        x = torch.randint(0, 256, (POOL, LAYOUT.sizes[0]), dtype=torch.uint8, device="cuda", generator=draw)
        y = torch.randint(0, 10, (POOL,), device="cuda", generator=draw)
        one = torch.ones(1, LAYOUT.sizes[0], device="cuda")
        self.pool = Samples(x, y, one / 64, -2 * one)
        self.start = initial_weights(LAYOUT, 0, torch.float32).cuda().expand(members, -1)
        rows = torch.randint(0, POOL, (STEPS, members, BATCH), device="cuda", generator=draw)
        self.batches = Batches(rows, torch.full(rows.shape, 1 / BATCH, device="cuda"))
        self.lr = torch.full((members,), LR, device="cuda")

    def stacked(self) -> None:
        stack.train(LAYOUT, self.start, None, self.pool, self.batches, self.lr)

    def one_by_one(self) -> None:
        """What research code does, at its best: no DataLoader, data on the device."""
        for member in range(len(self.start)):
            module = Network(LAYOUT, self.start[member].clone()).module().cuda()
            optimiser = torch.optim.SGD(module.parameters(), lr=LR)
            for rows in self.batches.rows[:, member]:
                inputs = self.pool.x[rows] * self.pool.scale + self.pool.shift
                optimiser.zero_grad()
                F.cross_entropy(module(inputs), self.pool.y[rows]).backward()
                optimiser.step()


def training(limit: Limits) -> None:
    plain = milliseconds(Work(5).one_by_one, 5) / 5 / STEPS
    rows = [["one by one, nn.Module", "", f"{plain * 1e3:.1f} us", f"{1e3 / plain:,.0f}", "1", ""]]
    least = max(bytes_of_a_step() / limit.bytes, operations_of_a_step() / limit.operations["float32"]) * 1e3
    for name in PRECISIONS:
        for members in STACKS if name == "float32" else (ROOFLINE, STACKS[-1]):
            with precision.using(name, torch.device("cuda")):
                each = milliseconds(Work(members).stacked) / STEPS / members
            share = f"{bytes_of_a_step() / limit.bytes * 1e3 / each:.0%}"
            cells = [f"{each * 1e3:.2f} us", f"{1e3 / each:,.0f}", f"{plain / each:.0f}", share]
            rows.append([f"stack of {members}", name, *cells])
    head = ["", "precision", "a model's step", "model-steps a second", "ratio", "of the memory's limit"]
    show("Local steps, 3072-200-200-10, batch 32", head, rows)
    print(
        f"A model's step moves {bytes_of_a_step() / 1e6:.2f} MB and takes {operations_of_a_step() / 1e6:.0f} million "
        f"operations: {bytes_of_a_step() / limit.bytes * 1e6:.2f} us by the measured bandwidth of "
        f"{limit.bytes / 1e12:.2f} TB/s, and "
        + ", ".join(
            f"{operations_of_a_step() / rate * 1e6:.2f} us at {rate / 1e12:.0f} TFLOP/s ({name})"
            for name, rate in limit.operations.items()
        )
        + f". The roofline in plain float32 is {least * 1e3:.2f} us; ours uses the tensor cores, three TF32 products "
        "for one float32 product."
    )


def measuring() -> None:
    samples = 5000
    draw = torch.Generator("cuda").manual_seed(1)
    network = Network(LAYOUT, initial_weights(LAYOUT, 0, torch.float32).cuda())
    x = torch.randn(samples, LAYOUT.sizes[0], device="cuda", generator=draw)
    y = torch.randint(0, 10, (samples,), device="cuda", generator=draw)
    module = network.module().cuda()

    @torch.no_grad()
    def plainly() -> list[torch.Tensor]:
        """One evaluation for each neuron."""
        found = []
        for layer, width in ((0, LAYOUT.sizes[1]), (2, LAYOUT.sizes[2])):
            for neuron in range(width):
                hook = module[layer + 1].register_forward_hook(
                    lambda _, __, out, neuron=neuron: out.index_fill(1, torch.tensor([neuron], device="cuda"), 0)
                )
                found.append(F.cross_entropy(module(x), y))
                hook.remove()
        return found

    ours = milliseconds(lambda: exact_importance(network, x, y))
    plain = milliseconds(plainly, 2)
    rows = [["structured", f"{ours:.2f} ms", "1"], ["plain loop", f"{plain:.0f} ms", f"{plain / ours:.0f}"]]
    show(f"Exact importance of {LAYOUT.neurons} neurons on {samples} samples", ["", "time", "ratio"], rows)


def precisions() -> None:
    """What less precision does to a federation: the same runs with each, on CIFAR-10 where it is at hand."""
    seeds, rounds, rows = range(3), 100, []
    for data in ("cifar10", "digits"):
        settings = preset("paper", "cifar10", "pow") | {"data": data, "rounds": rounds, "eval_every": 10}
        try:
            for name in PRECISIONS:
                configs = [
                    Config(**settings, device="cuda", precision=name, method=method, seed=seed)
                    for method in ("fedsac", "fedavg")
                    for seed in seeds
                ]
                found = run_together(configs)
                ours, average = found[: len(seeds)], found[len(seeds) :]
                gammas = [f"{result.results['last']['gamma']:.2f}" for result in ours]
                best = [f"{statistics.mean(max(r.rewards) for r in results):.4f}" for results in (ours, average)]
                rows.append([f"{data}, {name}", *gammas, *best])
            break
        except (FedsacError, ImportError) as error:
            print(f"{data} is left out: {error}")
    head = ["", *(f"gamma, seed {seed}" for seed in seeds), "best reward", "FedAvg's best reward"]
    show(f"POW, {rounds} rounds, last", head, rows)


def main() -> None:
    if not torch.cuda.is_available():
        print("the GPU benchmark is left out: this torch sees no CUDA device")
        return
    limit = limits()
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    training(limit)
    measuring()
    precisions()


if __name__ == "__main__":
    sys.exit(main())
