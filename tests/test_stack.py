"""The stack against one-by-one training by autograd."""

import numpy as np
import pytest
import torch

import fedsac
from fedsac import Network
from fedsac.compute import batches, evaluation, training
from fedsac.compute.samples import Batches, Samples
from fedsac.core.units import Layout
from fedsac.rng import stream
from tests import plain

SIZES = (20, 16, 12, 5)
LAYOUT = Layout(SIZES)
POOL = [300, 40, 10, 123]  # samples of each member: many, few, fewer than a batch, odd
BATCH, STEPS = 32, 25
RATES = [0.1, 0.05, 0.2, 0.01]


def everyone(dtype=torch.float64, seed=0):
    """Four members with their own start, samples and learning rate, over one pool."""
    x, y = plain.random_data(sum(POOL), SIZES[0], SIZES[-1], seed, dtype)
    modules = [plain.random_module(SIZES, seed + i, dtype) for i in range(len(POOL))]
    rows = np.split(np.random.default_rng(seed).permutation(sum(POOL)), np.cumsum(POOL)[:-1])
    return x, y, modules, rows


def trained(x, y, modules, rows, neurons=None, rates=RATES, scale=None, shift=None):
    params = torch.stack([Network.of(module).params for module in modules])
    rngs = [stream(0, "batches", i) for i in range(len(rows))]
    picked, weight = batches.stacked_batches(rows, [STEPS] * len(rows), BATCH, rngs)
    one = torch.ones(1, x.shape[1], dtype=params.dtype)
    samples = Samples(x, y, one if scale is None else scale, torch.zeros_like(one) if shift is None else shift)
    drawn = Batches(torch.from_numpy(picked), torch.from_numpy(weight).to(params.dtype))
    return training.train(LAYOUT, params, neurons, samples, drawn, torch.tensor(rates, dtype=params.dtype))


def own_batches(rows, i):
    return list(rows[batches.client_batches(len(rows), STEPS, BATCH, stream(0, "batches", i))])


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-8), (torch.float32, 1e-4)])
def test_stacked_training_equals_autograd_one_by_one(dtype, tolerance):
    x, y, modules, rows = everyone(dtype)
    params, _ = trained(x, y, modules, rows)
    for i, module in enumerate(modules):
        alone = plain.train(module, x, y, own_batches(rows[i], i), RATES[i])
        moved = Network.of(alone).params - Network.of(module).params
        assert moved.abs().max() > 1e-3  # it learned something to compare
        assert plain.worst(params[i], Network.of(alone).params) < tolerance


@torch.no_grad()
def test_losses_are_the_mean_training_loss():
    x, y, modules, rows = everyone()
    _, losses = trained(x, y, modules, rows, rates=[0.0] * 4)
    for i, module in enumerate(modules):
        expected = np.mean(
            [float(torch.nn.functional.cross_entropy(module(x[b]), y[b])) for b in own_batches(rows[i], i)]
        )
        assert float(losses[i]) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9])
def test_masked_training_equals_training_the_extracted_network(share):
    x, y, modules, rows = everyone()
    neurons = torch.rand(4, LAYOUT.neurons, generator=torch.Generator().manual_seed(1)) < share
    neurons[1, : SIZES[1]] = False  # a layer may be empty
    params, _ = trained(x, y, modules, rows, neurons)
    for i, module in enumerate(modules):
        small = fedsac.extract(module, neurons[i])
        alone = plain.train(small.module(), x, y, own_batches(rows[i], i), RATES[i])
        assert plain.worst(params[i][LAYOUT.held(neurons[i])], Network.of(alone).params) < 1e-8
        merged = fedsac.merge(module, neurons[i], alone)
        assert plain.worst(params[i], Network.of(merged).params) < 1e-8  # and what it does not hold did not move


