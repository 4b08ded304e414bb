"""A whole FedSAC round, importance included, against a FedAvg round of ours: 10 clients x 2000 samples, 62 local steps,
3072 features, V of 5000 samples; evaluation left out."""

import numpy as np
import torch

from benchmarks.timing import interleaved, show
from fedsac import Config
from fedsac.clients.rounds import train_round
from fedsac.contributions.base import Contributions
from fedsac.data.dataset import DataSet
from fedsac.data.split import Split
from fedsac.runs.running import Running
from fedsac.runs.setup import prepare
from fedsac.runs.start import nobody_absent

CLIENTS, SAMPLES, VALIDATION, FEATURES = 10, 2000, 5000, 3072


def made_up(features: int = FEATURES) -> Split:
    """Images that can be learned a little: a pattern for each class, and noise."""
    draw, total = np.random.default_rng(0), CLIENTS * SAMPLES + VALIDATION
    y = np.arange(total) % 10
    patterns = draw.integers(0, 256, (10, features))
    x = (patterns[y] // 4 + draw.integers(0, 192, (total, features))).astype(np.uint8)
    data = DataSet("made up", x, y, tuple(map(str, range(10))), np.zeros(features, dtype=np.int64), 255.0)
    rows = tuple(np.split(np.arange(CLIENTS * SAMPLES), CLIENTS))
    validation = np.arange(CLIENTS * SAMPLES, total)
    normal = np.full(features, 0.5), np.full(features, 0.25)
    names = tuple(f"client-{i:02d}" for i in range(CLIENTS))
    return Split(data, "iid", names, rows, validation, x[validation], y[validation], *normal)


def begun(method: str, dealt: Split) -> Running:
    """A run whose contributions are as the paper's scenes have them: reputations from 34 to 100, submodels to match."""
    contributions = tuple(0.30 + 0.012 * i for i in range(CLIENTS))
    config = Config(method=method, beta=10, local_steps=62, rounds=10_000)
    run = Running(prepare([config], [dealt])[0])
    run.begin(Contributions(contributions, contributions))
    return run


def one_round(run: Running) -> None:
    work = [(run.prepared.clients, run.assignment, run.round)]
    run.learn(train_round(work, nobody_absent)[0])
    run.assign()
    run.round += 1


def main() -> None:
    dealt = made_up()
    runs = {method: begun(method, dealt) for method in ("fedavg", "fedsac")}
    times = interleaved({name: lambda run=run: one_round(run) for name, run in runs.items()}, repetitions=9)
    rows = [
        [name, f"{t.median * 1e3:.0f} ms ({t.spread})", f"{t.median / times['fedavg'].median:.2f}x"]
        for name, t in times.items()
    ]
    held = [submodel.neurons for submodel in runs["fedsac"].submodels]
    title = f"A round at {FEATURES} features, {torch.get_num_threads()} threads; FedSAC's clients hold {min(held)} to "
    show(title + f"{max(held)} of 400 neurons", ["method", "time (range)", "ratio"], rows)
