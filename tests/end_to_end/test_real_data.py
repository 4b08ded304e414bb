"""The paper's experiment on real data, and the standalone accuracies its authors published."""

import numpy as np
import pytest

import fedsac
from fedsac import Config
from fedsac.contributions.measurement import Measurement
from fedsac.contributions.standalone import standalone
from fedsac.runs.setup import prepare

pytestmark = pytest.mark.slow

# CIFAR-10, CLA, ten clients: what the authors published of clients training alone.
PUBLISHED_CLA = [0.100, 0.172, 0.223, 0.257, 0.277, 0.290, 0.307, 0.332, 0.357, 0.369]


def test_fashion_mnist_pow_is_fair_and_pays(real_data):
    configs = [
        Config(
            data="fashion-mnist", scene="pow", beta=10, rounds=100, eval_every=100, seed=seed, data_dir=str(real_data)
        )
        for seed in range(3)
    ]
    results = fedsac.run_together(configs)
    gammas = [result.results["last"]["gamma"] for result in results]
    print("gamma, last:", gammas)
    assert np.mean(gammas) >= 97
    for result in results:
        assert max(result.rewards) > max(result.contributions.test)


def test_cifar10_cla_contributions_are_the_published_ones(real_data):
    configs = [Config(data="cifar10", scene="cla", seed=seed, data_dir=str(real_data)) for seed in range(3)]
    prepared = prepare(configs)
    measured = standalone([Measurement(p.clients, p.initial, 4000, p.validation, p.test, p.metric) for p in prepared])
    mean = np.mean([contributions.test for contributions in measured], axis=0)
    print("contributions:", mean.round(4).tolist())
    assert mean == pytest.approx(PUBLISHED_CLA, abs=0.02)