def test_results_do_not_depend_on_the_grouping():
    x, y, modules, rows = everyone(torch.float32)
    together, _ = trained(x, y, modules, rows)
    order = [2, 0, 3, 1]
    params = torch.stack([Network.of(modules[i]).params for i in order])
    picked, weight = batches.stacked_batches(
        [rows[i] for i in order], [STEPS] * 4, BATCH, [stream(0, "batches", i) for i in order]
    )
    one = torch.ones(4, x.shape[1])
    params, _ = training.train(
        LAYOUT,
        params,
        None,
        Samples(x, y, one, torch.zeros_like(one)),
        Batches(torch.from_numpy(picked), torch.from_numpy(weight).float()),
        torch.tensor([RATES[i] for i in order]),
    )
    assert plain.worst(params, together[order]) < 1e-6


@pytest.mark.parametrize("at_once", [1, 3])
def test_members_in_work_a_few_at_a_time(at_once, monkeypatch):
    x, y, modules, rows = everyone()
    neurons = torch.rand(4, LAYOUT.neurons, generator=torch.Generator().manual_seed(1)) < 0.5
    params, losses = trained(x, y, modules, rows, neurons)
    monkeypatch.setattr(training, "_members_at_once", lambda *given: at_once)
    again, also = trained(x, y, modules, rows, neurons)
    assert plain.worst(again, params) < 1e-12
    assert plain.worst(also, losses) < 1e-12


