"""Two steps of differentially private training without noise by Opacus, an independent library, for a small network and
fixed samples: what tests/test_private_runs.py compares ours with. It needs no torch of its own:

    pip install --no-deps --target .bench/opacus opacus==1.6.0 opt_einsum
    PYTHONPATH=.bench/opacus python benchmarks/opacus_step.py > tests/golden/published/opacus.json
"""

import json
from importlib.metadata import version

import torch
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer
from torch import nn

CLIP, LR, EXPECTED = 0.7, 0.3, 4


def main() -> None:
    generator = torch.Generator().manual_seed(16)
    module = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2)).double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64).round(decimals=3))
    before = {name: value.tolist() for name, value in module.state_dict().items()}
    x = (3 * torch.randn(2, 4, 3, generator=generator, dtype=torch.float64)).round(decimals=3)
    y = torch.tensor([[0, 1, 1, 0], [1, 1, 0, 0]])
    private = GradSampleModule(module)
    optimiser = DPOptimizer(
        torch.optim.SGD(private.parameters(), lr=LR),
        noise_multiplier=0.0,
        max_grad_norm=CLIP,
        expected_batch_size=EXPECTED,
    )
    for inputs, labels in zip(x, y, strict=True):
        optimiser.zero_grad()
        nn.functional.cross_entropy(private(inputs), labels).backward()
        optimiser.step()
    after = {name: value.tolist() for name, value in module.state_dict().items()}
    settings = {"clip": CLIP, "lr": LR, "expected": EXPECTED, "x": x.tolist(), "y": y.tolist()}
    print(json.dumps({"opacus": version("opacus"), **settings, "before": before, "after": after}))


if __name__ == "__main__":
    main()
