"""Scores of many nested submodels of one model: each from the one before it, against each by itself."""

import torch

from benchmarks.timing import interleaved, show
from fedsac.compute import evaluation, nested
from fedsac.compute.samples import Samples
from fedsac.core.units import Layout
from fedsac.models.mlp import initial_weights

CASES = (("FedSAC+'s prefixes", 180, 2500), ("FedRAC's prefixes", 50, 5000), ("ten rewards", 10, 10000))


def measure(what: str, members: int, samples: int, features: int) -> list[str]:
    layout = Layout((features, 200, 200, 10))
    params = initial_weights(layout, 0, torch.float32).unsqueeze(0)
    x, y = torch.randint(0, 256, (samples, features), dtype=torch.uint8), torch.randint(10, (samples,))
    data = Samples(x, y, torch.full((1, features), 1 / 128), torch.full((1, features), -1.0))
    # Rewards are the larger submodels; what is calibrated goes from one neuron to all.
    lengths = torch.linspace(200 if members == 10 else 1, layout.neurons, members).long()
    neurons = torch.randperm(layout.neurons) < lengths.unsqueeze(1)
    fewest = nested.MIN_MEMBERS

    def by_itself() -> None:
        nested.MIN_MEMBERS = members + 1
        evaluation.evaluate(layout, params, neurons, data)
        nested.MIN_MEMBERS = fewest

    times = interleaved(
        {"nested": lambda: evaluation.evaluate(layout, params, neurons, data), "alone": by_itself}, repetitions=7
    )
    one_by_one, alone = times["nested"], times["alone"]
    return [
        f"{what}: {members}, {samples} samples",
        str(features),
        f"{one_by_one.median * 1e3:.0f} ms ({one_by_one.spread})",
        f"{alone.median * 1e3:.0f} ms ({alone.spread})",
        f"{alone.median / one_by_one.median:.1f}x",
    ]


def main() -> None:
    head = ["submodels", "features", "each from the one before (range)", "each by itself", "ratio"]
    rows = [measure(*case, features) for case in CASES for features in (784, 3072)]
    show(f"Scores of nested submodels, {torch.get_num_threads()} threads", head, rows)
