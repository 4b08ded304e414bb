"""CUDA graphs: the same bits as without, whatever changes between two launches."""

import threading
from collections import OrderedDict

import pytest
import torch

from fedsac.compute import training
from fedsac.compute.cuda import precision
from fedsac.compute.importance import stored_importance
from fedsac.compute.samples import Batches, Samples
from fedsac.core import graphs
from fedsac.core.aggregation import aggregate_submodels, aggregate_submodels_damped
from fedsac.core.allocation import allocate
from fedsac.core.units import Layout

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

LAYOUT = Layout((70, 20, 18, 10))
MEMBERS, STEPS, SAMPLES = 4, 6, 300


@pytest.fixture(autouse=True)
def _no_graphs(monkeypatch):
    monkeypatch.setattr(graphs, "_graphs", OrderedDict())


def given(seed, *, batch=32, dtype=torch.float32, masked=True, members_at_step=None):
    """Everything drawn anew but the pool's images, as from round to round."""
    rng = torch.Generator().manual_seed(seed)
    models = torch.randn(MEMBERS, LAYOUT.parameters, generator=rng).mul(0.2).to("cuda", dtype)
    neurons = (torch.rand(MEMBERS, LAYOUT.neurons, generator=rng) > 0.4).cuda() if masked else None
    rows = torch.randint(0, SAMPLES, (STEPS, MEMBERS, batch), generator=rng).cuda()
    weight = (torch.rand(rows.shape, generator=rng) / batch).to("cuda", dtype)
    lr = torch.rand(MEMBERS, generator=rng).to("cuda", dtype)
    return models, neurons, Batches(rows, weight, members_at_step), lr


def pool(seed, dtype=torch.float32):
    rng = torch.Generator().manual_seed(seed)
    x = torch.randint(0, 256, (SAMPLES, 70), dtype=torch.uint8, generator=rng).cuda()
    y = torch.randint(0, 10, (SAMPLES,), generator=rng).cuda()
    scale, shift = (torch.rand(MEMBERS, 70, generator=rng).div(64).to("cuda", dtype) for _ in range(2))
    return Samples(x, y, scale, shift)


def train(samples, drawn):
    models, neurons, batches, lr = drawn
    return training.train(LAYOUT, models, neurons, samples, batches, lr)


def launched_one_by_one(monkeypatch, samples, drawn):
    with monkeypatch.context() as patched:
        patched.setattr(graphs, "MAX_STACK_PARAMETERS", 0)
        return train(samples, drawn)


@pytest.mark.parametrize(
    "case",
    [
        {},
        {"masked": False},
        {"members_at_step": (4, 4, 3, 3, 1, 1)},
    ],
)
def test_a_graph_gives_the_bits_of_single_launches(case, monkeypatch):
    samples = pool(0, case.get("dtype", torch.float32))
    for seed in range(4):
        drawn = given(seed, **case)
        expected = launched_one_by_one(monkeypatch, samples, drawn)
        found = train(samples, drawn)
        assert all(torch.equal(f, e) for f, e in zip(found, expected, strict=True))
    assert [graph is not None for graph in graphs._graphs.values()] == [True]


@pytest.mark.parametrize("case", [{"batch": 20}, {"dtype": torch.float64}])
def test_no_graph_of_what_is_not_by_our_own_kernels(case):
    samples = pool(0, case.get("dtype", torch.float32))
    for seed in range(3):
        train(samples, given(seed, **case))
    assert not graphs._graphs


def test_what_was_found_before_stays():
    samples = pool(0)
    found = [train(samples, given(seed)) for seed in range(4)]
    kept = [[t.clone() for t in each] for each in found]
    train(samples, given(9))
    assert all(torch.equal(a, b) for f, k in zip(found, kept, strict=True) for a, b in zip(f, k, strict=True))


