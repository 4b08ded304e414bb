"""One patient in 21 is ill: what gamma and rewards are by each metric, with and without class weights.
`python -m benchmarks.rare_class`: the made-up silos of tests/test_unfit_labels.py, three draws of them, 20 rounds."""

import tempfile
from pathlib import Path

import numpy as np

import fedsac
from fedsac import Config
from tests.test_unfit_labels import three_draws

METRICS = ("accuracy", "auc", "macro-f1", "balanced-accuracy")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        silos = three_draws(Path(folder))
        for metric in METRICS:
            for weights in ("none", "balanced"):
                for method in ("fedsac", "fedsac-plus"):
                    print(row(silos, metric, weights, method))


def row(silos: list[Path], metric: str, weights: str, method: str) -> str:
    """The settings, gamma of each draw, and the means of the best contribution and of the best reward."""
    config = Config(metric=metric, class_weights=weights, method=method, rounds=20, hidden=(32, 16), threads=1)
    found = [fedsac.run(config.replace(data=str(each))) for each in silos]
    gammas = ", ".join("-" if r.last["gamma"] is None else f"{r.last['gamma']:.1f}" for r in found)
    alone, paid = (np.mean([max(r.contributions.test) for r in found]), np.mean([max(r.rewards) for r in found]))
    return f"| {metric} | {weights} | {method} | {gammas} | {alone:.3f} | {paid:.3f} |"


if __name__ == "__main__":
    main()
