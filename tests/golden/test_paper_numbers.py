"""Numbers of the paper, and numbers worked out by hand from its equations."""

import numpy as np
import pytest
import torch

import fedsac
from fedsac.core.units import Layout
from fedsac.data.scenes import class_counts, power_sizes
from fedsac.paper.settings import SCENES, TABLE9, preset


def test_figure_1():
    assert fedsac.gamma([1, 9, 11], [99, 99.2, 99.3]) == pytest.approx(98.974332, abs=5e-7)
    # Upper bounds of BCF there are 50.15, 54.15, 55.15: clients 1 and 2 are over-rewarded, the best one is exempt.
    assert fedsac.bcf([1, 9, 11], [99, 99.2, 99.3]).tolist() == [False, False, True]
    just_inside, just_outside = [50.149, 54.149, 99.3], [50.151, 54.151, 99.3]
    assert fedsac.bcf([1, 9, 11], just_inside).tolist() == [True, True, True]
    assert fedsac.bcf([1, 9, 11], just_outside).tolist() == [False, False, True]


@pytest.mark.parametrize(("beta", "expected"), [(5, [36.787944, 60.653066, 100]), (10, [13.533528, 36.787944, 100])])
def test_reputation(beta, expected):
    assert fedsac.reputation([0.3, 0.4, 0.5], beta).tolist() == pytest.approx(expected, abs=5e-7)


def test_reputation_does_not_overflow():
    assert fedsac.reputation([0.1, 1.0], beta=1e6).tolist() == [0.0, 100.0]


def test_pow_sizes():
    assert power_sizes(10, 20000) == [236, 628, 1020, 1412, 1804, 2197, 2589, 2981, 3373, 3760]


def test_cla_class_counts():
    assert class_counts(5, 10) == [1, 3, 5, 7, 10]
    assert class_counts(10, 10) == list(range(1, 11))


def test_importance_order_and_submodel():
    values = torch.tensor([0.02, 0.1, 0.05, -0.01, 0.04], dtype=torch.float64)
    assert fedsac.shares(values).tolist() == pytest.approx([9.5238, 47.6190, 23.8095, 0, 19.0476], abs=5e-5)
    mask = fedsac.allocate(values, [36.79, 100.0])
    assert mask[0].nonzero().squeeze(1).tolist() == [0, 3, 4]
    assert mask[1].all()


@pytest.mark.parametrize(
    ("features", "k1", "k2", "expected"),
    [(3072, 200, 200, 656_810), (3072, 100, 100, 318_410), (784, 200, 200, 199_210)],
)
def test_parameter_counts(features, k1, k2, expected):
    layout = Layout((features, 200, 200, 10))
    neurons = torch.zeros(400, dtype=torch.bool)
    neurons[:k1] = True
    neurons[200 : 200 + k2] = True
    assert layout.smaller(neurons).parameters == expected == features * k1 + k1 + k1 * k2 + k2 + 10 * k2 + 10
    assert layout.smaller(neurons).parameters == expected == int(layout.held(neurons).sum())


def test_table_8_megabytes_of_ten_full_models():
    assert 10 * Layout((3072, 200, 200, 10)).parameters * 4 / 1e6 == pytest.approx(26.2724)
    assert 10 * Layout((784, 200, 200, 10)).parameters * 4 / 1e6 == pytest.approx(7.9684)


def test_gamma_limit():
    c = [0.3, 0.48, 0.5]
    assert fedsac.gamma_limit(c, 0.6) == pytest.approx(99.5082, abs=5e-5)
    assert fedsac.gamma(c, [0.3, 0.54, 0.6]) == pytest.approx(99.5082, abs=5e-5)


def test_table_9(shared):
    """The settings in the package are the paper's, cell by cell."""
    import json

    named = {"CIFAR10": "cifar10", "SVHN": "svhn", "FashionMNIST": "fashion-mnist"}
    fields = {"eta": "lr", "E": "local_steps", "beta": "beta"}
    cells = json.loads((shared / "paper" / "tables.json").read_text())["table9_hyperparameters"]
    assert len(cells) == 3 * 3 * 5
    for cell in cells:
        scene = cell["scene"].lower().replace("(", ":").replace(")", "")
        ours = TABLE9[named[cell["dataset"]]][fields[cell["method"]]][SCENES.index(scene)]
        assert ours == cell["value"], cell


def test_presets_contradict_where_the_paper_does():
    scenes = ("pow", "dir:1.0", "dir:2.0", "dir:3.0")
    assert [preset("paper", "cifar10", scene)["beta"] for scene in scenes] == [5, 10, 2, 10]
    assert [preset("paper-tables", "cifar10", scene)["beta"] for scene in scenes] == [10, 10, 5, 5]
    assert preset("paper", "svhn", "dir:2")["batch"] == 64


def test_initial_weights_are_torchs_default_distribution():
    from fedsac.models.mlp import initial_weights

    layout = Layout((400, 300, 5))
    (weight, bias), _ = layout.views(initial_weights(layout, seed=3, dtype=torch.float64))
    for values in (weight, bias):
        assert values.abs().max() <= 1 / np.sqrt(400)
        assert values.std() == pytest.approx(1 / np.sqrt(400) / np.sqrt(3), rel=0.1)
