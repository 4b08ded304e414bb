"""Importance of 400 neurons on 5000 samples: exact and structured, against one evaluation for each neuron."""

import torch
import torch.nn.functional as F

from benchmarks.timing import interleaved, show
from fedsac import importance
from fedsac.core.units import Layout
from fedsac.models.mlp import initial_weights
from fedsac.models.network import Network

SAMPLES = 5000


@torch.no_grad()
def plain(network: Network, x: torch.Tensor, y: torch.Tensor, neurons: range) -> torch.Tensor:
    """Eq. 3 to the letter for some of the neurons: the whole validation set once more for each."""
    layers = network.layout.views(network.params)

    def loss(silenced: int | None) -> torch.Tensor:
        a, first = x, 0
        for i, (w, b) in enumerate(layers):
            a = torch.addmm(b, a, w)
            if i < len(layers) - 1:
                a = torch.relu(a)
                if silenced is not None and first <= silenced < first + a.shape[1]:
                    a[:, silenced - first] = 0
                first += a.shape[1]
        return F.cross_entropy(a, y)

    before = loss(None)
    return torch.stack([loss(j) - before for j in neurons])


def measure(features: int) -> list[str]:
    layout = Layout((features, 200, 200, 10))
    network = Network(layout, initial_weights(layout, 0, torch.float32) * 2)
    x, y = torch.randn(SAMPLES, features), torch.randint(10, (SAMPLES,))
    # Every tenth neuron, so that the plain loop takes seconds and not a minute; each costs the same.
    some = range(0, layout.neurons, 10)
    times = interleaved(
        {"fast": lambda: importance(network, x, y), "plain": lambda: plain(network, x, y, some)}, repetitions=5
    )
    scale = layout.neurons / (len(some) + 1)  # the loss of the whole network is one evaluation more
    fast, loop = times["fast"].median, times["plain"].median * scale
    exact = Network(layout, network.params.double())
    ours, theirs = importance(exact, x.double(), y)[list(some)], plain(exact, x.double(), y, some)
    return [
        str(features),
        f"{fast * 1e3:.0f} ms ({times['fast'].spread})",
        f"{loop:.2f} s",
        f"{loop / fast:.0f}x",
        f"{float((ours - theirs).abs().max() / theirs.abs().max()):.0e}",
    ]


def main() -> None:
    head = ["features", "structured (range)", "plain loop", "ratio", "difference (float64)"]
    title = f"Importance of 400 neurons on {SAMPLES} samples, {torch.get_num_threads()} threads"
    show(title, head, [measure(784), measure(3072)])