def test_another_pool_or_precision_is_another_graph(monkeypatch):
    first, second = pool(0), pool(1)
    for _ in range(3):
        for samples in (first, second):
            for name in ("float32", "tf32"):
                with precision.using(name, torch.device("cuda")):
                    expected = launched_one_by_one(monkeypatch, samples, given(2))
                    assert torch.equal(train(samples, given(2))[0], expected[0])
    assert len(graphs._graphs) == 4
    assert all(graphs._graphs.values())


def test_no_more_graphs_are_kept_than_are_wanted(monkeypatch):
    monkeypatch.setattr(graphs, "MAX_GRAPHS", 2)
    pools = [pool(seed) for seed in range(3)]
    for _ in range(3):
        for samples in pools:
            expected = launched_one_by_one(monkeypatch, samples, given(3))
            assert torch.equal(train(samples, given(3))[0], expected[0])
            assert len(graphs._graphs) <= 2


def test_threads_share_a_graph(monkeypatch):
    samples = pool(0)
    drawn = [given(seed) for seed in range(8)]
    expected = [launched_one_by_one(monkeypatch, samples, d)[0] for d in drawn]
    wrong = []

    def work(numbers):
        for _ in range(20):
            for i in numbers:
                if not torch.equal(train(samples, drawn[i])[0], expected[i]):
                    wrong.append(i)

    train(samples, drawn[0])
    train(samples, drawn[0])  # captured
    threads = [threading.Thread(target=work, args=(range(k, 8, 2),)) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def server_steps(seed, device):
    """Importance, allocation and both aggregations of one round, from inputs drawn anew."""
    rng = torch.Generator().manual_seed(seed)
    models = torch.randn(MEMBERS, LAYOUT.parameters, generator=rng).mul(0.2).to(device)
    neurons = (torch.rand(MEMBERS, LAYOUT.neurons, generator=rng) > 0.4).to(device)
    x = torch.randint(0, 256, (SAMPLES, 70), dtype=torch.uint8, generator=rng).to(device)
    y = torch.randint(0, 10, (SAMPLES,), generator=rng).to(device)
    scale, shift = (torch.rand(1, 70, generator=rng).div(64).to(device) for _ in range(2))
    r = 100 * torch.rand(MEMBERS, generator=rng, dtype=torch.float64)
    sent = LAYOUT, models, neurons, models.mean(0)
    importance = stored_importance(LAYOUT, models[0], Samples(x, y, scale, shift))
    plain, damped = aggregate_submodels(*sent), aggregate_submodels_damped(*sent, 2.0)
    return importance, allocate(importance, r), plain, damped


def test_server_steps_from_graphs_are_those_of_a_cpu():
    for seed in range(4):
        importance, neurons, *aggregated = server_steps(seed, "cuda")
        expected, _, *expected_aggregated = server_steps(seed, "cpu")
        torch.testing.assert_close(importance.cpu(), expected, rtol=1e-4, atol=1e-7)
        for found, wanted in zip(aggregated, expected_aggregated, strict=True):
            torch.testing.assert_close(found.cpu(), wanted, rtol=1e-5, atol=1e-6)
        # Of the GPU's own importance, since the order of near ties may differ.
        r = 100 * torch.rand(MEMBERS, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        on_gpu, on_cpu = allocate(importance, r), allocate(importance.cpu(), r)
        assert torch.equal(on_gpu.cpu(), on_cpu) and neurons.shape == on_cpu.shape
    assert len(graphs._graphs) == 4 and all(graphs._graphs.values())


def test_server_steps_from_graphs_have_the_bits_of_single_launches(monkeypatch):
    single = []
    for seed in range(3):
        monkeypatch.setattr(graphs, "_graphs", OrderedDict())  # nothing has come before: launched one by one
        single.append(server_steps(seed, "cuda"))
    monkeypatch.setattr(graphs, "_graphs", OrderedDict())
    for seed in (0, 0, 1, 2):
        found = server_steps(seed, "cuda")
        assert all(torch.equal(f, e) for f, e in zip(found, single[seed], strict=True))
