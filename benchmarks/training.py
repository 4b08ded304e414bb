"""One round of ten clients: the stack, against torch modules with a DataLoader one by one, and the machine's peak.

10 clients x 2000 samples, batch 32, one epoch (62 steps, the incomplete batch dropped), features-200-200-10.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.timing import PEAK_OPERATIONS, interleaved, peak, show
from fedsac.engines.local import Clients, train_round
from fedsac.methods.base import Rewards
from fedsac.models.network import Network, initial
from fedsac.models.neurons import Layout
from fedsac.stack import Samples

CLIENTS, SAMPLES, BATCH, STEPS, LR = 10, 2000, 32, 62, 0.05


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


def measure(features: int, repetitions: int = 9) -> list[str]:
    layout = Layout((features, 200, 200, 10))
    rng = np.random.default_rng(0)
    stored = torch.from_numpy(rng.integers(0, 256, (CLIENTS * SAMPLES, features), dtype=np.uint8))
    y = torch.from_numpy(rng.integers(0, 10, CLIENTS * SAMPLES))
    scale, shift = torch.full((1, features), 1 / 64), torch.full((1, features), -2.0)
    clients = Clients(
        layout=layout,
        names=tuple(f"client-{i}" for i in range(CLIENTS)),
        rows=tuple(np.split(np.arange(CLIENTS * SAMPLES), CLIENTS)),
        pool=Samples(stored, y, scale, shift),
        lr=LR,
        batch=BATCH,
        local_steps=STEPS,
        seed=0,
    )
    start = initial(layout, 0, torch.float32)
    rewards = Rewards(start.unsqueeze(0), torch.ones(CLIENTS, layout.neurons, dtype=torch.bool))
    normalised = stored * scale + shift
    times = interleaved(
        {
            "stack": lambda: train_round([(clients, rewards, 0)], lambda round, name: False),
            "modules": lambda: one_by_one(layout, start, normalised, y),
            "peak": peak(),
        },
        repetitions,
    )
    reached = operations(layout) / times["stack"].median
    possible = PEAK_OPERATIONS / times["peak"].median
    return [
        str(features),
        f"{times['stack'].median * 1e3:.0f} ms ({times['stack'].spread})",
        f"{times['modules'].median * 1e3:.0f} ms ({times['modules'].spread})",
        f"{times['modules'].median / times['stack'].median:.1f}x",
        f"{reached / 1e9:.0f} of {possible / 1e9:.0f} GFLOP/s",
        f"{reached / possible:.0%}",
    ]


def main() -> None:
    head = ["features", "stack (range)", "nn.Module + DataLoader (range)", "ratio", "rate", "of peak"]
    title = f"A round of {CLIENTS} clients on {torch.get_num_threads()} threads"
    show(title, head, [measure(784), measure(3072)])
