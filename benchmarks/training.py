"""One round of ten clients, in one run and in turn: the stack, torch modules with a DataLoader one by one, torch.func's
vmap, numpy, the machine's peak and its memory.

10 clients x 2000 samples, batch 32, one epoch (62 steps, the incomplete batch dropped), features-200-200-10.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.timing import MEMORY_BYTES, PEAK_OPERATIONS, interleaved, memory, peak, show
from benchmarks.work import BATCH, CLIENTS, LR, SAMPLES, SCALE, SHIFT, STEPS, stored
from fedsac.clients.population import Clients
from fedsac.clients.rounds import train_round
from fedsac.compute.samples import Samples
from fedsac.core.units import Layout
from fedsac.methods.base import Assignment
from fedsac.models.mlp import initial_weights
from fedsac.models.network import Network


def operations(layout: Layout) -> int:
    """Multiplications and additions that a round cannot do without: forward, weight gradients, and the gradients of
    all inputs but the first layer's."""
    first, *rest = [i * o for i, o in zip(layout.sizes, layout.sizes[1:], strict=False)]
    return 2 * CLIENTS * STEPS * BATCH * (2 * first + 3 * sum(rest))


def one_by_one(layout: Layout, start: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> None:
    """What most research code does."""
    for own_x, own_y in zip(x.split(SAMPLES), y.split(SAMPLES), strict=True):
        module = Network(layout, start).module()
        optimiser = torch.optim.SGD(module.parameters(), lr=LR)
        loader = DataLoader(TensorDataset(own_x, own_y), batch_size=BATCH, shuffle=True, drop_last=True)
        for batch_x, batch_y in loader:
            optimiser.zero_grad()
            F.cross_entropy(module(batch_x), batch_y).backward()
            optimiser.step()


def vmapped(layout: Layout, start: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> None:
    """All clients at once by torch.func: gradients of one functional model, mapped over the clients."""
    module = Network(layout, start).module()
    params = {name: value.detach().expand(CLIENTS, *value.shape).clone() for name, value in module.named_parameters()}

    def loss(own: dict[str, torch.Tensor], batch_x: torch.Tensor, batch_y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(torch.func.functional_call(module, own, (batch_x,)), batch_y)

    step = torch.func.vmap(torch.func.grad(loss))
    order = torch.stack([torch.randperm(SAMPLES)[: STEPS * BATCH] + SAMPLES * i for i in range(CLIENTS)])
    for rows in order.view(CLIENTS, STEPS, BATCH).unbind(1):
        gradients = step(params, x[rows], y[rows])
        for name, value in params.items():
            value.sub_(gradients[name], alpha=LR)


def by_numpy(layout: Layout, start: np.ndarray, x: np.ndarray, y: np.ndarray) -> None:
    """One client after the other, by hand."""
    draw = np.random.default_rng(0)
    for i in range(CLIENTS):
        weights = [(w.numpy(), b.numpy()) for w, b in layout.views(torch.from_numpy(start.copy()))]
        for rows in draw.permutation(SAMPLES)[: STEPS * BATCH].reshape(STEPS, BATCH) + SAMPLES * i:
            a = [x[rows]]
            for w, b in weights[:-1]:
                a.append(np.maximum(a[-1] @ w + b, 0))
            logits = a[-1] @ weights[-1][0] + weights[-1][1]
            delta = np.exp(logits - logits.max(1, keepdims=True))
            delta /= delta.sum(1, keepdims=True)
            delta[np.arange(BATCH), y[rows]] -= 1
            delta *= LR / BATCH
            for k in range(len(weights) - 1, -1, -1):
                w, b = weights[k]
                below = (delta @ w.T) * (a[k] > 0) if k else None
                w -= a[k].T @ delta
                b -= delta.sum(0)
                delta = below


def measure(features: int, repetitions: int = 9) -> list[list[str]]:
    layout = Layout((features, 200, 200, 10))
    x, y = stored(features)
    scale, shift = torch.full((1, features), SCALE), torch.full((1, features), SHIFT)
    clients = Clients(
        layout=layout,
        names=tuple(f"client-{i}" for i in range(CLIENTS)),
        rows=tuple(np.split(np.arange(CLIENTS * SAMPLES), CLIENTS)),
        pool=Samples(x, y, scale, shift),
        lr=LR,
        batch=BATCH,
        local_steps=STEPS,
        seed=0,
    )
    start = initial_weights(layout, 0, torch.float32)
    rewards = Assignment(start.unsqueeze(0), torch.ones(CLIENTS, layout.neurons, dtype=torch.bool))
    normalised = x * scale + shift
    times = interleaved(
        {
            "the stack": lambda: train_round([(clients, rewards, 0)], lambda round, name: False),
            "nn.Module + DataLoader": lambda: one_by_one(layout, start, normalised, y),
            "torch.func.vmap": lambda: vmapped(layout, start, normalised, y),
            "peak": peak(),
            "memory": memory(),
        },
        repetitions,
    )
    possible, bandwidth = PEAK_OPERATIONS / times.pop("peak").median, MEMORY_BYTES / times.pop("memory").median
    limits = [
        [f"{features}", "matrix product", "", "", f"{possible / 1e9:.0f} GFLOP/s", "100%"],
        [f"{features}", "memory", "", "", f"{bandwidth / 1e9:.1f} GB/s", ""],
    ]
    rows = [
        [
            f"{features}",
            name,
            f"{t.median * 1e3:.0f} ms ({t.spread})",
            f"{t.median / times['the stack'].median:.1f}x",
            f"{operations(layout) / t.median / 1e9:.0f} GFLOP/s",
            f"{operations(layout) / t.median / possible:.0%}",
        ]
        for name, t in times.items()
    ]
    return rows + limits


def measure_numpy(features: int) -> list[str]:
    """By itself, after everything else: the threads of numpy's own library spin, and would slow torch's down."""
    layout = Layout((features, 200, 200, 10))
    rng = np.random.default_rng(0)
    x = rng.normal(size=(CLIENTS * SAMPLES, features)).astype(np.float32)
    y, start = rng.integers(0, 10, CLIENTS * SAMPLES), initial_weights(layout, 0, torch.float32).numpy()
    t = interleaved({"numpy": lambda: by_numpy(layout, start, x, y)}, 5)["numpy"]
    rate = f"{operations(layout) / t.median / 1e9:.0f} GFLOP/s"
    return [f"{features}", "numpy", f"{t.median * 1e3:.0f} ms ({t.spread})", "", rate, ""]


def main() -> None:
    head = ["features", "", "a round (range)", "ratio", "rate", "of peak"]
    title = f"A round of ten clients, {torch.get_num_threads()} threads"
    rows = [*measure(784), *measure(3072)]
    show(title, head, [*rows, measure_numpy(784), measure_numpy(3072)])
