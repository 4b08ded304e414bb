"""Differential privacy in local runs: the step, the draws, the noise, what is spent, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import fedsac
from fedsac import Config, FedsacError
from fedsac.clients.training import Job, train
from fedsac.compute.batches import drawn_batches
from fedsac.compute.modules.private import private_gradients
from fedsac.recipe import Recipe
from fedsac.rng import stream
from fedsac.runs.setup import prepare

PRIVATE = Config(clients=3, rounds=2, local_steps=3, hidden=(8, 8), dtype="float64", clip=0.5, noise=1.0)
OPACUS = json.loads((Path(__file__).parent / "golden" / "published" / "opacus.json").read_text())


def doubles(values):
    return torch.tensor(values, dtype=torch.float64)


def test_steps_without_noise_are_those_of_opacus():
    module = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2)).double()
    module.load_state_dict({name: doubles(values) for name, values in OPACUS["before"].items()})
    learned = dict(module.named_parameters())
    for x, y in zip(doubles(OPACUS["x"]), torch.tensor(OPACUS["y"]), strict=True):
        recipe = Recipe(clip=OPACUS["clip"], noise=0.0)
        _, gradients = private_gradients(module, learned, x, y, OPACUS["expected"], recipe)
        with torch.no_grad():
            for tensor, gradient in zip(learned.values(), gradients, strict=True):
                tensor -= OPACUS["lr"] * gradient
    for name, values in OPACUS["after"].items():
        assert torch.allclose(learned[name], doubles(values), atol=1e-12), name
        assert not torch.allclose(learned[name], doubles(OPACUS["before"][name]))


def test_noise_is_a_multiple_of_clip_over_the_samples_expected_and_there_without_samples():
    module = nn.Linear(100, 100).double()
    torch.manual_seed(3)
    nobody = torch.zeros(0, 100, dtype=torch.float64), torch.zeros(0, dtype=torch.int64)
    recipe = Recipe(clip=2.0, noise=3.0)
    loss, gradients = private_gradients(module, dict(module.named_parameters()), *nobody, 4, recipe)
    assert float(loss) == 0 and float(gradients[0].std()) == pytest.approx(2.0 * 3.0 / 4, rel=0.03)
    assert float(gradients[0].mean()) == pytest.approx(0, abs=0.06)


def test_every_sample_is_drawn_by_itself():
    """How often each is drawn, and how large batches are: binomial, with batches that are empty or above the size."""
    rows = [np.arange(10, 110), np.arange(3)]
    picked, weight = drawn_batches(rows, [4000, 4000], 4, [np.random.default_rng(i) for i in (1, 2)])
    sizes = (weight[:, 0] > 0).sum(1)
    assert sizes.mean() == pytest.approx(4, abs=0.15) and sizes.var() == pytest.approx(4 * 0.96, abs=0.4)
    assert sizes.min() == 0 and sizes.max() > 8
    counts = np.bincount(picked[:, 0][weight[:, 0] > 0], minlength=110)
    assert counts[:10].sum() == 0 and counts[10:].min() > 100 and counts[10:].max() < 225  # 160 expected, deviation 12
    assert all(len(set(one[w > 0])) == (w > 0).sum() for one, w in zip(picked[:50, 0], weight[:50, 0], strict=True))
    assert set(weight[:, 0].flat) == {0, 0.25}
    # Fewer than a batch: all of them, in every step.
    assert (weight[:, 1, :3] == 1 / 3).all() and (picked[:, 1, :3] == [0, 1, 2]).all()


def test_clients_train_their_submodel_privately():
    """A client's steps by the engine, against gradients of single samples, clipped one by one, with the noise that its
    own stream draws; outside its submodel nothing moves."""
    config = PRIVATE.replace(seed=5)
    (prepared,) = prepare([config])
    layout, clients = prepared.layout, prepared.clients
    masks = torch.rand(3, layout.neurons, generator=torch.Generator().manual_seed(1)) < 0.7
    masks[2] = True
    trained = train([Job(clients, prepared.initial[None], masks, (3, 2, 3), "batches", 1)])[0].models
    for i, name in enumerate(clients.names):
        module = fedsac.smaller(layout.template, layout.table, masks[i]).double()
        own, rng = clients.rows[i], stream(config.seed, "batches", 1, name)
        torch.manual_seed(int(stream(config.seed, "dropout", "batches", 1, name).integers(2**62)))
        for _ in range((3, 2, 3)[i]):
            rows = own[np.flatnonzero(rng.random(len(own)) < config.batch / len(own))]
            total = [config.noise * config.clip * torch.randn_like(p) for p in module.parameters()]
            for row in rows:
                x = clients.pool.x[row : row + 1] * clients.pool.scale + clients.pool.shift
                loss = nn.functional.cross_entropy(module(x), clients.pool.y[row : row + 1].long())
                each = torch.autograd.grad(loss, list(module.parameters()))
                length = sum(float((g**2).sum()) for g in each) ** 0.5
                total = [t + g * min(1, config.clip / length) for t, g in zip(total, each, strict=True)]
            with torch.no_grad():
                for p, t in zip(module.parameters(), total, strict=True):
                    p -= config.lr * t / min(config.batch, len(own))
        held = layout.held(masks[i])
        expected = torch.cat([p.detach().flatten() for p in module.parameters()])
        assert torch.allclose(trained[i][held], expected, atol=1e-10)
        assert torch.equal(trained[i][~held], prepared.initial[~held])


def test_a_run_says_what_it_spends_and_goes_on_to_the_same_bytes(tmp_path, capsys):
    result = fedsac.run(PRIVATE, tmp_path / "whole")
    spent = json.loads((tmp_path / "whole" / "summary.json").read_text())["privacy"]
    assert spent["delta"] == 1e-5 and spent["epsilon"] == pytest.approx(result.privacy["epsilon"])
    assert all(alone < every for alone, every in zip(spent["epsilon_alone"], spent["epsilon"], strict=True))
    by_size = np.argsort(result.samples)
    assert (np.diff(np.array(spent["epsilon"])[by_size]) < 0).all()
    # Where every sample is drawn in each of two steps, it is a Gaussian mechanism: the best whole order sought by hand.
    few = fedsac.run(PRIVATE.replace(batch=2000, rounds=1, local_steps=1))
    orders = np.arange(2, 257)
    gaussian = 2 * orders / 2 + np.log1p(-1 / orders) - (np.log(1e-5) + np.log(orders)) / (orders - 1)
    assert few.privacy["epsilon"] == pytest.approx([gaussian.min()] * 3)

    from fedsac.cli.table import show

    show(result)
    assert f"epsilon {min(spent['epsilon']):.2f}" in " ".join(capsys.readouterr().out.split())

    fedsac.run(PRIVATE.replace(rounds=1, standalone_steps=6), tmp_path / "longer")
    longer = fedsac.resume(tmp_path / "longer", rounds=2)
    assert longer.rewards == fedsac.run(PRIVATE.replace(standalone_steps=6)).rewards


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"clip": None}, "name that, too, as in --clip 1"),
        ({"noise": 0.0}, "noise must be a number above 0"),
        ({"delta": 1.0}, "delta must be a number above 0 and below 1"),
        ({"contribution": "shapley"}, "contribution shapley trains more than epsilon is counted for"),
        ({"augment": "flip"}, "images are not augmented"),
        ({"method": "qffl"}, "this method has clients report losses, which no epsilon covers"),
        ({"network": "resnet18:4"}, "has batch norm"),
    ],
)
def test_what_would_not_be_private_is_refused(changes, said):
    with pytest.raises(FedsacError, match=said):
        fedsac.run(PRIVATE.replace(**changes))
