"""Cheaper importance against the exact one: how alike they rank neurons over training, and the gamma they lead to."""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import Tensor

from benchmarks.timing import show
from fedsac import Config, run_together
from fedsac.methods.base import Task
from fedsac.methods.fedsac import FedSAC

ROUNDS, SEEDS, AFTER = 100, 3, (0, 1, 5, 20, 50, 100)
SHARES = (0.1, 0.25, 0.5)
seen: list[tuple[int, str, float, float]] = []  # rounds over, estimate, Spearman, error


@dataclass(frozen=True)
class Compared(FedSAC):
    """FedSAC that measures importance in every way, and goes by the exact one."""

    def measure(self, task: Task, model: Tensor, over: int) -> Tensor:
        exact = task.importance(model)
        if over in AFTER:
            estimates = {"first order": task.importance(model, exact=False)}
            n = len(task.validation.y)
            for share in SHARES:
                rows = torch.from_numpy(task.stream("part", over).permutation(n)[: int(share * n)])
                estimates[f"{share:.0%} of V"] = task.importance(model, rows)
            for name, estimate in estimates.items():
                rank = spearmanr(exact.numpy(), estimate.numpy()).statistic
                seen.append((over, name, float(rank), float((estimate - exact).abs().max() / exact.abs().max())))
        return exact


def main() -> None:
    base = Config(rounds=ROUNDS, eval_every=10, scene="pow")
    run_together([base.replace(method="benchmarks.estimates:Compared", seed=seed) for seed in range(SEEDS)])
    names = list(dict.fromkeys(name for _, name, _, _ in seen))
    rows = []
    for name in names:
        ranks = [np.mean([r for o, n, r, _ in seen if (o, n) == (over, name)]) for over in AFTER]
        errors = [np.mean([e for o, n, _, e in seen if (o, n) == (over, name)]) for over in AFTER]
        rows.append([name, *(f"{rank:.2f} ({error:.0%})" for rank, error in zip(ranks, errors, strict=True))])
    head = ["estimate", *(f"after {over}" for over in AFTER)]
    show(f"Spearman with exact importance (largest error), digits, pow, {SEEDS} seeds", head, rows)

    v = 144  # a tenth of the digits that are left when the test set is set aside
    variants = {"exact": {}, "first order": {"first_order": "true"}}
    variants |= {f"{share:.0%} of V": {"importance_samples": int(share * v)} for share in SHARES}
    configs = [base.replace(seed=seed, options=options) for options in variants.values() for seed in range(SEEDS)]
    results = run_together(configs)
    rows = []
    for i, name in enumerate(variants):
        mine = results[i * SEEDS : (i + 1) * SEEDS]
        late = [r["gamma"] for result in mine for r in result.records[ROUNDS // 2 :] if r["gamma"] is not None]
        last = [result.last["gamma"] for result in mine]
        best = [result.last["accuracy"]["max"] for result in mine]
        rows.append(
            [name, f"{np.mean(last):.2f} ±{np.std(last, ddof=1):.2f}", f"{np.median(late):.2f}", f"{np.mean(best):.3f}"]
        )
    head = ["importance", "gamma, last", "gamma, median of the second half", "best reward, last"]
    show(f"What FedSAC makes of it: digits, pow, {ROUNDS} rounds, {SEEDS} seeds", head, rows)
