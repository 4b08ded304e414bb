"""The CUDA kernels against plain torch. Without a CUDA device they run in Triton's interpreter, where that is there."""

import os

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed")
if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("there is no CUDA device, and TRITON_INTERPRET=1 is not set", allow_module_level=True)

from fedsac.compute import training
from fedsac.compute.cuda import precision
from fedsac.compute.cuda.kernels import importance
from fedsac.compute.cuda.kernels import training as kernels
from fedsac.compute.importance import _loss, _loss_increases_dense, _padded
from fedsac.compute.samples import Batches, Samples
from fedsac.core.units import Layout
from fedsac.models.network import Network

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


@pytest.mark.parametrize(
    "sizes, batch, own",
    [
        ((70, 20, 18, 10), 16, True),
        ((512, 24, 10), 16, True),
        ((545, 24, 10), 16, True),
        ((33, 200, 40), 32, False),
        ((129, 130, 7, 30, 3), 64, True),
    ],
)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("programs", [1, kernels.PROGRAMS_AT_ONCE])  # as a large stack is computed, and as a small one
def test_local_steps(sizes, batch, own, masked, programs, monkeypatch):
    monkeypatch.setattr(kernels, "PROGRAMS_AT_ONCE", programs)
    members, layout, rng = 3, Layout(sizes), torch.Generator().manual_seed(6)
    x, y = (drawn(50, sizes[0]) * 40).abs().to(torch.uint8), (torch.arange(50) % sizes[-1]).to(DEVICE)
    scale, shift = (drawn(members if own else 1, sizes[0], seed=i) / 40 for i in (1, 2))
    pool = Samples(x, y, scale, shift)
    params = drawn(members, layout.parameters, seed=3) * 0.2
    masks = [(drawn(members, 1, w, seed=5) > -0.5).float() for w in sizes[1:-1]] if masked else None
    rows = torch.randint(0, 50, (4, members, batch), generator=rng).to(DEVICE)
    weight = (torch.rand(4, members, batch, generator=rng) / batch).to(DEVICE)
    lr = torch.tensor([0.1, 0.2, 0.05], device=DEVICE)
    found = []
    for kind in ("kernels", "plain"):
        layers = training._working_copies(layout, params)
        if kind == "kernels":
            steps = kernels.KernelSteps(x, y, (scale, shift), layers, masks, (rows, weight), lr)
        else:
            steps = training.TorchSteps(pool, layers, masks, Batches(rows, weight), lr)
        for i, k in enumerate((3, 3, 2, 1)):  # members that are done leave
            steps.take_step(i, k)
        found.append([steps.losses(), *(t for layer in layers for t in layer)])
    for ours, plain in zip(*found, strict=True):
        torch.testing.assert_close(ours, plain, rtol=2e-5, atol=1e-4)
    for w, start in zip(found[0][1::2], training._working_copies(layout, params), strict=True):
        assert (w - start[0]).abs().max() > 1e-3  # it learned something to compare


@pytest.mark.parametrize("features, width, samples", [(64, 20, 70), (33, 200, 300), (96, 130, 128)])
@pytest.mark.parametrize("programs", [1, kernels.PROGRAMS_AT_ONCE])
def test_the_first_layer_on_the_same_samples_for_all_members(features, width, samples, programs, monkeypatch):
    monkeypatch.setattr(kernels, "PROGRAMS_AT_ONCE", programs)
    x = (drawn(400, features) * 40).abs().to(torch.uint8)
    scale, shift = (drawn(1, features, seed=i) for i in (1, 2))
    # Weights as they lie in flat vectors of parameters: one member's do not begin where the last one's end.
    weight = drawn(2, features * width + 7, seed=3)[:, 5:-2].view(2, features, width)
    bias, rows = drawn(2, width, seed=4), torch.arange(11, 11 + samples, device=DEVICE)
    out = drawn(2, samples, width)
    kernels.Layer(x, weight, bias, normalisation=(scale, shift)).forward(rows.unsqueeze(0), out)
    plain = torch.relu((x[rows].float() * scale + shift) @ weight + bias.unsqueeze(1))
    torch.testing.assert_close(out, plain, rtol=2e-5, atol=2e-4)


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device: Triton's interpreter computes in full precision")
@pytest.mark.parametrize("named, error", [("tf32", 5e-3), ("bf16", 4e-2)])
def test_less_precision_where_it_is_asked_for(named, error):
    layout = Layout((64, 32, 16, 10))
    x, y = (drawn(500, 64) * 40).abs().to(torch.uint8), (torch.arange(500) % 10).to(DEVICE)
    pool = Samples(x, y, drawn(1, 64, seed=1) / 40, drawn(1, 64, seed=2) / 40)
    models, lr = drawn(3, layout.parameters, seed=3) * 0.1, torch.full((3,), 0.1, device=DEVICE)
    rows = torch.randint(0, 500, (5, 3, 32), generator=torch.Generator().manual_seed(6)).to(DEVICE)
    batches = Batches(rows, torch.full(rows.shape, 1 / 32, device=DEVICE))
    exact, _ = training.train(layout, models, None, pool, batches, lr)
    with precision.using(named, models.device):
        rough, _ = training.train(layout, models, None, pool, batches, lr)
    assert 0 < float((rough - exact).abs().max()) < error


@pytest.mark.parametrize("hidden, samples", [((20, 37), 70), ((5, 200), 33), ((12,), 65)])
def test_the_increases_of_the_loss(hidden, samples):
    layout = Layout((8, *hidden, 10))
    network = Network(layout, drawn(layout.parameters))
    x, y = drawn(samples, 8, seed=1), (torch.arange(samples) % 10).to(DEVICE)
    layers = _padded(network)
    for i in range(len(hidden)):
        a = x
        for weight, bias in layers[: i + 1]:
            a = torch.relu(a @ weight + bias)
        next_z, logits = a @ layers[i + 1][0] + layers[i + 1][1], None
        later = layers[i + 2 :]
        logits = next_z if not later else torch.relu(next_z) @ later[0][0] + later[0][1]
        given = (a, layers[i + 1][0], next_z, later, y, _loss(logits, y))
        assert importance.supports_loss_increases(next_z, later)
        torch.testing.assert_close(
            importance.loss_increases(*given), _loss_increases_dense(*given), rtol=1e-4, atol=2e-3
        )