@pytest.mark.parametrize(
    "sizes, members, threads, at_once",
    [
        ((3072, 200, 200, 10), 10, 2, 10),  # the cache holds three
        ((3072, 200, 200, 10), 11, 2, 6),  # not ten, and one left alone
        ((3072, 200, 200, 10), 10, 4, 12),
        ((3072, 200, 200, 10), 1, 2, 2),
        ((3072, 200, 200, 10), 0, 2, 2),
        ((64, 32, 32, 10), 10_000, 2, 250),  # 49,192 bytes each, model and activations: at most 255
        ((50_000, 4000, 10), 10, 2, 1),  # 800 MB each
    ],
)
def test_members_at_a_time(sizes, members, threads, at_once, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    assert training._members_at_once(Layout(sizes), members, 32, 4) == at_once


def test_one_mask_for_many_models_and_nothing_to_evaluate(monkeypatch):
    x, y, modules, _ = everyone()
    params = torch.stack([Network.of(module).params for module in modules])
    neurons = torch.rand(1, LAYOUT.neurons, generator=torch.Generator().manual_seed(1)) < 0.5
    one = torch.ones(1, SIZES[0], dtype=torch.float64)
    monkeypatch.setattr(evaluation, "CPU_ACTIVATION_BYTES", 0)  # members in twos
    found = evaluation.evaluate(LAYOUT, params, neurons, Samples(x, y, one, one * 0))
    each = evaluation.evaluate(LAYOUT, params, neurons.expand(4, -1), Samples(x, y, one, one * 0))
    assert (found[0] == each[0]).all() and (found[1] == each[1]).all()
    nothing = evaluation.evaluate(LAYOUT, params, None, Samples(x[:0], y[:0], one, one * 0))
    assert nothing[0].isnan().all() and len(nothing[0]) == 4


def test_members_normalise_in_their_own_way():
    x, y, modules, rows = everyone()
    stored = (x * 40 + 128).clamp(0, 255).to(torch.uint8)
    scale = torch.rand(4, SIZES[0], dtype=torch.float64) * 0.02
    shift = torch.randn(4, SIZES[0], dtype=torch.float64)
    params, _ = trained(stored, y, modules, rows, scale=scale, shift=shift)
    for i, module in enumerate(modules):
        alone = plain.train(module, stored.double() * scale[i] + shift[i], y, own_batches(rows[i], i), RATES[i])
        assert plain.worst(params[i], Network.of(alone).params) < 1e-8


def test_a_member_that_diverges_does_not_touch_the_others():
    x, y, modules, rows = everyone(torch.float32)
    calm, _ = trained(x, y, modules, rows)
    params, losses = trained(x, y, modules, rows, rates=[RATES[0], 1e30, RATES[2], RATES[3]])
    assert training.finite(params, losses).tolist() == [True, False, True, True]
    assert (params[[0, 2, 3]] == calm[[0, 2, 3]]).all()


def test_a_member_with_fewer_steps_stops():
    x, y, modules, rows = everyone()
    params = torch.stack([Network.of(module).params for module in modules])
    steps = [STEPS, 3, 7, 1]
    picked, weight = batches.stacked_batches(rows, steps, BATCH, [stream(0, "batches", i) for i in range(4)])
    one = torch.ones(1, SIZES[0], dtype=torch.float64)
    drawn = Batches(torch.from_numpy(picked), torch.from_numpy(weight))
    params, _ = training.train(LAYOUT, params, None, Samples(x, y, one, one * 0), drawn, torch.tensor(RATES).double())
    for i, module in enumerate(modules):
        mine = list(rows[i][batches.client_batches(len(rows[i]), steps[i], BATCH, stream(0, "batches", i))])
        assert (
            plain.worst(params[i], Network.of(plain.train(module, x, y, mine, float(torch.tensor(RATES[i])))).params)
            < 1e-8
        )


@pytest.mark.parametrize("shared_model", [True, False])
@torch.no_grad()
def test_evaluation_equals_torchs(shared_model):
    x, y, modules, _ = everyone()
    stored = (x * 40 + 128).clamp(0, 255).to(torch.uint8)
    scale = torch.rand(1, SIZES[0], dtype=torch.float64) * 0.02
    shift = torch.randn(1, SIZES[0], dtype=torch.float64)
    modules = modules[:1] * 4 if shared_model else modules
    params = torch.stack([Network.of(module).params for module in modules])
    neurons = torch.rand(4, LAYOUT.neurons, generator=torch.Generator().manual_seed(1)) < 0.6
    given = params[:1] if shared_model else params
    accuracy, loss = evaluation.evaluate(LAYOUT, given, neurons, Samples(stored, y, scale, shift))
    for i, module in enumerate(modules):
        logits = fedsac.extract(module, neurons[i]).module()(stored.double() * scale + shift)
        assert float(accuracy[i]) == float((logits.argmax(1) == y).double().mean())
        assert float(loss[i]) == pytest.approx(float(torch.nn.functional.cross_entropy(logits, y)), rel=1e-9)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_evaluation_in_chunks_is_the_same(shared, masked, monkeypatch):
    x, y, modules, _ = everyone()
    params = torch.stack([Network.of(module).params for module in modules])
    params = params[:1] if shared else params
    neurons = torch.rand(5, LAYOUT.neurons, generator=torch.Generator().manual_seed(1)) < 0.5
    neurons = (neurons if shared else neurons[:4]) if masked else None
    one = torch.ones(1, SIZES[0], dtype=torch.float64)
    whole = evaluation.evaluate(LAYOUT, params, neurons, Samples(x, y, one, one * 0))
    assert len(whole[0]) == max(len(params), 0 if neurons is None else len(neurons))
    monkeypatch.setattr(evaluation, "CPU_CHUNK_SAMPLES", 7)
    monkeypatch.setattr(evaluation, "CPU_ACTIVATION_BYTES", 3 * 7 * 8 * max(SIZES[1:]))  # three members
    parts = evaluation.evaluate(LAYOUT, params, neurons, Samples(x, y, one, one * 0))
    assert (whole[0] == parts[0]).all()
    assert plain.worst(parts[1], whole[1]) < 1e-12


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_agrees_with_the_cpu():
    x, y, modules, rows = everyone()
    on_cpu, _ = trained(x, y, modules, rows)
    params = torch.stack([Network.of(module).params for module in modules]).cuda()
    picked, weight = batches.stacked_batches(rows, [STEPS] * 4, BATCH, [stream(0, "batches", i) for i in range(4)])
    one = torch.ones(1, SIZES[0], dtype=torch.float64, device="cuda")
    drawn = Batches(torch.from_numpy(picked).cuda(), torch.from_numpy(weight).cuda())
    samples = Samples(x.cuda(), y.cuda(), one, one * 0)
    params, _ = training.train(
        LAYOUT, params, None, samples, drawn, torch.tensor(RATES, dtype=torch.float64, device="cuda")
    )
    assert plain.worst(params.cpu(), on_cpu) < 1e-8
