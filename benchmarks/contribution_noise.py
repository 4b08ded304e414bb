"""`python -m benchmarks.contribution_noise OUT.json [--data digits] [--scenes pow,dir:3.0]`: how noisy contributions
are, and what makes them less so. Clients train alone several times, on one split, with several training seeds.

Ways to turn one training into a score on V and on the test set:
  final       the model at the end: the paper's protocol
  mean K      the mean score of K checkpoints in the last fifth of the steps (`standalone_checkpoints`)
  weights     the score of the mean of the weights of the last fifth's checkpoints
  loss        the final model's mean cross-entropy, negated, in place of its accuracy
  sizes       the final score on V, shrunk by its errors towards a line in the logarithm of the client's sample count

Each way is judged by correlations over clients, in hundredths, mean over pairs of seeds or over seeds:
  seeds       of c on V between two training seeds
  V, test     of c on V and c on the test set, of one training
  others      of c on V and the mean of the other seeds' final c on the test set: what stays when training is repeated
  attainable  gamma of the best rewards inside BCF for c on V, with c on the test set (`gamma_attainable`); the best
              reward is .05 above the best contribution
Data sets stand for their development splits, whose test set is a part of the training data (digits: set aside by the
split's seed).
"""

import argparse
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.timing import show
from fedsac import Config
from fedsac.compute import evaluation
from fedsac.contributions.measurement import Measurement
from fedsac.contributions.standalone import training_alone
from fedsac.core.fairness import fairest_rewards, gamma
from fedsac.paper.settings import preset
from fedsac.runs.setup import prepare

POINTS = 10  # checkpoints that are scored, in the last fifth
KS = (2, 3, 5, 10)
Numbers = dict[str, float | None]  # of each way: seeds; V, test; others; attainable
Scores = dict[str, np.ndarray]  # of each way, [2, N]: on V and on the test set


def configs(data: str, scene: str, split_seed: int, seeds: int) -> list[Config]:
    settings: dict[str, Any] = {"rounds": 50} if data == "digits" else preset("paper", data, scene) | {"rounds": 100}
    if data != "digits":
        settings["data"] = f"benchmarks.plus.development:{data.replace('-', '_')}"
        settings |= {} if scene.startswith("dir") else {"samples_per_client": 2000}
    settings = {"data": data, "scene": scene, "clients": 10, "split_seed": split_seed} | settings
    return [Config(seed=seed, **settings) for seed in range(seeds)]


def trained(run: Measurement) -> tuple[Scores, list[np.ndarray]]:
    """The scores of one training: of the single checkpoints [POINTS, 2, N], and by the other ways [2, N]."""
    parts = -(-run.steps // run.clients.local_steps)
    late = parts // 5
    scored_parts = {parts - k * late // POINTS for k in range(POINTS)}
    mean = torch.zeros(1)
    single = []

    def score(models: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
        both = (run.validation, run.test)
        made = [evaluation.evaluate(run.clients.layout, models, None, on, metric=run.metric) for on in both]
        return np.stack([s.numpy() for s, _ in made]), np.stack([-loss.numpy() for _, loss in made])

    for number, (part,) in enumerate(training_alone([run]), 1):
        if number > parts - late:
            mean = mean + part.models.double() / late
        if number in scored_parts:
            accuracy, loss = score(part.models)
            single.append(accuracy)
    return {"loss": loss, "weights": score(mean.to(run.initial.dtype))[0]}, single


def ways(others: Scores, single: list[np.ndarray], samples: np.ndarray, v: int) -> Scores:
    made = {"final": single[-1]}
    for k in KS:
        made[f"mean {k}"] = np.mean([single[POINTS - 1 - j * POINTS // k] for j in range(k)], 0)
    return made | others | {"sizes": np.stack([towards_sizes(single[-1][0], samples, v), single[-1][1]])}


def towards_sizes(c: np.ndarray, samples: np.ndarray, v: int) -> np.ndarray:
    """Empirical Bayes: c_i pulled to the least-squares line in log n_i, by its sampling variance against the variance
    about the line."""
    x = np.stack([np.ones(len(c)), np.log(samples)], 1)
    if np.ptp(samples) == 0:
        return c
    line = x @ np.linalg.lstsq(x, c, rcond=None)[0]
    noise = c * (1 - c) / v
    about = max(float(((c - line) ** 2).sum() / (len(c) - 2) - noise.mean()), 0.0)
    return np.asarray(line + about / (about + noise) * (c - line))


def judged(by_seed: list[Scores]) -> dict[str, Numbers]:
    pairs = list(itertools.combinations(range(len(by_seed)), 2))
    made: dict[str, Numbers] = {}
    for way in by_seed[0]:
        each = [scores[way] for scores in by_seed]
        final = [scores["final"][1] for scores in by_seed]
        rest = [np.mean([other for j, other in enumerate(final) if j != i], 0) for i in range(len(final))]
        attainable = []
        for on_v, on_test in each:
            theta = fairest_rewards(on_v, float(max(on_v.max(), on_test.max())) + 0.05)
            attainable.append(np.nan if theta is None else gamma(on_test, theta))
        made[way] = {
            "seeds": float(np.mean([gamma(each[a][0], each[b][0]) for a, b in pairs])),
            "V, test": float(np.mean([gamma(*one) for one in each])),
            "others": float(np.mean([gamma(one[0], other) for one, other in zip(each, rest, strict=True)])),
            "attainable": None if way == "loss" else float(np.nanmean(attainable)),  # a loss bounds no rewards
        }
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", default="digits")
    parser.add_argument("--scenes", default="pow,dir:1.0,dir:3.0")
    parser.add_argument("--seeds", type=int, default=4, help="training seeds")
    parser.add_argument("--splits", default="100,101", help="split seeds")
    chosen = parser.parse_args()
    found: dict[str, dict[str, Numbers]] = {}
    for scene, split_seed in itertools.product(chosen.scenes.split(","), map(int, chosen.splits.split(","))):
        by_seed = []
        for prepared in prepare(configs(chosen.data, scene, split_seed, chosen.seeds)):
            config = prepared.config
            run = Measurement(
                prepared.clients, prepared.initial, config.alone(), prepared.validation, prepared.test, prepared.metric
            )
            samples = np.array([len(rows) for rows in prepared.clients.rows])
            by_seed.append(ways(*trained(run), samples, len(prepared.validation.y)))
        found[f"{scene} {split_seed}"] = judged(by_seed)
        chosen.out.write_text(json.dumps(found, indent=1))
    keys = ("seeds", "V, test", "others", "attainable")
    names = list(next(iter(found.values())))
    for name, cells in [*found.items(), ("mean", {})]:
        rows = []
        for way in names:
            columns = [[each[way][key] for each in ([cells] if cells else found.values())] for key in keys]
            there = [[value for value in column if value is not None] for column in columns]
            rows.append([way, *(f"{np.mean(values):.2f}" if values else "-" for values in there)])
        show(f"{chosen.data} {name}", ("way", *keys), rows)


if __name__ == "__main__":
    main()
